package wire

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"unsafe"
)

// digestSeeds make digests comparable within the process, and unpredictable
// for whoever writes the records.
var digestSeeds = [4]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed()}

// digestFactor is odd, so that no two words have the same product with it.
var digestFactor = rand.Uint64() | 1

// digestedInPieces is the size in bytes from which on maphash.Bytes, which hashes
// pieces of 128 bytes one after the other, takes longer than to hash all at once,
// twice. Measured on AMD EPYC with AES instructions, once in pieces and twice at once:
// 14 and 17 ns of 256 bytes, 34 and 23 ns of 512, 81 and 45 ns of 1,100, 4.7 and 2.2 µs
// of 64 KiB.
const digestedInPieces = 256

// digestOf is a hash of a record's key, value and headers as they are encoded in the
// shortest way, of which the headers begin at headersAt: of all but its place and time.
// That of another record is the same once in 2⁶⁴ times.
//
// A lone header, which is what most conditional records have, is hashed apart from key
// and value, and its last word, in which an offset counts, is multiplied only: so that
// from one record to the next there is one product to make anew. Records that differ
// in this word alone never have the same digest, since the factor is odd; if they
// differ elsewhere their hashes do, of which the sum is as unlikely to be the same.
func digestOf(content []byte, headersAt int) uint64 {
	headers := content[headersAt:]
	switch {
	case isLoneHeader(headers):
		return hashOf(content[:headersAt], 0) + frontDigest(headers) + lastWord(headers)*digestFactor
	case len(content) <= digestedInPieces:
		return maphash.Bytes(digestSeeds[0], content) // as hashOf does, without the call
	}
	return hashOf(content, 0)
}

// digestWord is how much at the end of a lone header is multiplied.
const digestWord = 8

// isLoneHeader reports whether encoded headers are one, and long enough to have a word
// of its own; the other bytes are the number of headers, at least.
func isLoneHeader(headers []byte) bool { return headers[0] == 1<<1 && len(headers) > digestWord }

// frontDigest is what a lone header but for its last word adds to a record's digest.
func frontDigest(headers []byte) uint64 { return hashOf(headers[:len(headers)-digestWord], 2) }

// lastWord is the word that a lone header ends with.
func lastWord(headers []byte) uint64 {
	return binary.LittleEndian.Uint64(headers[len(headers)-digestWord:])
}

// hashOf is a hash of b, by one or two of the seeds from the one given on.
//
// What is large is hashed with both seeds. Hashed at once, a difference between two
// records goes through two rounds of AES only before the block 128 bytes on may undo it.
// So whoever knows what another writer is about to write could make a record with the
// same hash far more often than once in 2⁶⁴ tries; with a second seed the chance is
// the square of that.
func hashOf(b []byte, seed int) uint64 {
	if len(b) <= digestedInPieces {
		return maphash.Bytes(digestSeeds[seed], b)
	}
	// Comparable alone hashes a string at once, and a copy would cost more than the
	// hash. It does not keep the string, and nobody writes to b meanwhile.
	s := unsafe.String(unsafe.SliceData(b), len(b))
	return maphash.Comparable(digestSeeds[seed], s) ^ maphash.Comparable(digestSeeds[seed+1], s)
}
