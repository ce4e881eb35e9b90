package verify

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Places in the header of a record batch (magic 2).
const (
	batchHeaderBytes = 61
	batchLengthAt    = 8
	batchLengthFrom  = 12
	batchMagicAt     = 16
	batchCRCAt       = 17
	batchCRCFrom     = 21
	batchLastDeltaAt = 23
	batchFirstTimeAt = 27
	batchMaxTimeAt   = 35
	batchProducerAt  = 43
	batchEpochAt     = 51
	batchSequenceAt  = 53
	batchRecordsAt   = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// producer is an idempotent producer's state in one partition.
type producer struct {
	id       int64 // −1: none
	sequence int32 // of the next record
	proxy    int   // through which alone it is kept
}

// cut is some of an append's records, to be sent as one batch.
type cut struct {
	first, records uint16
}

// batchBuilder makes record batches in a buffer of its own.
type batchBuilder struct {
	run   string
	batch []byte
	one   []byte
	name  []byte
	text  []byte
}

// build makes the batch of some of an append's records, with timestamps from now
// on in ms since 1970. It is valid until the next call.
func (b *batchBuilder) build(id AppendID, op *Op, c cut, now int64, p producer) []byte {
	b.batch = append(b.batch[:0], make([]byte, batchHeaderBytes)...)
	for i := range c.records {
		b.record(id, op, c.first+i, int64(i))
	}
	h := b.batch
	binary.BigEndian.PutUint32(h[batchLengthAt:], uint32(len(h)-batchLengthFrom))
	binary.BigEndian.PutUint32(h[batchLengthFrom:], ^uint32(0)) // leader epoch
	h[batchMagicAt] = 2
	binary.BigEndian.PutUint32(h[batchLastDeltaAt:], uint32(c.records-1))
	binary.BigEndian.PutUint64(h[batchFirstTimeAt:], uint64(now))
	binary.BigEndian.PutUint64(h[batchMaxTimeAt:], uint64(now+int64(c.records)-1))
	epoch, sequence := int16(-1), int32(-1)
	if p.id >= 0 {
		epoch, sequence = 0, p.sequence+int32(c.first)
	}
	binary.BigEndian.PutUint64(h[batchProducerAt:], uint64(p.id))
	binary.BigEndian.PutUint16(h[batchEpochAt:], uint16(epoch))
	binary.BigEndian.PutUint32(h[batchSequenceAt:], uint32(sequence))
	binary.BigEndian.PutUint32(h[batchRecordsAt:], uint32(c.records))
	binary.BigEndian.PutUint32(h[batchCRCAt:], crc32.Checksum(h[batchCRCFrom:], castagnoli))
	return h
}

func (b *batchBuilder) record(id AppendID, op *Op, place uint16, delta int64) {
	b.name = appendName(b.name[:0], b.run, RecordID{id, place})
	r := append(b.one[:0], 0) // attributes
	r = binary.AppendVarint(r, delta)
	r = binary.AppendVarint(r, delta)
	r = binary.AppendVarint(r, -1) // no key
	r = appendBytes(r, b.name)
	headers := int64(1)
	if op.Habit.identified() {
		headers++
	}
	r = binary.AppendVarint(r, headers)
	r = appendBytes(r, appender.HeaderExpectedOffset)
	if op.Expected == NoOffset {
		r = appendBytes(r, "end")
	} else {
		b.text = strconv.AppendInt(b.text[:0], int64(op.Expected)+int64(place), 10)
		r = appendBytes(r, b.text)
	}
	if op.Habit.identified() {
		r = appendBytes(r, appender.HeaderAppendID)
		r = appendBytes(r, b.name)
	}
	b.one = r
	b.batch = append(binary.AppendVarint(b.batch, int64(len(r))), r...)
}

func appendBytes[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}
