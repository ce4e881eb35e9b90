package prober

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testFence int64 = 0x4f66667365740001
	testNode  int32 = 2
)

var testTopic = Topic{Name: "orders"}

// fate is what becomes of a connection at a request.
type fate int

const (
	answered   fate = iota // the answer is written whole
	cutBefore              // the connection ends without an answer
	cutMid                 // the connection ends inside the answer
	cutAfter               // the connection ends behind the answer
	unanswered             // nothing more is written; the connection stays
)

// reply is what a scripted broker does with one request.
type reply struct {
	resp  kmsg.Response // nil: raw
	raw   []byte        // the frame's content after the correlation id
	late  time.Duration // waits before answering
	fate  fate
	wrong int32 // added to the correlation id
}

// scriptedBroker serves net.Pipe connections one request at a time, as brokers
// do. handle is called under mu, from one goroutine per connection.
type scriptedBroker struct {
	handle func(kmsg.Request) reply

	mu       sync.Mutex
	dials    int
	requests []kmsg.Request // in the order of the wire, without ApiVersions
}

func (b *scriptedBroker) dial(context.Context, int32) (net.Conn, error) {
	b.mu.Lock()
	b.dials++
	b.mu.Unlock()
	near, far := net.Pipe()
	go b.serve(far)
	return near, nil
}

// change calls fn while no request is handled.
func (b *scriptedBroker) change(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}

func (b *scriptedBroker) dialled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dials
}

func (b *scriptedBroker) seen() []kmsg.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]kmsg.Request(nil), b.requests...)
}

// serve reads ahead, so that a writer is not held up by an unanswered request.
func (b *scriptedBroker) serve(nc net.Conn) {
	defer nc.Close()
	frames := make(chan []byte, 10_000)
	go func() {
		defer close(frames)
		r := bufio.NewReader(nc)
		for {
			var size [4]byte
			if _, err := io.ReadFull(r, size[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(r, frame); err != nil {
				return
			}
			frames <- frame
		}
	}()
	for frame := range frames {
		req, correlation := parseRequest(frame)
		var do reply
		if v, ok := req.(*kmsg.ApiVersionsRequest); ok {
			do = reply{resp: allVersions(v)}
		} else {
			b.mu.Lock()
			b.requests = append(b.requests, req)
			do = b.handle(req)
			b.mu.Unlock()
		}
		time.Sleep(do.late) // the bubble's clock
		if do.fate == cutBefore {
			return
		}
		if do.fate == unanswered {
			for range frames { // until the client closes
			}
			return
		}
		body := binary.BigEndian.AppendUint32(nil, uint32(correlation+do.wrong))
		if do.resp != nil {
			do.resp.SetVersion(req.GetVersion())
			if do.resp.IsFlexible() && do.resp.Key() != int16(kmsg.ApiVersions) {
				body = append(body, 1, 9, 2, 'h', 'i') // a tagged field in the header
			}
			body = do.resp.AppendTo(body)
		} else {
			body = append(body, do.raw...)
		}
		out := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		if do.fate == cutMid {
			out = out[:len(out)/2]
		}
		if _, err := nc.Write(out); err != nil || do.fate == cutMid || do.fate == cutAfter {
			return
		}
	}
}

func parseRequest(frame []byte) (kmsg.Request, int32) {
	req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	correlation := int32(binary.BigEndian.Uint32(frame[4:]))
	body := frame[10+int(binary.BigEndian.Uint16(frame[8:])):]
	if req.IsFlexible() {
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		panic(err)
	}
	return req, correlation
}

func allVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for key := range int16(70) {
		if r := kmsg.RequestForKey(key); r != nil {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: r.MaxVersion()})
		}
	}
	return resp
}

