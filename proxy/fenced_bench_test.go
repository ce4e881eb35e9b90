package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// firstPlace is where the logs of these benchmarks begin, so that all offsets have
// the same number of digits.
const firstPlace = 1_000_000_000

// quickLeader is a leader that answers Produce without allocating and keeps no
// records, so that what is measured is the proxy.
type quickLeader struct {
	*leader
	parts map[string][]*partitionLog
}

func newQuickLeader(t testing.TB, partitions int, topics ...string) *quickLeader {
	t.Helper()
	q := &quickLeader{
		leader: &leader{t: t, closed: make(chan struct{}), topics: map[string]*topicLog{}, configs: fenceTestConfigs(), codes: map[kmsg.Key]int16{}, asked: map[kmsg.Key]int{}},
		parts:  map[string][]*partitionLog{},
	}
	for i, name := range topics {
		log := &topicLog{id: [16]byte{15: byte(i + 1)}}
		for range partitions {
			log.partitions = append(log.partitions, &partitionLog{high: -1, end: firstPlace})
		}
		q.topics[name], q.parts[name] = log, log.partitions
	}
	up := make(chan struct{})
	q.server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		q.serve(c)
	})
	close(up)
	t.Cleanup(func() { close(q.closed) })
	return q
}

// serve answers what lies in its buffer in one write.
func (q *quickLeader) serve(c *kafkatest.Conn) {
	var pending, out []byte
	var view wire.Produce
	chunk := make([]byte, 256<<10)
	for {
		n, err := c.Conn.Read(chunk)
		if err != nil {
			return
		}
		pending = append(pending, chunk[:n]...)
		out = out[:0]
		done := 0
		for len(pending)-done >= 4 {
			end := done + 4 + int(binary.BigEndian.Uint32(pending[done:]))
			if len(pending) < end {
				break
			}
			out = q.answerTo(out, pending[done+4:end], &view)
			done = end
		}
		pending = pending[:copy(pending, pending[done:])]
		if _, err := c.Conn.Write(out); err != nil {
			return
		}
	}
}

func (q *quickLeader) answerTo(out, frame []byte, view *wire.Produce) []byte {
	h, err := wire.ParseRequestHeader(frame)
	if err != nil {
		q.t.Errorf("broker: %v", err)
		return out
	}
	if h.APIKey == int16(kmsg.Produce) && h.APIVersion == benchVersion {
		if err := view.Parse(frame[h.BodyOffset:], h.APIVersion); err != nil {
			q.t.Errorf("broker: %v", err)
			return out
		}
		return q.appendAll(out, h.CorrelationID, view)
	}
	r := kafkatest.Request{RequestHeader: h, Frame: bytes.Clone(frame)}
	request, err := r.Decode()
	if err != nil {
		q.t.Errorf("broker: %v", err)
		return out
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if produce, ok := request.(*kmsg.ProduceRequest); ok { // the question for rights
		answer := kmsg.NewPtrProduceResponse()
		answer.Version = r.APIVersion
		for _, t := range produce.Topics {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset, p.ErrorCode = rightsPartition, -1, 3
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.Partitions = t.Topic, append(topic.Partitions, p)
			answer.Topics = append(answer.Topics, topic)
		}
		return append(out, kafkatest.AnswerFrame(r, answer.AppendTo(nil))...)
	}
	answer := q.answer(request)
	answer.SetVersion(r.APIVersion)
	return append(out, kafkatest.AnswerFrame(r, answer.AppendTo(nil))...)
}

// benchVersion is the Produce version of these benchmarks.
const benchVersion = 9

// appendAll appends what a request asks for and its answer to out.
func (q *quickLeader) appendAll(out []byte, id int32, view *wire.Produce) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	start, be := len(out), binary.BigEndian
	out = append(out, 0, 0, 0, 0)
	out = be.AppendUint32(out, uint32(id))
	out = append(out, 0)
	topics := 0
	if n := len(view.Partitions); n > 0 {
		topics = view.Partitions[n-1].TopicIndex + 1
	}
	out = binary.AppendUvarint(out, uint64(topics)+1)
	for i := 0; i < len(view.Partitions); {
		first := &view.Partitions[i]
		n := i
		for n < len(view.Partitions) && view.Partitions[n].TopicIndex == first.TopicIndex {
			n++
		}
		out = binary.AppendUvarint(out, uint64(len(first.Topic))+1)
		out = append(out, first.Topic...)
		out = binary.AppendUvarint(out, uint64(n-i)+1)
		parts := q.parts[string(first.Topic)]
		for ; i < n; i++ {
			p := &view.Partitions[i]
			log := parts[p.Partition]
			code, base := log.take(p.Records)
			out = be.AppendUint32(out, uint32(p.Partition))
			out = be.AppendUint16(out, uint16(code))
			out = be.AppendUint64(out, uint64(base))
			out = be.AppendUint64(out, ^uint64(0)) // no append time
			out = be.AppendUint64(out, 0)          // log start
			out = append(out, 1, 0, 0)             // record errors, message, tags
		}
		out = append(out, 0)
	}
	out = append(out, 0, 0, 0, 0, 0) // throttle time, tags
	be.PutUint32(out[start:], uint32(len(out)-start-4))
	return out
}

