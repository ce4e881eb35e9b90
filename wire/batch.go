package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Offsets of the fields in a record batch of magic 2 (KIP-98). Base offset,
// length and leader epoch stand outside of the checksum.
const (
	batchLengthPos        = 8
	batchLeaderEpochPos   = 12
	batchMagicPos         = 16
	batchCRCPos           = 17
	batchAttributesPos    = 21
	batchLastDeltaPos     = 23
	batchFirstTimePos     = 27
	batchMaxTimePos       = 35
	batchProducerIDPos    = 43
	batchProducerEpochPos = 51
	batchBaseSequencePos  = 53
	batchNumRecordsPos    = 57
	batchHeaderSize       = 61

	// batchLengthFrom is where the bytes begin that Length counts.
	batchLengthFrom = 12
	batchMagic      = 2
)

// Bits of BatchHeader.Attributes.
const (
	attributeCodec         = 0x07
	attributeLogAppendTime = 0x08
	attributeTransactional = 0x10
	attributeControl       = 0x20
)

// BatchHeader holds the fields of a record batch's header (magic 2).
type BatchHeader struct {
	// BaseOffset is the offset of the first record, 0 as clients send it.
	BaseOffset int64
	// Length in bytes from LeaderEpoch to the batch's end: 12 less than the
	// whole batch.
	Length int32
	// LeaderEpoch of the partition when the broker wrote the batch.
	LeaderEpoch int32
	// Magic is the format, always 2 here.
	Magic int8
	// CRC is the CRC-32C from Attributes to the batch's end.
	CRC uint32
	// Attributes: see Codec, LogAppendTime, Transactional, Control.
	Attributes int16
	// LastOffsetDelta is the last record's offset less BaseOffset.
	LastOffsetDelta int32
	// FirstTimestamp is what the records' timestamp deltas count from, in
	// milliseconds since 1970.
	FirstTimestamp int64
	// MaxTimestamp is the writer's word for the latest record timestamp, in
	// milliseconds since 1970.
	MaxTimestamp int64
	// ProducerID is −1 unless the producer is idempotent.
	ProducerID int64
	// ProducerEpoch is −1 unless the producer is idempotent.
	ProducerEpoch int16
	// BaseSequence is the first record's sequence, −1 unless the producer is
	// idempotent.
	BaseSequence int32
	// NumRecords is the number of records that follow.
	NumRecords int32
}

// Codec is the compression codec of the records, as Decompress takes it.
func (h BatchHeader) Codec() int8 { return int8(h.Attributes & attributeCodec) }

// LogAppendTime reports that MaxTimestamp, set by the broker, is every
// record's timestamp.
func (h BatchHeader) LogAppendTime() bool { return h.Attributes&attributeLogAppendTime != 0 }

// Transactional reports that the batch belongs to a transaction.
func (h BatchHeader) Transactional() bool { return h.Attributes&attributeTransactional != 0 }

// Control reports a batch of control records (transaction markers), which
// only brokers write.
func (h BatchHeader) Control() bool { return h.Attributes&attributeControl != 0 }

// ParseBatch checks a partition's records as a client may send them from
// Produce version 3 on: exactly one whole batch of magic 2, its checksum
// right, base offset 0, at least one record, as many offsets as records, and
// no control batch. The records themselves are Inspect's concern. Errors are
// ErrOldFormat (magic 0 and 1), ErrBadCRC, ErrControlBatch and, for all else,
// ErrCorrupt, wrapped or not.
func ParseBatch(records []byte) (BatchHeader, error) { return parseBatch(records, nil) }

// parseBatch is ParseBatch; sum is the checksum of the batch's bytes, if it is known.
func parseBatch(records []byte, sum *uint32) (BatchHeader, error) {
	if len(records) <= batchMagicPos {
		return BatchHeader{}, fmt.Errorf("batch of %d bytes: %w", len(records), ErrCorrupt)
	}
	if err := checkMagic(records); err != nil {
		return BatchHeader{}, err
	}
	if len(records) < batchHeaderSize {
		return BatchHeader{}, fmt.Errorf("batch of %d bytes: %w", len(records), ErrCorrupt)
	}
	h := readBatchHeader(records)
	if int64(h.Length) != int64(len(records)-batchLengthFrom) {
		return BatchHeader{}, fmt.Errorf("batch length %d of %d bytes: %w", h.Length, len(records), ErrCorrupt)
	}
	if sum == nil {
		computed := batchChecksum(records)
		sum = &computed
	}
	if h.CRC != *sum {
		return BatchHeader{}, ErrBadCRC
	}
	switch {
	case h.Control():
		return BatchHeader{}, ErrControlBatch
	case h.BaseOffset != 0:
		return BatchHeader{}, fmt.Errorf("base offset %d from a client: %w", h.BaseOffset, ErrCorrupt)
	case h.NumRecords < 1:
		return BatchHeader{}, fmt.Errorf("batch of %d records: %w", h.NumRecords, ErrCorrupt)
	case h.LastOffsetDelta != h.NumRecords-1:
		return BatchHeader{}, fmt.Errorf("batch of %d records with last offset delta %d: %w", h.NumRecords, h.LastOffsetDelta, ErrCorrupt)
	}
	return h, nil
}

