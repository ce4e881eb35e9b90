package wire

import (
	"io"
	"math/bits"
	"sync"
)

const (
	// keepBytes is the largest buffer an Inbox holds on to once everything
	// in it has been consumed: enough for a frame that bears a batch of 64 KiB.
	// It is also the most that an idle connection costs in each direction.
	keepBytes = 128 << 10
	// growthFactor bounds how far a buffer grows beyond what has arrived:
	// a peer that announces 100 MiB and sends little gets little memory.
	growthFactor = 16
	// quietRounds is how many small reads in a row end the belief that the
	// connection needs more than its initial buffer.
	quietRounds = 8
	// emptyReads is how many reads may return neither bytes nor an error.
	emptyReads = 100

	minClass = 9 // 512 bytes
	maxClass = 30
)

// Inbox is a growable read buffer over one connection. Frames are parsed, and
// changed, in place; bytes are copied only when a frame that has not arrived
// whole must be made contiguous.
//
// An Inbox is not safe for concurrent use. The memory behind Bytes is pooled:
// a slice of it is invalid after the next Fill, Reserve or Release.
type Inbox struct {
	r       io.Reader
	buf     []byte // whole buffer; buf[start:end] is unread
	start   int
	end     int
	initial int
	max     int
	quiet   int  // reads in a row that an initial buffer would have held
	full    bool // the last read filled the buffer: more is likely to wait
}

// NewInbox returns an Inbox that reads from r. It begins with a buffer of
// initial bytes (taken when first needed) and never gives more than max
// contiguous bytes. It panics if the sizes are not positive.
func NewInbox(r io.Reader, initial, max int) *Inbox {
	if initial <= 0 || max <= 0 {
		panic("wire: inbox sizes must be positive")
	}
	return &Inbox{r: r, initial: initial, max: max}
}

// Bytes returns what is buffered and unread. The slice may be changed in
// place, is valid until the next Fill, Reserve or Release, and has no spare
// capacity, so that appending to it cannot overwrite what follows.
func (b *Inbox) Bytes() []byte { return b.buf[b.start:b.end:b.end] }

// Fill returns when at least n unread bytes are buffered contiguously. Each
// read takes whatever is available up to the buffer's size. The buffer may
// move. Bytes already buffered survive an error, so a Fill that failed by a
// deadline can be tried again.
//
// Errors: ErrTooLarge if n is above the bound (nothing is read); io.EOF at
// the end of the stream with nothing buffered, io.ErrUnexpectedEOF with less
// than n bytes buffered; else the reader's error.
func (b *Inbox) Fill(n int) error {
	if n > b.max {
		return ErrTooLarge
	}
	empty := 0
	for b.end-b.start < n {
		b.makeRoom(n)
		room := b.buf[b.end:]
		got, err := b.r.Read(room)
		b.end += got
		b.full = got == len(room)
		if got > b.initial {
			b.quiet = 0
		} else {
			b.quiet++
		}
		if got > 0 {
			empty = 0
			if b.end-b.start >= n {
				return nil
			}
		}
		switch {
		case err == io.EOF && b.end > b.start:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case got == 0:
			if empty++; empty == emptyReads {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// Advance consumes the first n unread bytes. It panics if fewer are buffered.
func (b *Inbox) Advance(n int) {
	if n < 0 || n > b.end-b.start {
		panic("wire: advance beyond what is buffered")
	}
	b.start += n
	if b.start == b.end {
		b.start, b.end = 0, 0
		if len(b.buf) > keepBytes && len(b.buf) > b.initial {
			b.drop()
		}
	}
}

// Reserve makes the next reads at least n bytes wide, where the bound allows.
// It is for streams whose remaining length is known to be long.
func (b *Inbox) Reserve(n int) {
	n = min(n, b.max)
	if len(b.buf)-b.end >= n {
		return
	}
	b.resize(b.end - b.start + n)
}

// Narrow has an empty Inbox begin again with its initial buffer. It is for readers
// that know of a better way for most of what comes next than through the buffer.
func (b *Inbox) Narrow() {
	if b.start == b.end {
		b.full = false
		if len(b.buf) > b.initial {
			b.drop()
		}
	}
}

// Release returns the buffer to the pool; what was unread is lost. The Inbox
// stays usable and takes a new buffer when filled.
func (b *Inbox) Release() {
	b.start, b.end = 0, 0
	b.drop()
}

// makeRoom gives the buffer free space behind end, and enough size for n
// bytes as far as what has arrived justifies it.
func (b *Inbox) makeRoom(n int) {
	have := b.end - b.start
	if have == 0 {
		b.start, b.end = 0, 0
		switch {
		case b.full && len(b.buf) < keepBytes:
			b.full = false
			b.resize(keepBytes)
		case b.quiet >= quietRounds && len(b.buf) > b.initial:
			b.drop()
		}
	}
	if b.buf == nil {
		b.resize(b.initial)
	}
	if b.start+n <= len(b.buf) {
		return
	}
	if n <= len(b.buf) {
		copy(b.buf, b.buf[b.start:b.end])
		b.start, b.end = 0, have
		return
	}
	if b.end < len(b.buf) {
		return // use up the free space before growing
	}
	if have < len(b.buf) {
		copy(b.buf, b.buf[b.start:b.end])
		b.start, b.end = 0, have
		return
	}
	b.resize(min(n, have*growthFactor))
}

// resize moves what is unread into a buffer of at least n bytes.
func (b *Inbox) resize(n int) {
	next := takeBuffer(n)
	end := copy(next, b.buf[b.start:b.end])
	b.drop()
	b.buf, b.start, b.end = next, 0, end
}

func (b *Inbox) drop() {
	if b.buf != nil {
		giveBuffer(b.buf)
		b.buf = nil
	}
}

// buffers holds free buffers by size class: class c has 1<<c bytes.
var buffers [maxClass + 1]sync.Pool

func takeBuffer(n int) []byte {
	class := max(minClass, bits.Len(uint(n-1)))
	if class > maxClass {
		return make([]byte, n)
	}
	if p, ok := buffers[class].Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 1<<class)
}

func giveBuffer(buf []byte) {
	class := bits.Len(uint(cap(buf) - 1))
	if class < minClass || class > maxClass || cap(buf) != 1<<class {
		return
	}
	buf = buf[:cap(buf)]
	buffers[class].Put(&buf)
}