// take is append, keeping nothing and marking nothing.
func (p *partitionLog) take(batch []byte) (code int16, base int64) {
	be := binary.BigEndian
	id, sequence, n := int64(be.Uint64(batch[43:])), int32(be.Uint32(batch[53:])), int32(be.Uint32(batch[57:]))
	if id == defaultFenceID {
		if p.has && sequence != p.next {
			return 45, -1
		}
		p.has, p.epoch, p.base, p.next = true, int16(be.Uint16(batch[51:])), sequence, sequence+n
		p.at, p.stamp = p.end, int64(be.Uint64(batch[35:]))
	}
	base = p.end
	p.end += int64(n)
	return 0, base
}

// quickWriter sends the same Produce request again and again, each time for the
// next offsets, without allocating.
type quickWriter struct {
	t       testing.TB
	conn    net.Conn
	frame   []byte
	batches [][]byte
	digits  [][][]byte // of each batch's records
	next    []int64
	records int
	answer  []byte
}

// newQuickWriter is a writer of batches of so many records to so many partitions
// of a topic in a request, on a connection of its own. Partitions are numbered from first.
func newQuickWriter(t testing.TB, address, topic string, first, partitions, records int, headers ...kmsg.Header) *quickWriter {
	t.Helper()
	w := &quickWriter{t: t, records: records, answer: make([]byte, 64<<10)}
	var parts []part
	for i := range partitions {
		var all []record
		for n := range records {
			all = append(all, record{value: strings.Repeat("v", 200), expected: fmt.Sprint(firstPlace + n), headers: headers})
		}
		parts = append(parts, part{topic: topic, partition: int32(first + i), records: batchOf(batchOptions{}, all...)})
		w.next = append(w.next, firstPlace)
	}
	w.frame = kafkatest.RequestFrame(1, produceOf(benchVersion, -1, parts...))
	h, err := wire.ParseRequestHeader(w.frame[4:])
	if err != nil {
		t.Fatal(err)
	}
	var view wire.Produce
	if err := view.Parse(w.frame[4+h.BodyOffset:], h.APIVersion); err != nil {
		t.Fatal(err)
	}
	for i := range view.Partitions {
		batch := view.Partitions[i].Records
		var digits [][]byte
		name := []byte("expected-offset")
		for at := bytes.Index(batch, name); at >= 0; {
			from := at + len(name) + 1
			digits = append(digits, batch[from:from+10])
			more := bytes.Index(batch[from:], name)
			if more < 0 {
				break
			}
			at = from + more
		}
		w.batches, w.digits = append(w.batches, batch), append(w.digits, digits)
	}
	if w.conn, err = net.Dial("tcp", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })
	return w
}

// send sends the next request.
func (w *quickWriter) send() {
	for i, batch := range w.batches {
		for n, digits := range w.digits[i] {
			putDigits(digits, w.next[i]+int64(n))
		}
		w.next[i] += int64(w.records)
		binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoliTable))
	}
	if _, err := w.conn.Write(w.frame); err != nil {
		w.t.Fatal(err)
	}
}

func putDigits(to []byte, n int64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = byte('0' + n%10)
		n /= 10
	}
}

// expect reads an answer, to a request that must have been a success.
func (w *quickWriter) expect() {
	if _, err := io.ReadFull(w.conn, w.answer[:4]); err != nil {
		w.t.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(w.answer))
	if n > len(w.answer) {
		w.t.Fatalf("got an answer of %d bytes", n)
	}
	if _, err := io.ReadFull(w.conn, w.answer[:n]); err != nil {
		w.t.Fatal(err)
	}
	// Behind correlation id, tags, count, name of less than 128 bytes, count of
	// partitions and partition.
	at := 4 + 1 + 1
	at += int(w.answer[at])
	_, size := binary.Uvarint(w.answer[at:])
	for i := range w.batches {
		each := w.answer[at+size+i*33:]
		if code := int16(binary.BigEndian.Uint16(each[4:])); code != 0 {
			w.t.Fatalf("partition %d of the request: code %d", i, code)
		}
		if base := int64(binary.BigEndian.Uint64(each[6:])); base < firstPlace {
			w.t.Fatalf("partition %d of the request: base offset %d", i, base)
		}
	}
}

func (w *quickWriter) round() {
	w.send()
	w.expect()
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFenced is a Produce through the proxy, beside the same without a rule:
// what writer and broker cost is in both. An operation is a request.
func BenchmarkFenced(b *testing.B) {
	for _, c := range []struct{ partitions, records, depth int }{{1, 1, 1}, {1, 100, 1}, {250, 1, 1}, {1, 1, 5}, {1, 10, 50}} {
		for _, topic := range []string{"plain", "fenced"} {
			b.Run(fmt.Sprintf("partitions=%d/records=%d/depth=%d/%s", c.partitions, c.records, c.depth, topic), func(b *testing.B) {
				q := newQuickLeader(b, c.partitions, "plain", "fenced")
				r := startFenced(b, Config{Bootstrap: []string{q.server.Addr()}})
				w := newQuickWriter(b, r.Addr(), topic, 0, c.partitions, c.records)
				w.round()
				b.ReportAllocs()
				b.ResetTimer()
				began := processorTime()
				sent := 0
				for done := range b.N {
					for ; sent < b.N && sent < done+c.depth; sent++ {
						w.send()
					}
					w.expect()
				}
				b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