// ParseStoredBatch reads the batch at the start of b as brokers keep and
// serve it: any base offset, control batches too, and fewer records than
// offsets (even none) where the log was compacted. size is the number of
// bytes to the next batch; it is set with ErrOldFormat and ErrBadCRC as well,
// so that a caller may step over the batch. ErrShort says that b ends before
// the batch does, ErrCorrupt that its header makes no sense.
func ParseStoredBatch(b []byte) (h BatchHeader, size int, err error) {
	if len(b) <= batchMagicPos {
		return BatchHeader{}, 0, ErrShort
	}
	length := int32(binary.BigEndian.Uint32(b[batchLengthPos:]))
	if length <= batchMagicPos-batchLengthFrom {
		return BatchHeader{}, 0, fmt.Errorf("batch length %d: %w", length, ErrCorrupt)
	}
	if int64(length) > int64(len(b)-batchLengthFrom) {
		return BatchHeader{}, 0, ErrShort
	}
	size = batchLengthFrom + int(length)
	if err := checkMagic(b); err != nil {
		return BatchHeader{}, size, err
	}
	if size < batchHeaderSize {
		return BatchHeader{}, 0, fmt.Errorf("batch length %d: %w", length, ErrCorrupt)
	}
	h = readBatchHeader(b)
	if h.CRC != batchChecksum(b[:size]) {
		return BatchHeader{}, size, ErrBadCRC
	}
	if h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.NumRecords < 0 ||
		h.BaseOffset > math.MaxInt64-1-int64(h.LastOffsetDelta) ||
		int64(h.NumRecords) > int64(h.LastOffsetDelta)+1 {
		return BatchHeader{}, 0, fmt.Errorf("batch at offset %d, last offset delta %d, %d records: %w",
			h.BaseOffset, h.LastOffsetDelta, h.NumRecords, ErrCorrupt)
	}
	return h, size, nil
}

// stampedAnew is the size, in bytes, up to which a second pass over a batch costs less
// than to derive its checksum.
const stampedAnew = 2048

// Stamp makes a batch that ParseBatch has accepted the producer's with the
// given id, epoch and base sequence, and normalises what a broker would
// otherwise rewrite: the max timestamp (milliseconds; the caller has it from
// Inspect), the timestamp type and unknown attributes. Only the codec stays
// of the attributes: the caller has refused transactional batches. Records are
// untouched.
//
// The checksum is made right again. That of a large batch is derived from the
// one it had, so where its records were damaged since ParseBatch has verified them, a
// broker will still see it. A batch that was never sealed has none to derive from; see
// Seal.
func Stamp(batch []byte, producerID int64, epoch int16, baseSequence int32, maxTimestamp int64) {
	large := len(batch) > stampedAnew
	before := uint32(0)
	if large {
		before = frontChecksum(batch)
	}
	_ = batch[batchHeaderSize-1]
	batch[batchAttributesPos] = 0
	batch[batchAttributesPos+1] &= attributeCodec
	binary.BigEndian.PutUint64(batch[batchMaxTimePos:], uint64(maxTimestamp))
	binary.BigEndian.PutUint64(batch[batchProducerIDPos:], uint64(producerID))
	binary.BigEndian.PutUint16(batch[batchProducerEpochPos:], uint16(epoch))
	binary.BigEndian.PutUint32(batch[batchBaseSequencePos:], uint32(baseSequence))
	if !large {
		Seal(batch)
		return
	}
	checksum := binary.BigEndian.Uint32(batch[batchCRCPos:])
	checksum = changedChecksum(checksum, before, frontChecksum(batch), len(batch)-batchHeaderSize)
	binary.BigEndian.PutUint32(batch[batchCRCPos:], checksum)
}

// Seal gives a batch of magic 2, of 61 bytes at least, the checksum of its bytes.
func Seal(batch []byte) {
	_ = batch[batchHeaderSize-1]
	binary.BigEndian.PutUint32(batch[batchCRCPos:], batchChecksum(batch))
}

// checkMagic wants at least 17 bytes; the byte of the magic is at the same
// place in all formats.
func checkMagic(b []byte) error {
	switch b[batchMagicPos] {
	case batchMagic:
		return nil
	case 0, 1:
		return ErrOldFormat
	default:
		return fmt.Errorf("magic %d: %w", int8(b[batchMagicPos]), ErrCorrupt)
	}
}

// readBatchHeader wants at least batchHeaderSize bytes.
func readBatchHeader(b []byte) BatchHeader {
	_ = b[batchHeaderSize-1]
	be := binary.BigEndian
	return BatchHeader{
		BaseOffset:      int64(be.Uint64(b)),
		Length:          int32(be.Uint32(b[batchLengthPos:])),
		LeaderEpoch:     int32(be.Uint32(b[batchLeaderEpochPos:])),
		Magic:           int8(b[batchMagicPos]),
		CRC:             be.Uint32(b[batchCRCPos:]),
		Attributes:      int16(be.Uint16(b[batchAttributesPos:])),
		LastOffsetDelta: int32(be.Uint32(b[batchLastDeltaPos:])),
		FirstTimestamp:  int64(be.Uint64(b[batchFirstTimePos:])),
		MaxTimestamp:    int64(be.Uint64(b[batchMaxTimePos:])),
		ProducerID:      int64(be.Uint64(b[batchProducerIDPos:])),
		ProducerEpoch:   int16(be.Uint16(b[batchProducerEpochPos:])),
		BaseSequence:    int32(be.Uint32(b[batchBaseSequencePos:])),
		NumRecords:      int32(be.Uint32(b[batchNumRecordsPos:])),
	}
}
