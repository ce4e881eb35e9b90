package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// record is one record of a test's batch.
type record struct {
	value    string
	expected string // the header's value; "" none
	appendID string // "" none
	headers  []kmsg.Header
	delta    int64 // of its timestamp to the batch's
}

// batchOptions are what a client may put into a batch's header.
type batchOptions struct {
	timestamp  int64 // 0: now
	producerID int64 // 0: none
	attributes int16
	maxTime    int64 // 0: the timestamp
	magic      int8  // 0: 2
}

// batchOf encodes a record batch as a client sends it.
func batchOf(o batchOptions, records ...record) []byte {
	if o.timestamp == 0 {
		o.timestamp = time.Now().UnixMilli()
	}
	b := kmsg.NewRecordBatch()
	b.PartitionLeaderEpoch, b.Magic, b.Attributes = -1, 2, o.attributes
	if o.magic != 0 {
		b.Magic = o.magic
	}
	b.FirstTimestamp, b.MaxTimestamp = o.timestamp, o.timestamp
	if o.maxTime != 0 {
		b.MaxTimestamp = o.maxTime
	}
	b.ProducerID, b.ProducerEpoch, b.FirstSequence = -1, -1, -1
	if o.producerID != 0 {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = o.producerID, 3, 77
	}
	b.NumRecords, b.LastOffsetDelta = int32(len(records)), int32(len(records)-1)
	for i, r := range records {
		k := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: r.delta, Key: []byte("k"), Value: []byte(r.value)}
		if r.expected != "" {
			k.Headers = append(k.Headers, kmsg.Header{Key: "expected-offset", Value: []byte(r.expected)})
		}
		if r.appendID != "" {
			k.Headers = append(k.Headers, kmsg.Header{Key: "append-id", Value: []byte(r.appendID)})
		}
		k.Headers = append(k.Headers, r.headers...)
		k.Length = int32(len(k.AppendTo(nil)) - 1)
		b.Records = k.AppendTo(b.Records)
	}
	frame := b.AppendTo(nil)
	binary.BigEndian.PutUint32(frame[8:], uint32(len(frame)-12))
	binary.BigEndian.PutUint32(frame[17:], crc32.Checksum(frame[21:], castagnoliTable))
	return frame
}

// conditional is a batch whose first record expects an offset.
func conditional(expected int64, values ...string) []byte {
	var records []record
	for i, v := range values {
		records = append(records, record{value: v, expected: strconv.FormatInt(expected+int64(i), 10)})
	}
	return batchOf(batchOptions{}, records...)
}

// identified is conditional with append-ids.
func identified(expected int64, values ...string) []byte {
	var records []record
	for i, v := range values {
		records = append(records, record{value: v, expected: strconv.FormatInt(expected+int64(i), 10), appendID: "id of " + v})
	}
	return batchOf(batchOptions{}, records...)
}

// plain is a batch without conditions.
func plain(values ...string) []byte {
	var records []record
	for _, v := range values {
		records = append(records, record{value: v})
	}
	return batchOf(batchOptions{}, records...)
}

// batchValues reads the values of a stored batch without compression.
func batchValues(t testing.TB, batch []byte) []string {
	t.Helper()
	var values []string
	rest := batch[61:]
	for len(rest) > 0 {
		length, n := binary.Varint(rest)
		var r kmsg.Record
		if err := r.ReadFrom(rest[:n+int(length)]); err != nil {
			t.Fatalf("stored record: %v", err)
		}
		values = append(values, string(r.Value))
		rest = rest[n+int(length):]
	}
	return values
}

// part is one partition of a request.
type part struct {
	topic     string
	id        [16]byte // used from version 13 on
	partition int32
	records   []byte
}

// produceOf makes a Produce request; adjacent parts of one topic share an entry.
func produceOf(version, acks int16, parts ...part) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, acks, 4000
	for i, p := range parts {
		if i == 0 || parts[i-1].topic != p.topic || parts[i-1].id != p.id {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			r.Topics = append(r.Topics, t)
		}
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = p.partition, p.records
		t := &r.Topics[len(r.Topics)-1]
		t.Partitions = append(t.Partitions, q)
	}
	return r
}

// logLines collects log lines.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}

