package wire

import "io"

const (
	// keepBytes is the largest buffer an Inbox holds on to once everything
	// in it has been consumed: enough for a frame that bears a batch of 64 KiB.
	// It is also the most that an idle connection costs in each direction.
	keepBytes = 128 << 10
	// growthFactor bounds how far a buffer grows beyond what has arrived:
	// a peer that announces 100 MiB and sends little gets little memory.
	growthFactor = 16
	// spareFactor is the same for memory that lies about, and so costs nothing until
	// somebody else needs it.
	spareFactor = growthFactor * growthFactor
	// quietRounds is how many small reads in a row end the belief that the
	// connection needs more than its initial buffer.
	quietRounds = 8
	// emptyReads is how many reads may return neither bytes nor an error.
	emptyReads = 100
)

// PatientReader is a reader that can wait without memory for what it waits for. An
// Inbox on one has no buffer while it is empty and nothing comes.
type PatientReader interface {
	io.Reader
	// ReadWhenReady is Read into what room gives. Whenever nothing is there to be
	// read it calls park, after which what room gave is not used any more, and room
	// again when there may be something. Both are called within it.
	ReadWhenReady(room func() []byte, park func()) (int, error)
}

// Inbox is a growable read buffer over one connection. Frames are parsed, and
// changed, in place; bytes are copied only when a frame that has not arrived
// whole must be made contiguous.
//
// An Inbox is not safe for concurrent use. The memory behind Bytes is pooled:
// a slice of it is invalid after the next Fill, Reserve or Release.
type Inbox struct {
	r       io.Reader
	patient PatientReader // r, if it is one
	taken   *buffer       // what buf is of; nil: none
	buf     []byte        // whole buffer; buf[start:end] is unread
	start   int
	end     int
	initial int
	max     int
	width   int  // of the buffer to begin with when there is none
	wanted  int  // width of the next read, by Reserve; 0: nothing is known
	quiet   int  // reads in a row that an initial buffer would have held
	full    bool // the last read filled the buffer: more is likely to wait

	// Made once, so that they cost no allocation.
	room func() []byte
	park func()
}

// NewInbox returns an Inbox that reads from r. It begins with a buffer of
// initial bytes (taken when first needed) and never gives more than max
// contiguous bytes. It panics if the sizes are not positive.
func NewInbox(r io.Reader, initial, max int) *Inbox {
	if initial <= 0 || max <= 0 {
		panic("wire: inbox sizes must be positive")
	}
	b := &Inbox{r: r, initial: initial, max: max, width: initial}
	if b.patient, _ = r.(PatientReader); b.patient != nil {
		b.room, b.park = b.firstRoom, b.drop
	}
	return b
}

// Bytes returns what is buffered and unread. The slice may be changed in
// place, is valid until the next Fill, FillSome, Reserve or Release, and has no spare
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
func (b *Inbox) Fill(n int) error { return b.fill(n, n) }

// FillSome is Fill, but returns as soon as a read has brought something, or a few
// have: for whoever looks at bytes while they are fresh, before all n are there.
func (b *Inbox) FillSome(n int) error { return b.fill(n, min(n, b.end-b.start+1)) }

// fill reads until least bytes are there of the n that are wanted.
func (b *Inbox) fill(n, least int) error {
	if n > b.max {
		return ErrTooLarge
	}
	empty := 0
	for b.end-b.start < least {
		got, err := b.read(n)
		if got > b.initial {
			b.quiet = 0
		} else {
			b.quiet++
		}
		if got > 0 {
			empty = 0
			if b.end-b.start >= least {
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

// read reads once, for a Fill of n bytes.
func (b *Inbox) read(n int) (got int, err error) {
	if b.patient != nil && b.start == b.end && n <= b.width {
		got, err = b.patient.ReadWhenReady(b.room, b.park)
		b.end += got
		b.full, b.wanted = got > 0 && b.end == len(b.buf), 0
		return got, err
	}
	b.makeRoom(n)
	room := b.buf[b.end:]
	// What comes behind a large frame is left for later: here it would have to be
	// copied to where the next one begins.
	ends := n > keepBytes && b.start+n < len(b.buf)
	if ends {
		room = b.buf[b.end : b.start+n]
	}
	got, err = b.r.Read(room)
	b.end += got
	b.full, b.wanted = got == len(room) && !ends, 0
	return got, err
}

// firstRoom is where an empty Inbox reads to.
func (b *Inbox) firstRoom() []byte {
	b.makeRoom(1)
	return b.buf
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
	if b.wanted = n; b.start == b.end && b.buf == nil || len(b.buf)-b.end >= n {
		return
	}
	b.resize(b.end - b.start + n)
}

// Narrow has an empty Inbox begin again with its initial buffer. It is for readers
// that know of a better way for most of what comes next than through the buffer.
func (b *Inbox) Narrow() {
	if b.start == b.end {
		b.full, b.width = false, b.initial
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
		case b.full && b.width < keepBytes:
			b.full, b.width = false, keepBytes
			b.drop()
		case b.quiet >= quietRounds && b.width > b.initial:
			b.width = b.initial
			b.drop()
		}
	}
	if b.buf == nil {
		b.resize(max(b.width, b.wanted))
	}
	if b.start+n <= len(b.buf) {
		return
	}
	if n <= len(b.buf) {
		copy(b.buf, b.buf[b.start:b.end])
		b.start, b.end = 0, have
		return
	}
	if n > keepBytes && n <= have*spareFactor {
		if spare := largeBuffers.take(n); spare != nil {
			b.moveTo(spare)
			return
		}
	}
	if b.end < len(b.buf) {
		return // use up the free space before growing
	}
	if have < len(b.buf) {
		copy(b.buf, b.buf[b.start:b.end])
		b.start, b.end = 0, have
		return
	}
	if n <= keepBytes {
		// The next frame is likely to be as long, and then one read takes it in.
		b.width = max(b.width, n)
	}
	b.resize(min(n, have*growthFactor))
}

// resize moves what is unread into a buffer of at least n bytes.
func (b *Inbox) resize(n int) { b.moveTo(takeBuffer(n)) }

func (b *Inbox) moveTo(next *buffer) {
	end := copy(next.bytes, b.buf[b.start:b.end])
	b.drop()
	b.taken, b.buf, b.start, b.end = next, next.bytes, 0, end
}

func (b *Inbox) drop() {
	if b.taken != nil {
		giveBuffer(b.taken)
		b.taken, b.buf = nil, nil
	}
}
