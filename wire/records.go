package wire

import "math"

// minRecordSize is the least that a record takes: its length, attributes,
// two deltas, two null lengths and a header count, one byte each.
const minRecordSize = 7

// HeaderNames are the names of the record headers that carry a condition.
// An empty name means its default.
type HeaderNames struct {
	// ExpectedOffset; default "expected-offset".
	ExpectedOffset string
	// AppendID; default "append-id".
	AppendID string
}

func (n HeaderNames) orDefault() HeaderNames {
	if n.ExpectedOffset == "" {
		n.ExpectedOffset = "expected-offset"
	}
	if n.AppendID == "" {
		n.AppendID = "append-id"
	}
	return n
}

// record is what the walk keeps of one record.
type record struct {
	timestampDelta int64
	offsetDelta    int32
	digest         uint64

	// How often the two headers were given, and the last value of each, nil
	// if null, undefined if it was not given. The values alias the payload.
	expectedCount int
	expected      []byte
	appendIDCount int
	appendID      []byte
	// loneAt is where in the payload the headers begin, if they are one, an
	// expected-offset, in canonical encoding; else 0.
	loneAt int
}

// hasAppendID reports exactly one append-id that is not empty.
func (r *record) hasAppendID() bool { return r.appendIDCount == 1 && len(r.appendID) > 0 }

// recordReader walks the decompressed records of one batch (KIP-82, KIP-98:
// zigzag varints, headers). The same bytes yield the same records as in a
// broker, with one exception: a varint whose last byte holds more than is
// left of 32 (64) bits is refused where a broker drops the excess.
type recordReader struct {
	names   HeaderNames
	scratch []byte // a record written anew, see digest
}

// next reads the record at payload[at:] into r and returns where the one
// after it starts, or −1 if the record is not well formed.
//
// Nearly all varints have one or two bytes, so these are read here, and in
// headers, without a call. Such a read may go past the record's end, into the
// payload, which the comparison at the end finds.
func (rr *recordReader) next(payload []byte, at int, r *record) int {
	u, n := shortVarint(payload, at)
	length := unzigzag(u)
	if at += n; n == 0 {
		length, at, _ = readVarint(payload, at)
	}
	if at < 0 || length < 0 || int(length) > len(payload)-at {
		return -1
	}
	end := at + int(length)
	at++ // attributes, of which none is defined
	u, n = shortVarint(payload, at)
	r.timestampDelta = int64(unzigzag(u))
	if at += n; n == 0 {
		if r.timestampDelta, at = readVarlong(payload[:end], at); at < 0 {
			return -1
		}
	}
	u, n = shortVarint(payload, at)
	r.offsetDelta = unzigzag(u)
	if at += n; n == 0 {
		if r.offsetDelta, at, _ = readVarint(payload[:end], at); at < 0 {
			return -1
		}
	}
	content, canonical := at, true
	for range 2 { // key and value
		u, n := shortVarint(payload, at)
		switch {
		case n == 0:
			var c bool
			if _, at, c = readNullable(payload[:end], at); at < 0 {
				return -1
			}
			canonical = canonical && c
		case u&1 == 0:
			at += n + int(u>>1)
		default:
			at += n
			canonical = canonical && u == 1 // −1
		}
	}
	r.expectedCount, r.appendIDCount, r.loneAt = 0, 0, 0
	headersAt := at
	switch {
	case at >= end:
		return -1
	case payload[at] == 0: // no headers
		at++
	default:
		var c bool
		at, c = rr.headers(payload[:end], at, r)
		canonical = canonical && c
		if c && at == end && r.expectedCount == 1 && payload[headersAt] == 1<<1 {
			r.loneAt = headersAt
		}
	}
	if at != end {
		return -1
	}
	if canonical {
		r.digest = digestOf(payload[content:end], headersAt-content)
	} else {
		rr.scratch, headersAt = appendCanonical(rr.scratch[:0], payload[content:end])
		r.digest = digestOf(rr.scratch, headersAt)
	}
	return end
}

