package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// markBytes is the length of a mark at the head of a value.
	markBytes = 16
	// batchHeadBytes is what lies before the records of a batch, and
	// batchLengthFrom how much of it the batch's own length does not count.
	batchHeadBytes, batchLengthFrom = 61, 12
	// crcAt and crcFrom are where a batch has its checksum, and from where on it
	// counts; the two timestamps of a batch begin at timestampsAt.
	crcAt, crcFrom, timestampsAt = 17, 21, 27
)

// offset is a place in a partition's log.
type offset int64

// mark tells a record from all others of a run: the first bytes of its value.
type mark struct {
	writer uint64
	count  uint64
}

// markOf reads the mark of a value; false: it has none.
func markOf(value []byte) (mark, bool) {
	if len(value) < markBytes {
		return mark{}, false
	}
	return mark{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}, true
}

// batchShape is what batches of a measure look like.
type batchShape struct {
	records int
	// valueBytes is the length of each value, with its mark.
	valueBytes int
	// atEnd: each record says "end" in place of an offset.
	atEnd bool
}

// appendFrame is a Produce request of one batch for one partition. It is encoded
// once: conditions, marks, timestamps and the checksum are written in place, so
// that a writer costs next to nothing. Without a rule nobody looks at the
// conditions, so that unconditional writers send the very same bytes.
type appendFrame struct {
	bytes   []byte
	batch   []byte   // in bytes
	holders [][]byte // in batch: the offset of each record's condition; empty with batchShape.atEnd
	marks   [][]byte // in batch
	now     int64    // the batch's timestamps, in ms
}

// newAppendFrame encodes a request for a partition.
func newAppendFrame(topic string, partition int32, shape batchShape) *appendFrame {
	records := conditionalRecords(shape)
	f := &appendFrame{}
	f.bytes = produceRequest(topic, partition, recordBatch(records, shape.records, 0))
	at := bytes.LastIndex(f.bytes, records)
	f.batch = f.bytes[at-batchHeadBytes : at+len(records)]
	f.holders, f.marks = patchable(f.batch, shape)
	return f
}

// expect writes what the batch expects, and the mark of its first record; those
// behind it count on.
func (f *appendFrame) expect(at offset, m mark) {
	patch(f.holders, f.marks, at, m)
	if now := time.Now().UnixMilli(); now != f.now {
		f.now = now
		binary.BigEndian.PutUint64(f.batch[timestampsAt:], uint64(now))
		binary.BigEndian.PutUint64(f.batch[timestampsAt+8:], uint64(now))
	}
	seal(f.batch)
}

// records is how many the batch has.
func (f *appendFrame) records() int { return len(f.marks) }

// patch writes conditions and marks into the places for them.
func patch(holders, marks [][]byte, at offset, m mark) {
	for i, h := range holders {
		putDecimal(h, int64(at)+int64(i))
	}
	for i, p := range marks {
		binary.BigEndian.PutUint64(p, m.writer)
		binary.BigEndian.PutUint64(p[8:], m.count+uint64(i))
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal writes a batch's checksum.
func seal(batch []byte) {
	binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[crcFrom:], castagnoli))
}

var (
	conditionHolder = bytes.Repeat([]byte{'9'}, conditionDigits)
	markHolder      = bytes.Repeat([]byte{0xfe}, markBytes)
)

// conditionalRecords encodes the records of a batch with holders for what changes.
// Values are text that compresses about as JSON does.
func conditionalRecords(shape batchShape) []byte {
	var encoded []byte
	for i := range shape.records {
		value := append([]byte(nil), markHolder...)
		for n := i * 7; len(value) < shape.valueBytes; n++ {
			value = fmt.Appendf(value, `{"account":%d,"amount":%d},`, 1000+n%977, n*n%10007)
		}
		value = value[:max(shape.valueBytes, markBytes)]
		condition := conditionHolder
		if shape.atEnd {
			condition = []byte("end")
		}
		record := kmsg.Record{
			OffsetDelta: int32(i), Value: value,
			Headers: []kmsg.Header{{Key: conditionHeader, Value: condition}},
		}
		// The length counts what follows it; 0 takes one byte.
		record.Length = int32(len(record.AppendTo(nil)) - 1)
		encoded = record.AppendTo(encoded)
	}
	return encoded
}

// patchable finds the holders in encoded records.
func patchable(records []byte, shape batchShape) (holders, marks [][]byte) {
	rest := records
	for range shape.records {
		at := bytes.Index(rest, markHolder)
		marks = append(marks, rest[at:at+markBytes])
		rest = rest[at+shape.valueBytes:]
		if shape.atEnd {
			continue
		}
		at = bytes.Index(rest, conditionHolder)
		holders = append(holders, rest[at:at+conditionDigits])
		rest = rest[at+conditionDigits:]
	}
	return holders, marks
}

// recordBatch encodes a batch around its encoded, perhaps compressed, records.
func recordBatch(records []byte, count int, codec int16) []byte {
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, PartitionLeaderEpoch: -1, Attributes: codec, FirstTimestamp: now, MaxTimestamp: now,
		LastOffsetDelta: int32(count - 1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(count), Records: records, Length: int32(batchHeadBytes - batchLengthFrom + len(records)),
	}
	encoded := batch.AppendTo(nil)
	seal(encoded)
	return encoded
}

// produceRequest encodes a request for one batch, with acks of all.
func produceRequest(topic string, partition int32, batch []byte) []byte {
	request := kmsg.NewPtrProduceRequest()
	request.Version = produceVersion
	request.Acks, request.TimeoutMillis = -1, int32(produceTimeout.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 0)
}
