package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// fieldReader walks the fields of a message body, classic or flexible. After
// a failure every read returns zero and the position stays where it is.
type fieldReader struct {
	buf      []byte
	at       int
	flexible bool
	failed   bool
}

// take returns the next n bytes, capped so that append cannot reach what
// follows them.
func (r *fieldReader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.buf)-r.at {
		r.failed = true
		return nil
	}
	b := r.buf[r.at : r.at+n : r.at+n]
	r.at += n
	return b
}

// skip steps over the given bytes, if they are what comes next.
func (r *fieldReader) skip(bytes string) bool {
	if r.failed || len(r.buf)-r.at < len(bytes) || string(r.buf[r.at:r.at+len(bytes)]) != bytes {
		return false
	}
	r.at += len(bytes)
	return true
}

func (r *fieldReader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *fieldReader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// uvarint reads at most five bytes and 32 bits. Overlong encodings are fine:
// librdkafka reserves the room of a length before it knows it.
func (r *fieldReader) uvarint() uint32 {
	if uint(r.at) < uint(len(r.buf)) && r.buf[r.at] < 0x80 && !r.failed {
		r.at++
		return uint32(r.buf[r.at-1])
	}
	return r.longUvarint()
}

func (r *fieldReader) longUvarint() uint32 {
	if r.failed {
		return 0
	}
	var v uint64
	for i, c := range r.buf[r.at:min(r.at+5, len(r.buf))] {
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if v > math.MaxUint32 {
				break
			}
			r.at += i + 1
			return uint32(v)
		}
	}
	r.failed = true
	return 0
}

// compactLen reads a compact length: one more than the length, 0 is null
// (−1). It fails if fewer bytes are left than elements.
func (r *fieldReader) compactLen() int {
	n := int64(r.uvarint()) - 1
	if n > int64(len(r.buf)-r.at) {
		r.failed = true
		return -1
	}
	return int(n)
}

// arrayLen reads the length of an array that cannot be null.
func (r *fieldReader) arrayLen() int {
	n := r.nullableArrayLen()
	if n < 0 {
		r.failed = true
		return 0
	}
	return n
}

// nullableArrayLen reads the length of an array, −1 if it is null. It never
// exceeds the bytes left: the least element is larger than a byte.
func (r *fieldReader) nullableArrayLen() int {
	n := 0
	if r.flexible {
		n = r.compactLen()
	} else {
		n = int(int32(r.uint32()))
	}
	if r.failed || n < -1 || n > len(r.buf)-r.at {
		r.failed = true
		return 0
	}
	return n
}

func (r *fieldReader) nullableString() []byte {
	if r.flexible {
		n := r.compactLen()
		if n > math.MaxInt16 { // the limit of a string in Kafka, compact or not
			r.failed = true
		}
		return r.nullable(n)
	}
	return r.nullable(int(int16(r.uint16())))
}

func (r *fieldReader) nullableBytes() []byte {
	if r.flexible {
		return r.nullable(r.compactLen())
	}
	return r.nullable(int(int32(r.uint32())))
}

func (r *fieldReader) nullable(n int) []byte {
	if n == -1 {
		return nil
	}
	return r.take(n)
}

// skipTags steps over tagged fields and reports whether there were any; classic
// bodies have none.
func (r *fieldReader) skipTags() bool {
	if !r.flexible {
		return false
	}
	count := r.uvarint()
	if count == 0 {
		return false
	}
	for n := count; n > 0 && !r.failed; n-- {
		r.uvarint()
		size := r.uvarint()
		if int64(size) > int64(len(r.buf)-r.at) {
			r.failed = true
			break
		}
		r.take(int(size))
	}
	return true
}

// fieldWriter is the inverse of fieldReader.
type fieldWriter struct {
	buf      []byte
	flexible bool
}

func (w *fieldWriter) uint16(v uint16) { w.buf = binary.BigEndian.AppendUint16(w.buf, v) }
func (w *fieldWriter) uint32(v uint32) { w.buf = binary.BigEndian.AppendUint32(w.buf, v) }

func (w *fieldWriter) noTags() {
	if w.flexible {
		w.buf = append(w.buf, 0)
	}
}

func (w *fieldWriter) arrayLen(n int) {
	if w.flexible {
		w.buf = binary.AppendUvarint(w.buf, uint64(n)+1)
		return
	}
	w.uint32(uint32(n))
}

func (w *fieldWriter) string(s string) {
	if len(s) > math.MaxInt16 {
		panic(fmt.Sprintf("wire: string of %d bytes", len(s)))
	}
	if w.flexible {
		w.arrayLen(len(s))
	} else {
		w.uint16(uint16(len(s)))
	}
	w.buf = append(w.buf, s...)
}

func (w *fieldWriter) nullableString(s []byte) {
	if w.flexible {
		w.nullableBytes(s)
		return
	}
	if len(s) > math.MaxInt16 {
		panic(fmt.Sprintf("wire: string of %d bytes", len(s)))
	}
	if s == nil {
		w.uint16(math.MaxUint16) // −1
		return
	}
	w.uint16(uint16(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *fieldWriter) nullableBytes(b []byte) {
	switch {
	case b == nil && w.flexible:
		w.buf = append(w.buf, 0)
		return
	case b == nil:
		w.uint32(math.MaxUint32) // −1
		return
	}
	w.arrayLen(len(b))
	w.buf = append(w.buf, b...)
}