// headers reads a record's headers and returns the position behind them or −1.
func (rr *recordReader) headers(b []byte, at int, r *record) (end int, canonical bool) {
	u, n := shortVarint(b, at)
	count, canonical := unzigzag(u), true
	if at += n; n == 0 {
		count, at, canonical = readVarint(b, at)
	}
	// A header takes two bytes at least.
	if at < 0 || count < 0 || int(count) > (len(b)-at)/2 {
		return -1, false
	}
	for range count {
		var key, value []byte
		u, n := shortVarint(b, at)
		if n != 0 && u&1 == 0 && int(u>>1) <= len(b)-at-n {
			key = b[at+n : at+n+int(u>>1)]
		} else {
			size, next, c := readVarint(b, at)
			if next < 0 || size < 0 || int(size) > len(b)-next {
				return -1, false
			}
			n, key, canonical = next-at, b[next:next+int(size)], canonical && c
		}
		at += n + len(key)
		u, n = shortVarint(b, at)
		if n != 0 && u&1 == 0 && int(u>>1) <= len(b)-at-n {
			at += n
			value = b[at : at+int(u>>1) : at+int(u>>1)]
			at += len(value)
		} else {
			var c bool
			if value, at, c = readNullable(b, at); at < 0 {
				return -1, false
			}
			canonical = canonical && c
		}
		// Not a switch on string(key): that one copies the key.
		if string(key) == rr.names.ExpectedOffset {
			r.expectedCount++
			r.expected = value
		} else if string(key) == rr.names.AppendID {
			r.appendIDCount++
			r.appendID = value
		}
	}
	return at, canonical
}

// appendCanonical writes a record's key, value and headers, known to be well
// formed, with the shortest varints and −1 for null, and says where the headers begin.
func appendCanonical(dst, content []byte) (canonical []byte, headersAt int) {
	at := 0
	copyNullable := func() {
		var field []byte
		field, at, _ = readNullable(content, at)
		if field == nil {
			dst = appendVarint(dst, -1)
			return
		}
		dst = append(appendVarint(dst, int32(len(field))), field...)
	}
	copyNullable()
	copyNullable()
	headersAt = len(dst)
	count, at2, _ := readVarint(content, at)
	at = at2
	dst = appendVarint(dst, count)
	for range count {
		copyNullable()
		copyNullable()
	}
	return dst, headersAt
}

// readNullable reads a length and as many bytes. Any negative length is null
// (nil), as it is to a broker; only −1 is canonical. A position of −1 in or
// out stands for malformed input, so that reads may be chained.
func readNullable(b []byte, at int) (field []byte, next int, canonical bool) {
	size, at, canonical := readVarint(b, at)
	switch {
	case at < 0 || int(size) > len(b)-at:
		return nil, -1, false
	case size < 0:
		return nil, at, canonical && size == -1
	}
	return b[at : at+int(size) : at+int(size)], at + int(size), canonical
}

// shortVarint reads a varint of one byte, or of two where one would not do; size
// is 0 if there is neither.
func shortVarint(b []byte, at int) (u uint32, size int) {
	if uint(at) < uint(len(b)) {
		low := uint32(b[at])
		if low < 0x80 {
			return low, 1
		}
		if uint(at+1) < uint(len(b)) {
			if high := uint32(b[at+1]); high-1 < 0x7f {
				return low&0x7f | high<<7, 2
			}
		}
	}
	return 0, 0
}

func unzigzag(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }

// readVarint reads a zigzag varint of 32 bits at b[at:]; next is −1 if there
// is none, or if at was. canonical means that no shorter encoding exists.
func readVarint(b []byte, at int) (v int32, next int, canonical bool) {
	if uint(at) < uint(len(b)) && b[at] < 0x80 {
		u := b[at]
		return int32(u>>1) ^ -int32(u&1), at + 1, true
	}
	u, next, canonical := readUvarlong(b, at)
	if u > math.MaxUint32 || next-at > 5 {
		return 0, -1, false
	}
	return int32(u>>1) ^ -int32(u&1), next, canonical
}

// readVarlong is readVarint for 64 bits.
func readVarlong(b []byte, at int) (v int64, next int) {
	u, next, _ := readUvarlong(b, at)
	return int64(u>>1) ^ -int64(u&1), next
}

func readUvarlong(b []byte, at int) (u uint64, next int, canonical bool) {
	if at < 0 {
		return 0, -1, false
	}
	for i := 0; at+i < len(b) && i < 10; i++ {
		c := b[at+i]
		if i == 9 && c > 1 {
			return 0, -1, false
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return u, at + i + 1, c != 0 || i == 0
		}
	}
	return 0, -1, false
}

// appendVarint appends a zigzag varint.
func appendVarint(dst []byte, v int32) []byte {
	u := uint32(v)<<1 ^ uint32(v>>31)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}
