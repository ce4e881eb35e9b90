package wire

import (
	"math/bits"
	"slices"
	"sync"
	"weak"
)

const (
	// smallClass and largeClass bound the size classes of small buffers: class c has
	// 1<<c bytes.
	smallClass = 9  // 512
	largeClass = 17 // keepBytes
	// spareBytes bounds the large buffers that wait to be used again, of all
	// connections together.
	spareBytes = 32 << 20
	// sizeSteps is into how many sizes large buffers are divided between a power of
	// two and the next, so that many lengths of frames find one that was used before,
	// and none takes much more than it needs.
	sizeSteps = 8
)

// buffer is memory that an Inbox reads into.
type buffer struct{ bytes []byte }

// buffers are the free ones of up to keepBytes, by size class.
var buffers [largeClass + 1]sync.Pool

// takeBuffer gives one of at least n bytes. What is in it is anything.
func takeBuffer(n int) *buffer {
	if n > keepBytes {
		if b := largeBuffers.take(n); b != nil {
			return b
		}
		step := 1 << bits.Len(uint(n-1)) / (2 * sizeSteps)
		return &buffer{make([]byte, (n+step-1)/step*step)}
	}
	class := max(smallClass, bits.Len(uint(n-1)))
	if b, ok := buffers[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 1<<class)}
}

// giveBuffer takes one back.
func giveBuffer(b *buffer) {
	if n := len(b.bytes); n > keepBytes {
		largeBuffers.give(b)
	} else {
		buffers[bits.Len(uint(n-1))].Put(b)
	}
}

// largeBuffers are the free ones of more than keepBytes.
var largeBuffers spares

// spares are large buffers that nobody uses now. One serves any frame that it is
// large enough for, so there are seldom more than were in use at once, which with a
// pool for each size there would be. They are held on to so weakly that they go with
// the next collection of garbage, and do not count in when that is: what is idle
// costs no memory for long.
//
// The zero value has none. Its methods may be called concurrently.
type spares struct {
	mu    sync.Mutex
	kept  []spare // smallest first
	bytes int     // of all kept, whether they are still there or not
}

type spare struct {
	size   int
	buffer weak.Pointer[buffer]
}

// take gives the smallest one of at least n bytes, or nil.
func (s *spares) take(n int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.kept); {
		if s.kept[i].size < n {
			i++
			continue
		}
		if b := s.removeLocked(i); b != nil {
			return b
		}
	}
	return nil
}

// give keeps b, if need be in place of smaller ones.
func (s *spares) give(b *buffer) {
	size := len(b.bytes)
	if size > spareBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes+size > spareBytes {
		s.removeLocked(0)
	}
	i, _ := slices.BinarySearchFunc(s.kept, size, func(k spare, size int) int { return k.size - size })
	s.kept = slices.Insert(s.kept, i, spare{size, weak.Make(b)})
	s.bytes += size
}

// removeLocked gives one that was kept; nil: it is there no more.
func (s *spares) removeLocked(i int) *buffer {
	b := s.kept[i].buffer.Value()
	s.bytes -= s.kept[i].size
	s.kept = slices.Delete(s.kept, i, i+1)
	return b
}
