package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	produceVersion = 9
	produceTimeout = 10 * time.Second
	// conditionHeader names the header with the offset that a record asks for.
	conditionHeader = "expected-offset"
	// conditionDigits is the width of that offset, with leading zeros: so all
	// batches of a writer have one length.
	conditionDigits = 10
)

var (
	// errElsewhere is what no proxy that says it fences may let happen.
	errElsewhere = errors.New("appended at another offset than it asked for")
	errNoAnswer  = errors.New("the answer to a Produce does not name its partition")
)

// writer sends Produce requests of one batch of one record each to one partition
// over one connection, and never sends one again. It is the partition's only
// writer. Not for concurrent use.
type writer struct {
	conn   net.Conn
	asked  int64 // the offset that the next batch asks for
	told   int64 // the offset of the next answer
	frame  frame
	answer []byte
	parsed kmsg.ProduceResponse
}

// frame is a Produce request that is made once, and in which only the condition
// and the checksum change.
type frame struct {
	bytes     []byte
	batch     []byte // in bytes
	condition []byte // in batch
}

// newWriter connects; the first batch asks for the end of the partition.
func (r *run) newWriter(ctx context.Context, t *target, topic string, partition int32, batchBytes int) (*writer, error) {
	ends, err := r.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	return writerOn(conn, topic, partition, batchBytes, ends[partition]), nil
}

// writerOn shares a connection, on which answers come in the order of requests.
func writerOn(conn net.Conn, topic string, partition int32, batchBytes int, end int64) *writer {
	w := &writer{conn: conn, asked: end, told: end, frame: newFrame(topic, partition, batchBytes)}
	w.parsed = kmsg.NewProduceResponse()
	w.parsed.Version = produceVersion
	return w
}

func (w *writer) close() { _ = w.conn.Close() }

// send writes one batch.
func (w *writer) send() error {
	if err := w.conn.SetDeadline(time.Now().Add(produceTimeout)); err != nil {
		return err
	}
	w.frame.ask(w.asked)
	w.asked++
	_, err := w.conn.Write(w.frame.bytes)
	return err
}

// acknowledged reads one answer and expects the offset that was asked for.
func (w *writer) acknowledged() error {
	var err error
	if w.answer, err = readAnswer(w.conn, w.answer); err != nil {
		return err
	}
	p, err := producedPart(w.answer, &w.parsed)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return refusal(p.Partition, w.told, err, p.ErrorMessage)
	}
	if p.BaseOffset != w.told {
		return fmt.Errorf("%w: partition %d: asked for %d, got %d", errElsewhere, p.Partition, w.told, p.BaseOffset)
	}
	w.told++
	return nil
}

// refusal says what was refused and why.
func refusal(partition int32, offset int64, err error, message *string) error {
	if message == nil {
		return fmt.Errorf("append at offset %d of partition %d: %w", offset, partition, err)
	}
	return fmt.Errorf("append at offset %d of partition %d: %w: %s", offset, partition, err, *message)
}

// readAnswer reads one answer, without its length, into answer or more room.
func readAnswer(from io.Reader, answer []byte) ([]byte, error) {
	if cap(answer) < 4 {
		answer = make([]byte, 4<<10)
	}
	size := answer[:4]
	if _, err := io.ReadFull(from, size); err != nil {
		return answer, err
	}
	n := int(binary.BigEndian.Uint32(size))
	if n < 5 || n > maxFrame {
		return answer, fmt.Errorf("%w: %d bytes", errFrameSize, n)
	}
	if cap(answer) < n {
		answer = make([]byte, n)
	}
	answer = answer[:n]
	_, err := io.ReadFull(from, answer)
	return answer, err
}

// producedPart reads the only partition of an answer to a Produce; it is valid until
// parsed is used again.
func producedPart(answer []byte, parsed *kmsg.ProduceResponse) (*kmsg.ProduceResponseTopicPartition, error) {
	// The body is behind the correlation id and an empty list of tags.
	if err := parsed.ReadFrom(answer[5:]); err != nil {
		return nil, fmt.Errorf("answer to Produce: %w", err)
	}
	if len(parsed.Topics) != 1 || len(parsed.Topics[0].Partitions) != 1 {
		return nil, errNoAnswer
	}
	return &parsed.Topics[0].Partitions[0], nil
}

// newFrame makes a Produce request whose batch has about so many bytes.
func newFrame(topic string, partition int32, batchBytes int) frame {
	const overhead = 61 + 12 + len(conditionHeader) + conditionDigits // batch header, record, its header
	record := kmsg.Record{
		Value:   filler(max(batchBytes-overhead, 1)),
		Headers: []kmsg.Header{{Key: conditionHeader, Value: bytes.Repeat([]byte{'9'}, conditionDigits)}},
	}
	// The length is a varint that counts what follows it.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	encoded := recordBatch(record.AppendTo(nil), 1, 0)
	f := frame{bytes: produceRequest(topic, partition, encoded)}
	at := bytes.Index(f.bytes, encoded)
	f.batch = f.bytes[at : at+len(encoded)]
	at = bytes.Index(f.batch, record.Headers[0].Value)
	f.condition = f.batch[at : at+conditionDigits]
	return f
}

// ask makes the frame ask for an offset.
func (f *frame) ask(offset int64) {
	putDecimal(f.condition, offset)
	seal(f.batch)
}

// putDecimal fills all of dst, with leading zeros.
func putDecimal(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// filler is a value without runs of equal bytes.
func filler(n int) []byte {
	value := make([]byte, n)
	for i := range value {
		value[i] = byte(i * 7)
	}
	return value
}
