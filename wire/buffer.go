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
	spareBytes = 24 << 20
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
// pool for each size there would be.
//
// What is not used for two collections of garbage is let go, so that an idle process
// keeps none. The zero value has none; its methods may be called concurrently.
type spares struct {
	mu    sync.Mutex
	stock weak.Pointer[stock]
	// alive has what keeps the stock: a pool is emptied by the second collection.
	alive sync.Pool
	// cycle is gone as soon as the collector has run.
	cycle weak.Pointer[cycle]
}

// stock is what spares have.
type stock struct {
	free  []spare // smallest first
	bytes int
	cycle int // counts collections that were seen
}

type spare struct {
	*buffer
	cycle int // when it was last used
}

// cycle is something that nobody refers to.
type cycle struct{ _ *cycle }

// take gives the smallest one of at least n bytes, or nil.
func (s *spares) take(n int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stockLocked()
	for i := range st.free {
		if len(st.free[i].bytes) >= n {
			return st.remove(i)
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
	st := s.stockLocked()
	for st.bytes+size > spareBytes {
		st.remove(0)
	}
	i, _ := slices.BinarySearchFunc(st.free, size, func(k spare, size int) int { return len(k.bytes) - size })
	st.free = slices.Insert(st.free, i, spare{b, st.cycle})
	st.bytes += size
}

// stockLocked is the stock, without what was not used for long.
func (s *spares) stockLocked() *stock {
	st := s.stock.Value()
	if st == nil {
		st = new(stock)
		s.stock = weak.Make(st)
		s.alive.Put(st)
	}
	if s.cycle.Value() == nil {
		s.cycle = weak.Make(new(cycle))
		s.alive.Put(st)
		st.cycle++
		for i := len(st.free) - 1; i >= 0; i-- {
			if st.free[i].cycle+2 < st.cycle {
				st.remove(i)
			}
		}
	}
	return st
}

func (st *stock) remove(i int) *buffer {
	b := st.free[i].buffer
	st.free = slices.Delete(st.free, i, i+1)
	st.bytes -= len(b.bytes)
	return b
}
