package wire

import (
	"hash/maphash"
	"math"
)

// sequel is what the headers of a batch's next record look like, if it is
// conditional as nearly all are: with one header, "end" or an offset in decimal that is
// one more than that of the record before. To compare with that is less work than to
// read.
type sequel struct {
	headers []byte // as they are encoded; empty: nothing is foretold
	digits  int    // the last of headers; 0: it says "end"
	// word is the last of headers, little-endian, in the place of their last bytes: a
	// byte that was just written would hold up who reads the word around it.
	word  uint64
	front uint64 // what all of headers but the word adds to a record's digest
}

// begin foretells from a record's headers, which are well formed and canonical, and end
// with the value of the only one. Where counting would take another
// digit, or the largest offset may be near, it foretells nothing.
func (s *sequel) begin(headers, value []byte) {
	s.forget()
	if !isLoneHeader(headers) || len(value) == 0 || len(value) >= 19 {
		return
	}
	s.digits = len(value)
	if string(value) == atEndValue {
		s.digits = 0
	} else {
		for _, c := range value {
			if c < '0' || c > '9' {
				return
			}
		}
	}
	s.headers = append(s.headers, headers...)
	s.front = frontDigest(headers)
	s.word = lastWord(headers)
	s.advance()
}

// advance foretells the record after the one that was foretold.
func (s *sequel) advance() {
	const last = 8 * (digestWord - 1)
	switch {
	case s.digits == 0:
	case s.word>>last != '9':
		s.word += 1 << last
	default:
		s.carry()
	}
}

// carry is advance where the last digit is not the only one that changes.
func (s *sequel) carry() {
	word := s.word
	for i := range min(s.digits, digestWord) {
		at := uint(digestWord-1-i) * 8
		if byte(word>>at) != '9' {
			s.word = word + 1<<at
			return
		}
		word -= 9 << at
	}
	front := len(s.headers) - digestWord
	for i := front - 1; i >= len(s.headers)-s.digits; i-- {
		if s.headers[i] != '9' {
			s.headers[i]++
			s.word, s.front = word, frontDigest(s.headers)
			return
		}
		s.headers[i] = '0'
	}
	s.forget()
}

func (s *sequel) forget() { s.headers = s.headers[:0] }

// isForetold reports whether something is foretold.
func (s *sequel) isForetold() bool { return len(s.headers) > 0 }

// foretold are records that were read as foretold.
type foretold struct {
	records int
	// oldest and newest are the least and the largest timestamp deltas.
	oldest, newest int32
}

// shortDelta is more than any timestamp delta of records that are foretold.
const shortDelta = 1 << 13

// roomForShort reports whether no such delta overflows.
func roomForShort(firstTimestamp int64) bool {
	return firstTimestamp >= math.MinInt64+shortDelta && firstTimestamp <= math.MaxInt64-shortDelta
}

// read reads records from payload[at:] on, of which the first is record i of the batch,
// for as long as their headers are as foretold and their numbers short: what
// recordReader.next would read, in fewer steps. It fills in their digests, and returns
// where the record begins that is to be read by next.
func (s *sequel) read(payload []byte, at, i int, digests []uint64) (f foretold, next int) {
	first := i
	f.oldest, f.newest = math.MaxInt32, math.MinInt32
	last := uint32(math.MaxUint32) // no timestamp is this
	for ; i < len(digests) && s.isForetold(); i++ {
		u, n := shortVarint(payload, at)
		begin := at + n
		end := begin + int(u>>1)
		if n == 0 || u&1 != 0 || end > len(payload) {
			break
		}
		record := payload[begin:end]
		timestamp, n := shortVarint(record, 1) // behind the attributes, of which none is defined
		if n == 0 {
			break
		}
		content := 1 + n
		delta, n := shortVarint(record, content)
		if n == 0 || delta != uint32(i)<<1 {
			break
		}
		content += n
		headersAt := content
		for range 2 { // key and value
			u, n := shortVarint(record, headersAt)
			switch {
			case n != 0 && u&1 == 0:
				headersAt += int(u >> 1)
			case u != 1: // −1, null
				n = len(record) // no further
			}
			headersAt += n
		}
		if headersAt+len(s.headers) != len(record) {
			break
		}
		front := len(record) - digestWord
		if lastWord(record) != s.word || string(record[headersAt:front]) != string(s.headers[:len(s.headers)-digestWord]) {
			break
		}
		hash := uint64(0)
		if keyAndValue := record[content:headersAt]; len(keyAndValue) <= digestedInPieces {
			hash = maphash.Bytes(digestSeeds[0], keyAndValue) // as hashOf does, without the call
		} else {
			hash = hashOf(keyAndValue, 0)
		}
		digests[i] = hash + s.front + s.word*digestFactor
		if timestamp != last { // few differ
			last = timestamp
			f.oldest, f.newest = min(f.oldest, unzigzag(timestamp)), max(f.newest, unzigzag(timestamp))
		}
		at = end
		s.advance()
	}
	f.records = i - first
	return f, at
}
