package appender

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names of the record headers that make an append conditional.
const (
	HeaderExpectedOffset = "expected-offset"
	HeaderAppendID       = "append-id"
)

// Header is a record header of the caller's.
type Header struct {
	Name  string
	Value []byte
}

// Record is what to append.
type Record struct {
	Topic     string
	Partition Partition
	// Expected is the offset this record must get; not negative.
	Expected Offset
	// AtEnd: the record may get any offset, and Expected is ignored.
	AtEnd bool
	// ExpectedOffsetHeader and AppendIDHeader name the headers of the condition; empty:
	// HeaderExpectedOffset and HeaderAppendID.
	ExpectedOffsetHeader, AppendIDHeader string
	// Encoding is how Expected is written.
	Encoding Encoding
	// AppendID is unique to this append and makes it recognisable for ever;
	// not empty.
	AppendID []byte
	// Key may be nil: a null key.
	Key []byte
	// Value may be nil: a null value.
	Value []byte
	// Headers follow the two of the condition and may not have their names.
	Headers []Header
	// Timestamp is the record's, in ms since 1970; not negative.
	Timestamp int64
}

// Encoding is how the value of the header with the expected offset is written, as a rule
// has it. "end" is the same in all.
type Encoding string

const (
	// Decimal is ASCII digits; so is the zero value.
	Decimal Encoding = "decimal"
	// Int64 is 8 bytes, big-endian.
	Int64 Encoding = "int64"
)

// headers are the names of the condition's two.
func (r *Record) headers() (expectedOffset, appendID string) {
	return cmp.Or(r.ExpectedOffsetHeader, HeaderExpectedOffset), cmp.Or(r.AppendIDHeader, HeaderAppendID)
}

// ErrBadRecord means that a Record breaks what its fields say.
var ErrBadRecord = errors.New("bad record")

func (r *Record) validate() error {
	switch {
	case r.Topic == "":
		return fmt.Errorf("%w: no topic", ErrBadRecord)
	case r.Partition < 0:
		return fmt.Errorf("%w: partition %d", ErrBadRecord, r.Partition)
	case r.Expected < 0 && !r.AtEnd:
		return fmt.Errorf("%w: expected offset %d", ErrBadRecord, r.Expected)
	case len(r.AppendID) == 0:
		return fmt.Errorf("%w: no append-id", ErrBadRecord)
	case r.Timestamp < 0:
		return fmt.Errorf("%w: timestamp %d", ErrBadRecord, r.Timestamp)
	}
	expectedOffset, appendID := r.headers()
	for _, h := range r.Headers {
		if h.Name == expectedOffset || h.Name == appendID {
			return fmt.Errorf("%w: header %s is set by the append itself", ErrBadRecord, h.Name)
		}
	}
	return nil
}

const (
	crcCovers    = 21 // the batch's CRC covers the bytes from attributes on
	crcAt        = 17
	lengthCovers = 12 // and its length those after the length field
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// condition is the value of the header with the expected offset.
func (r *Record) condition() []byte {
	if r.AtEnd {
		return []byte("end")
	}
	if r.Encoding == Int64 {
		return binary.BigEndian.AppendUint64(nil, uint64(r.Expected))
	}
	return strconv.AppendInt(nil, int64(r.Expected), 10)
}

// appendBatch appends r as a record batch (magic 2) of one record, without
// compression and without a producer id.
func (r *Record) appendBatch(dst []byte) []byte {
	expectedOffset, appendID := r.headers()
	rec := kmsg.Record{
		Key:   r.Key,
		Value: r.Value,
		Headers: []kmsg.Header{
			{Key: expectedOffset, Value: r.condition()},
			{Key: appendID, Value: r.AppendID},
		},
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kmsg.Header{Key: h.Name, Value: h.Value})
	}
	// The length counts what follows it; encoded as 0 it takes one byte.
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)

	batch := kmsg.NewRecordBatch()
	batch.PartitionLeaderEpoch = -1
	batch.Magic = 2
	batch.FirstTimestamp, batch.MaxTimestamp = r.Timestamp, r.Timestamp
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = -1, -1, -1
	batch.NumRecords = 1
	batch.Records = rec.AppendTo(nil)

	start := len(dst)
	dst = batch.AppendTo(dst)
	b := dst[start:]
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-lengthCovers))
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[crcCovers:], castagnoli))
	return dst
}
