package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const produceVersion = 9

// writer sends Produce requests of one batch each over one connection and
// never sends one again.
type writer struct {
	conn   net.Conn
	target target
	next   [partitions]int64 // of conditional targets
	value  []byte
	frames [partitions]frame
	answer []byte
}

func newWriter(tb testing.TB, t target, batchBytes int) *writer {
	tb.Helper()
	conn, err := net.Dial("tcp", t.address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	w := &writer{conn: conn, target: t, value: make([]byte, batchBytes-100)}
	for i := range w.value {
		w.value[i] = byte(i * 7)
	}
	if t.conditional {
		w.findEnds(tb)
	}
	return w
}

// findEnds asks for the next offset of each partition.
func (w *writer) findEnds(tb testing.TB) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.Version = 5
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = w.target.topic
	for p := range int32(partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	if _, err := w.conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 0)); err != nil {
		tb.Fatal(err)
	}
	response := kmsg.NewPtrListOffsetsResponse()
	response.Version = 5
	if err := response.ReadFrom(w.receive(tb)[4:]); err != nil {
		tb.Fatal(err)
	}
	for _, p := range response.Topics[0].Partitions {
		w.next[p.Partition] = p.Offset
	}
}

// send writes one batch to a partition: a frame made once, in which only the
// condition and the checksum change.
func (w *writer) send(tb testing.TB, partition int32) {
	f := &w.frames[partition]
	if f.bytes == nil {
		*f = w.frame(partition)
	}
	if w.target.conditional {
		copy(f.condition, fmt.Sprintf("%0*d", conditionDigits, w.next[partition]))
		binary.BigEndian.PutUint32(f.batch[17:], crc32.Checksum(f.batch[21:], castagnoli))
	}
	if _, err := w.conn.Write(f.bytes); err != nil {
		tb.Fatal(err)
	}
	w.next[partition]++
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// conditionDigits is the width of an expected-offset with leading zeros.
const conditionDigits = 19

// frame is a Produce request of one batch of one record.
type frame struct {
	bytes     []byte
	batch     []byte // in bytes
	condition []byte // in batch; nil without
}

func (w *writer) frame(partition int32) frame {
	record := kmsg.Record{Value: w.value}
	placeholder := bytes.Repeat([]byte{'9'}, conditionDigits)
	if w.target.conditional {
		record.Headers = []kmsg.Header{{Key: "expected-offset", Value: placeholder}}
	}
	// The length is a varint that counts what follows it.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, PartitionLeaderEpoch: -1, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil),
	}
	batch.Length = int32(len(batch.AppendTo(nil)) - 12)
	encoded := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[17:], crc32.Checksum(encoded[21:], castagnoli))

	request := kmsg.NewPtrProduceRequest()
	request.Version = produceVersion
	request.Acks, request.TimeoutMillis = -1, 10_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = w.target.topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, encoded
	topic.Partitions = append(topic.Partitions, p)
	request.Topics = append(request.Topics, topic)
	f := frame{bytes: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 0)}
	at := bytes.Index(f.bytes, encoded)
	f.batch = f.bytes[at : at+len(encoded)]
	if at := bytes.Index(f.batch, placeholder); at >= 0 {
		f.condition = f.batch[at : at+conditionDigits]
	}
	return f
}

// receive reads one answer, without its length.
func (w *writer) receive(tb testing.TB) []byte {
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		tb.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(w.answer) < n {
		w.answer = make([]byte, n)
	}
	w.answer = w.answer[:n]
	if _, err := io.ReadFull(w.conn, w.answer); err != nil {
		tb.Fatal(err)
	}
	return w.answer
}

// acknowledged reads one answer and expects success.
func (w *writer) acknowledged(tb testing.TB) {
	response := kmsg.NewPtrProduceResponse()
	response.Version = produceVersion
	if err := response.ReadFrom(w.receive(tb)[5:]); err != nil {
		tb.Fatal(err)
	}
	if p := response.Topics[0].Partitions[0]; p.ErrorCode != 0 {
		message := ""
		if p.ErrorMessage != nil {
			message = *p.ErrorMessage
		}
		tb.Fatalf("%s: error %d %s", w.target.name, p.ErrorCode, message)
	}
}

// measureBulk keeps bulkInFlight batches in flight, over all partitions in
// turn, and gives the bytes that were acknowledged.
func measureBulk(tb testing.TB, t target, limit time.Duration) (sent int64, took time.Duration) {
	w := newWriter(tb, t, bulkBatch)
	begun := time.Now()
	inFlight, partition := 0, int32(0)
	for time.Since(begun) < limit {
		for inFlight < bulkInFlight {
			w.send(tb, partition%partitions)
			partition++
			inFlight++
		}
		w.acknowledged(tb)
		inFlight--
		sent += bulkBatch
	}
	took = time.Since(begun)
	for ; inFlight > 0; inFlight-- {
		w.acknowledged(tb)
	}
	_ = w.conn.Close()
	return sent, took
}

// measurePings sends one small batch at a time and gives each round trip in
// microseconds.
func measurePings(tb testing.TB, t target, n int) []float64 {
	w := newWriter(tb, t, pingBatch)
	took := make([]float64, 0, n)
	for range n {
		begun := time.Now()
		w.send(tb, 0)
		w.acknowledged(tb)
		took = append(took, float64(time.Since(begun).Nanoseconds())/1e3)
	}
	_ = w.conn.Close()
	return took
}
