package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceAnswer is the answer to a Produce with one batch.
func produceAnswer(partition int32, base int64, code int16) []byte {
	response := kmsg.NewPtrProduceResponse()
	response.Version = produceVersion
	topic := kmsg.NewProduceResponseTopic()
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.BaseOffset, p.ErrorCode = partition, base, code
	topic.Partitions = append(topic.Partitions, p)
	response.Topics = append(response.Topics, topic)
	frame := response.AppendTo(make([]byte, 4+5)) // length, correlation id, no tags
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// holdBack reads n requests before it answers any, with the offsets 0, 0, 1, 1 and
// so on, as for two partitions in turn, and the given code.
func holdBack(conn net.Conn, n int, code int16) error {
	for range n {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
			return err
		}
	}
	for i := range n {
		if _, err := conn.Write(produceAnswer(int32(i%2), int64(i/2), code)); err != nil {
			return err
		}
	}
	return nil
}

// open runs an open loop of two writers against a broker that holds back.
func open(t *testing.T, n int, every time.Duration, code int16) ([]time.Duration, error) {
	ours, theirs := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- holdBack(theirs, n, code) }()
	turns := []*writer{writerOn(ours, "t", 0, smallBatch, 0), writerOn(ours, "t", 1, smallBatch, 0)}
	took, err := openLoop(t.Context(), turns, every, n)
	_ = ours.Close()
	_ = theirs.Close()
	if held := <-done; held != nil && code == 0 {
		t.Error(held)
	}
	return took, err
}

// Latency counts from when a batch was due: a broker that answers none before it
// has them all makes the first wait for as long as the last is not due.
func TestOpenLoopLeavesNoWaitOut(t *testing.T) {
	const n, every = 10, 3 * time.Millisecond
	took, err := open(t, n, every, 0)
	if err != nil || len(took) != n {
		t.Fatalf("got %d answers, %v", len(took), err)
	}
	for i, got := range took {
		if least := time.Duration(n-1-i) * every; got < least {
			t.Errorf("batch %d: %v, want %v at least", i, got, least)
		}
	}
}

func TestOpenLoopEndsAtARefusal(t *testing.T) {
	if _, err := open(t, 4, time.Millisecond, kerr.OffsetOutOfRange.Code); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("got %v", err)
	}
}

func TestWriterIsToldItsOffset(t *testing.T) {
	for base, want := range map[int64]error{7: nil, 8: errElsewhere} {
		ours, theirs := net.Pipe()
		written := make(chan error, 1)
		go func() {
			_, err := theirs.Write(produceAnswer(0, base, 0))
			written <- err
		}()
		if err := writerOn(ours, "t", 0, smallBatch, 7).acknowledged(); !errors.Is(err, want) {
			t.Errorf("told %d: got %v, want %v", base, err, want)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		_ = ours.Close()
		_ = theirs.Close()
	}
}

// The frame is patched in place, and must stay one that a broker takes.
func TestFrameAsksForAnOffset(t *testing.T) {
	f := newFrame("t", 3, smallBatch)
	if got := len(f.batch); got < smallBatch-5 || got > smallBatch+5 {
		t.Errorf("a batch of %d bytes, want about %d", got, smallBatch)
	}
	for _, offset := range []int64{0, 1, 1234567890} {
		f.ask(offset)
		var batch kmsg.RecordBatch
		var record kmsg.Record
		if err := errors.Join(batch.ReadFrom(f.batch), record.ReadFrom(batch.Records)); err != nil {
			t.Fatal(err)
		}
		if got := parseDecimal(record.Headers[0].Value); got != offset || record.Headers[0].Key != conditionHeader {
			t.Errorf("%s: got %d, want %d", record.Headers[0].Key, got, offset)
		}
		if got, want := uint32(batch.CRC), crc32.Checksum(f.batch[21:], crc32.MakeTable(crc32.Castagnoli)); got != want {
			t.Errorf("checksum %x, want %x", got, want)
		}
	}
}