// run calls fn with a running Pool in a bubble of its own time, then stops it.
func run(t *testing.T, cfg Config, fn func(t *testing.T, ctx context.Context, p *Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Logger = slog.New(slog.DiscardHandler)
		if cfg.FenceID == 0 {
			cfg.FenceID = testFence
		}
		p := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- p.Run(ctx) }()
		fn(t, t.Context(), p)
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// leader is the behaviour of a partition's leader. Fields are set before it
// serves, or by its hooks.
type leader struct {
	id         [16]byte
	epoch      int32
	replicas   []int32            // that Metadata names
	named      int32              // the leader that Metadata names; 0: testNode
	namedEpoch int32              // the epoch that Metadata names; 0: epoch
	ends       []int64            // successive answers of OffsetForLeaderEpoch; the last repeats
	start      int64              // log start
	high       int64              // high watermark
	codes      map[kmsg.Key]int16 // error code for an API
	endEpoch   int32              // added to the epoch answered with a log end
	producers  []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	batches    [][]byte // stored, in order
	eager      bool     // Fetch gives what is above the high watermark too
	onRequest  func(kmsg.Request)
}

func (l *leader) check(current int32, key kmsg.Key) int16 {
	switch {
	case l.codes[key] != 0:
		return l.codes[key]
	case current < l.epoch:
		return codeFencedLeaderEpoch
	case current > l.epoch:
		return codeUnknownLeaderEpoch
	}
	return codeNone
}

func (l *leader) handle(kreq kmsg.Request) reply {
	if l.onRequest != nil {
		l.onRequest(kreq)
	}
	switch req := kreq.(type) {
	case *kmsg.OffsetForLeaderEpochRequest:
		rp := req.Topics[0].Partitions[0]
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition = rp.Partition
		if p.ErrorCode = l.check(rp.CurrentLeaderEpoch, kmsg.OffsetForLeaderEpoch); p.ErrorCode == 0 {
			p.LeaderEpoch = rp.LeaderEpoch + l.endEpoch
			p.EndOffset = l.ends[0]
			if len(l.ends) > 1 {
				l.ends = l.ends[1:]
			}
		}
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic, topic.Partitions = req.Topics[0].Topic, append(topic.Partitions, p)
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		resp.Topics = append(resp.Topics, topic)
		return reply{resp: resp}
	case *kmsg.DescribeProducersRequest:
		p := kmsg.NewDescribeProducersResponseTopicPartition()
		p.Partition = req.Topics[0].Partitions[0]
		if p.ErrorCode = l.codes[kmsg.DescribeProducers]; p.ErrorCode == 0 {
			p.ActiveProducers = l.producers
		}
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic, topic.Partitions = req.Topics[0].Topic, append(topic.Partitions, p)
		resp := kmsg.NewPtrDescribeProducersResponse()
		resp.Topics = append(resp.Topics, topic)
		return reply{resp: resp}
	case *kmsg.ListOffsetsRequest:
		rp := req.Topics[0].Partitions[0]
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.Partition = rp.Partition
		if p.ErrorCode = l.check(rp.CurrentLeaderEpoch, kmsg.ListOffsets); p.ErrorCode == 0 {
			p.Offset = l.high
			if rp.Timestamp == earliest {
				p.Offset = l.start
			}
		}
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic, topic.Partitions = req.Topics[0].Topic, append(topic.Partitions, p)
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = append(resp.Topics, topic)
		return reply{resp: resp}
	case *kmsg.FetchRequest:
		return reply{resp: l.fetch(req)}
	case *kmsg.MetadataRequest:
		return reply{resp: l.metadata(req)}
	}
	panic("the scripted leader does not know " + kmsg.NameForKey(kreq.Key()))
}

func (l *leader) fetch(req *kmsg.FetchRequest) kmsg.Response {
	rp := req.Topics[0].Partitions[0]
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = rp.Partition
	p.ErrorCode = l.check(rp.CurrentLeaderEpoch, kmsg.Fetch)
	end := l.ends[0]
	if p.ErrorCode == 0 && (rp.FetchOffset < l.start || rp.FetchOffset > end) {
		p.ErrorCode = codeOffsetOutOfRange
	}
	if p.ErrorCode == 0 {
		p.HighWatermark, p.LogStartOffset = l.high, l.start
		for _, b := range l.batches {
			base := int64(binary.BigEndian.Uint64(b))
			last := base + int64(binary.BigEndian.Uint32(b[23:]))
			room := int(rp.PartitionMaxBytes) - len(p.RecordBatches)
			switch {
			case last < rp.FetchOffset || last >= l.high && !l.eager:
			case len(p.RecordBatches) == 0 || len(b) <= room:
				p.RecordBatches = append(p.RecordBatches, b...)
			case room > 0: // brokers cut the last batch anywhere
				p.RecordBatches = append(p.RecordBatches, b[:room]...)
			}
		}
	} else {
		p.HighWatermark, p.LogStartOffset = -1, -1
	}
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	topic.Partitions = append(topic.Partitions, p)
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = append(resp.Topics, topic)
	return resp
}

func (l *leader) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	p := kmsg.NewMetadataResponseTopicPartition()
	p.Partition, p.Leader, p.LeaderEpoch, p.Replicas = 0, testNode, l.epoch, l.replicas
	if l.named != 0 {
		p.Leader = l.named
	}
	if l.namedEpoch != 0 {
		p.LeaderEpoch = l.namedEpoch
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic, topic.TopicID = kmsg.StringPtr(testTopic.Name), l.id
	if asked := req.Topics[0]; asked.Topic != nil {
		topic.Topic = asked.Topic
	}
	topic.ErrorCode = l.codes[kmsg.Metadata]
	if topic.ErrorCode == 0 {
		for i := range int32(4) {
			p.Partition = i
			topic.Partitions = append(topic.Partitions, p)
		}
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// producer is an entry of DescribeProducers.
func producer(id int64, epoch int32, lastSequence int32, lastTimestamp int64) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
	a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = id, epoch, lastSequence, lastTimestamp
	return a
}

// storedBatch encodes a batch as a log has it, one record for each value.
func storedBatch(base, producerID int64, epoch int16, sequence int32, timestamp int64, values ...string) []byte {
	var records []byte
	for i, v := range values {
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, 0)
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, -1)
		r = binary.AppendVarint(r, int64(len(v)))
		r = append(r, v...)
		r = binary.AppendVarint(r, 0)
		records = binary.AppendVarint(records, int64(len(r)))
		records = append(records, r...)
	}
	b := (&kmsg.RecordBatch{
		FirstOffset:     base,
		Length:          int32(49 + len(records)),
		Magic:           2,
		LastOffsetDelta: int32(len(values) - 1),
		FirstTimestamp:  timestamp,
		MaxTimestamp:    timestamp,
		ProducerID:      producerID,
		ProducerEpoch:   epoch,
		FirstSequence:   sequence,
		NumRecords:      int32(len(values)),
		Records:         records,
	}).AppendTo(nil)
	resum(b)
	return b
}

// resum writes a batch's checksum.
func resum(batch []byte) {
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// wantCode fails the test unless err is a broker's error with this code.
func wantCode(t *testing.T, err error, code int16) {
	t.Helper()
	var refused *BrokerError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("got error %v, want a BrokerError with code %d", err, code)
	}
}

// noDial is for Pools that are not to dial.
func noDial(context.Context, int32) (net.Conn, error) { return nil, errors.New("not to be dialled") }
