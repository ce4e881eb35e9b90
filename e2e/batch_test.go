package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Positions in a record batch of magic 2 (Kafka's protocol guide, "Record Batch").
const (
	batchLengthAt     = 8
	batchCRCAt        = 17
	batchAttributesAt = 21
	batchCountAt      = 57
	batchHeaderSize   = 61
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawRecord is a record that a test writes.
type rawRecord struct {
	key     string // empty: none
	value   string
	headers []rawHeader
}

type rawHeader struct{ name, value string }

// conditional is a record that must get one offset.
func conditional(expected int64, value string) rawRecord {
	return rawRecord{value: value, headers: []rawHeader{{"expected-offset", strconv.FormatInt(expected, 10)}}}
}

// keyed gives a record a key.
func keyed(key string, record rawRecord) rawRecord {
	record.key = key
	return record
}

// identified gives a record an append-id.
func identified(record rawRecord, id string) rawRecord {
	record.headers = append(record.headers, rawHeader{"append-id", id})
	return record
}

// codecs are numbered as in a batch's attributes.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// compressedBatch is encodeBatch with a codec.
func compressedBatch(codec int16, records ...rawRecord) []byte {
	var encoded []byte
	for i, record := range records {
		encoded = appendRecord(encoded, i, record)
	}
	var packed bytes.Buffer
	var writer io.WriteCloser
	switch codecs[codec] {
	case "none":
		return sealBatch(codec, len(records), encoded)
	case "gzip":
		writer = gzip.NewWriter(&packed)
	case "snappy":
		return sealBatch(codec, len(records), snappy.Encode(nil, encoded))
	case "lz4":
		writer = lz4.NewWriter(&packed)
	case "zstd":
		writer, _ = zstd.NewWriter(&packed) // fails for bad options only
	}
	_, _ = writer.Write(encoded) // into memory
	_ = writer.Close()
	return sealBatch(codec, len(records), packed.Bytes())
}

// encodeBatch gives an uncompressed batch of a producer without an id.
func encodeBatch(records ...rawRecord) []byte { return compressedBatch(0, records...) }

// sealBatch puts a header before records that are encoded, and compressed if
// codec says so.
func sealBatch(codec int16, count int, records []byte) []byte {
	now := time.Now().UnixMilli()
	batch := make([]byte, batchHeaderSize, batchHeaderSize+len(records))
	batch[16] = 2
	binary.BigEndian.PutUint16(batch[batchAttributesAt:], uint16(codec))
	binary.BigEndian.PutUint32(batch[23:], uint32(count-1))
	binary.BigEndian.PutUint64(batch[27:], uint64(now))
	binary.BigEndian.PutUint64(batch[35:], uint64(now))
	for i := 43; i < batchCountAt; i++ {
		batch[i] = 0xff // producer id, epoch and sequence: none
	}
	binary.BigEndian.PutUint32(batch[batchCountAt:], uint32(count))
	batch = append(batch, records...)
	binary.BigEndian.PutUint32(batch[batchLengthAt:], uint32(len(batch)-batchLengthAt-4))
	return setCRC(batch)
}

// setTimestamp makes all records of a batch of one moment, in milliseconds.
func setTimestamp(batch []byte, at int64) []byte {
	binary.BigEndian.PutUint64(batch[27:], uint64(at))
	binary.BigEndian.PutUint64(batch[35:], uint64(at))
	return setCRC(batch)
}

// setCRC makes the checksum fit what a test changed.
func setCRC(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[batchCRCAt:], crc32.Checksum(batch[batchAttributesAt:], castagnoli))
	return batch
}

func appendRecord(to []byte, index int, record rawRecord) []byte {
	body := []byte{0}                              // attributes
	body = binary.AppendVarint(body, 0)            // timestamp delta
	body = binary.AppendVarint(body, int64(index)) // offset delta
	if record.key == "" {
		body = binary.AppendVarint(body, -1)
	} else {
		body = appendText(body, record.key)
	}
	body = appendText(body, record.value)
	body = binary.AppendVarint(body, int64(len(record.headers)))
	for _, header := range record.headers {
		body = appendText(body, header.name)
		body = appendText(body, header.value)
	}
	to = binary.AppendVarint(to, int64(len(body)))
	return append(to, body...)
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendVarint(to, int64(len(text))), text...)
}

// TestRawBatchesAreWellFormed decodes with another implementation.
func TestRawBatchesAreWellFormed(t *testing.T) {
	var batch kmsg.RecordBatch
	encoded := encodeBatch(conditional(41, "a"), conditional(42, "b"))
	if err := batch.ReadFrom(encoded); err != nil {
		t.Fatal(err)
	}
	if got, want := batch.NumRecords, int32(2); got != want {
		t.Errorf("records: got %d, want %d", got, want)
	}
	if got, want := uint32(batch.CRC), crc32.Checksum(encoded[batchAttributesAt:], castagnoli); got != want {
		t.Errorf("CRC: got %x, want %x", got, want)
	}
	rest := batch.Records
	for i, want := range []string{"41", "42"} {
		var record kmsg.Record
		size, n := binary.Varint(rest)
		if err := record.ReadFrom(rest[:n+int(size)]); err != nil {
			t.Fatal(err)
		}
		if got := string(record.Headers[0].Value); got != want || record.OffsetDelta != int32(i) {
			t.Errorf("record %d: got delta %d, expected-offset %s, want %s", i, record.OffsetDelta, got, want)
		}
		rest = rest[n+int(size):]
	}
}