// dialAbruptly makes connections that end with a reset. They cost no port for
// the minute after, of which a test with thousands would use up all.
func dialAbruptly(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// fencedRig is a running proxy whose topics fenced* are under a rule, before a
// leader.
type fencedRig struct {
	*Proxy
	t    testing.TB
	log  logLines
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
}

func newFencedRig(t testing.TB, cfg Config, l *leader) *fencedRig {
	t.Helper()
	cfg.Bootstrap = []string{l.server.Addr()}
	return startFenced(t, cfg)
}

// startFenced runs a proxy; its log is shown if the test fails.
func startFenced(t testing.TB, cfg Config) *fencedRig {
	t.Helper()
	cfg.Rules = append(cfg.Rules, Rule{Topics: "fenced*", Mode: ModeRequire})
	return startRuled(t, cfg)
}

// startRuled is startFenced with the configuration's rules alone. Brokers are
// taken for Kafka unless the configuration says otherwise or names a topic to
// probe them on.
func startRuled(t testing.TB, cfg Config) *fencedRig {
	t.Helper()
	r := &fencedRig{t: t, done: make(chan struct{})}
	if cfg.BrokerKind == AutoKind && cfg.ProbeTopic == "" {
		cfg.BrokerKind = ApacheKafka
	}
	cfg.Listen = "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = time.Second
	}
	var err error
	if r.Proxy, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		var cut *DrainError // as tests may want it
		if err := r.Run(ctx); err != nil && !errors.As(err, &cut) {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		r.awaitEnd()
		for _, name := range limitNames {
			if n := r.metrics.limits.counted[name].Load(); n > 0 && r.log.count("limit="+name+" ") == 0 {
				t.Errorf("limit %s was hit %d times, and the log does not say so", name, n)
			}
		}
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", r.log.buf.String())
		}
	})
	select {
	case <-r.Ready():
	case <-time.After(seamPatience):
		t.Fatal("proxy did not become ready")
	}
	return r
}

func (r *fencedRig) awaitEnd() {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(seamPatience):
		r.t.Fatal("Run did not return")
	}
}

// await polls for something that other goroutines bring about.
func (r *fencedRig) await(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(seamPatience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: did not happen", what)
		}
	}
}

// outcomes reads a counter of batches.
func (r *fencedRig) outcomes(name string) int64 { return r.metrics.outcomes[name].Load() }

// awaitQuiet waits until no batch is in work.
func (r *fencedRig) awaitQuiet() {
	r.t.Helper()
	r.await("every lane is without users", func() bool { return !r.busy() })
}

// busy reports whether a batch is in work.
func (r *fencedRig) busy() bool {
	r.fencing.mu.Lock()
	defer r.fencing.mu.Unlock()
	for _, l := range r.fencing.lanes {
		if l.users.Load() != 0 {
			return true
		}
	}
	return false
}

// lanes is the number of partitions in use.
func (r *fencedRig) lanes() int {
	r.fencing.mu.Lock()
	defer r.fencing.mu.Unlock()
	return len(r.fencing.lanes)
}

// fencedClient sends Produce requests frame by frame.
type fencedClient struct {
	*kafkatest.Client
	t  testing.TB
	id int32
}

func (r *fencedRig) dial() *fencedClient {
	r.t.Helper()
	return &fencedClient{Client: kafkatest.Dial(r.t, r.Addr()), t: r.t}
}

// send sends a request without waiting; the result is its correlation id.
func (c *fencedClient) send(r kmsg.Request) int32 {
	c.t.Helper()
	c.id++
	c.Send(c.id, r)
	return c.id
}

// expect reads the answer to a Produce request.
func (c *fencedClient) expect(id int32, version int16) *kmsg.ProduceResponse {
	c.t.Helper()
	a := kmsg.NewPtrProduceResponse()
	a.Version = version
	c.Expect(id, a)
	return a
}

// produce sends a request and reads its answer.
func (c *fencedClient) produce(version, acks int16, parts ...part) *kmsg.ProduceResponse {
	c.t.Helper()
	return c.expect(c.send(produceOf(version, acks, parts...)), version)
}

// one produces to one partition of the topic "fenced" and gives its result.
func (c *fencedClient) one(partition int32, batch []byte) result {
	c.t.Helper()
	results := resultsOf(c.produce(9, -1, part{topic: "fenced", partition: partition, records: batch}))
	if len(results) != 1 {
		c.t.Fatalf("got %d results, want 1", len(results))
	}
	return results[0]
}

// result is what a client learns of one partition.
type result struct {
	Topic     string
	ID        byte // last of the topic id
	Partition int32
	Code      int16
	Base      int64
	Message   string
}

func resultsOf(a *kmsg.ProduceResponse) []result {
	var results []result
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			r := result{Topic: t.Topic, ID: t.TopicID[15], Partition: p.Partition, Code: p.ErrorCode, Base: p.BaseOffset}
			if p.ErrorMessage != nil {
				r.Message = *p.ErrorMessage
			}
			results = append(results, r)
		}
	}
	return results
}

func wantResult(t *testing.T, got result, code int16, base int64, message string) {
	t.Helper()
	if got.Code != code || got.Base != base || got.Message != message {
		t.Errorf("got code %d, base %d, %q; want code %d, base %d, %q", got.Code, got.Base, got.Message, code, base, message)
	}
}

// header reads the header of a batch in a request.
func headerOf(t *testing.T, batch []byte) wire.BatchHeader {
	t.Helper()
	h, err := wire.ParseBatch(batch)
	if err != nil {
		t.Fatalf("batch at the broker: %v", err)
	}
	return h
}
