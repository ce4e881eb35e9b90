package prober

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// probed is a leader that appends what it is told to, one record a batch.
type probed struct {
	leader
	// unordered: it takes any sequence. marks: how it marks duplicates.
	// again: the error code for a duplicate; −1: it is appended again.
	// listsIdle, armsAnywhere: see Behaviour.
	unordered, listsIdle, armsAnywhere bool
	marks                              DuplicateMark
	again                              int16
	produceCode                        int16
	appendTime                         bool

	end  int64
	last map[int64]int32 // last sequence by producer id
	base map[int64]int64 // its offset
}

func (b *probed) handle(r kmsg.Request) reply {
	req, ok := r.(*kmsg.ProduceRequest)
	if !ok {
		return b.leader.handle(r)
	}
	asked := req.Topics[0].Partitions[0]
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition = asked.Partition
	b.produce(asked.Records, &p)
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic, topic.Partitions = req.Topics[0].Topic, append(topic.Partitions, p)
	resp := kmsg.NewPtrProduceResponse()
	resp.Topics = append(resp.Topics, topic)
	return reply{resp: resp}
}

func (b *probed) produce(records []byte, p *kmsg.ProduceResponseTopicPartition) {
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = -1, -1, 0
	h, err := wire.ParseBatch(records)
	if err != nil {
		p.ErrorCode = 2
		return
	}
	last, known := b.last[h.ProducerID]
	switch {
	case b.produceCode != 0:
		p.ErrorCode = b.produceCode
		return
	case known && last == h.BaseSequence && b.again > 0:
		p.ErrorCode = b.again
		return
	case known && last == h.BaseSequence && b.again == 0:
		p.BaseOffset = b.base[h.ProducerID]
		switch b.marks {
		case ByLogAppendTime:
			p.LogAppendTime = h.MaxTimestamp
		case ByLogStartOffset:
			p.LogStartOffset = -1
		}
		return
	case !b.unordered && (known && last+1 != h.BaseSequence || !known && !b.armsAnywhere && h.BaseSequence != 0):
		p.ErrorCode = codeOutOfOrderSequence
		return
	}
	p.BaseOffset = b.end
	if b.appendTime {
		p.LogAppendTime = h.MaxTimestamp
	}
	b.last[h.ProducerID], b.base[h.ProducerID] = h.BaseSequence, b.end
	b.end++
	if b.listsIdle {
		b.producers = append(b.producers, producer(h.ProducerID, 0, h.BaseSequence, h.MaxTimestamp))
	}
}

func TestProbe(t *testing.T) {
	kafka := Behaviour{Duplicates: ByLogAppendTime, ListsIdle: true, ArmsAnywhere: true, ChecksSequences: true}
	like := func(change func(*Behaviour)) Behaviour {
		b := kafka
		change(&b)
		return b
	}
	for _, tc := range []struct {
		name   string
		change func(*probed)
		want   Behaviour
	}{
		{"Apache Kafka", func(*probed) {}, kafka},
		{"kfake", func(b *probed) { b.marks, b.listsIdle = ByLogStartOffset, false }, like(func(b *Behaviour) { b.Duplicates, b.ListsIdle = ByLogStartOffset, false })},
		{"no marks", func(b *probed) { b.marks = Unmarked }, like(func(b *Behaviour) { b.Duplicates = Unmarked })},
		{"duplicates are errors", func(b *probed) { b.again = codeDuplicateSequence }, like(func(b *Behaviour) { b.Duplicates = Unmarked })},
		{"begins at 0 only", func(b *probed) { b.armsAnywhere = false }, like(func(b *Behaviour) { b.ArmsAnywhere = false })},
		{"appends duplicates", func(b *probed) { b.again = -1; b.unordered = true }, like(func(b *Behaviour) { b.Duplicates, b.ChecksSequences = Unmarked, false })},
		{"takes any sequence", func(b *probed) { b.unordered = true }, like(func(b *Behaviour) { b.ChecksSequences = false })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &probed{marks: ByLogAppendTime, listsIdle: true, armsAnywhere: true, last: map[int64]int32{}, base: map[int64]int64{}}
			l.epoch = 5
			tc.change(l)
			b := &scriptedBroker{handle: l.handle}
			run(t, Config{Dial: b.dial, StateFrom: AsProbed}, func(t *testing.T, ctx context.Context, p *Pool) {
				got, session, err := p.Probe(ctx, testNode, "probe")
				if err != nil || session == 0 {
					t.Fatalf("session %d: %v", session, err)
				}
				if got != tc.want {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
				for id := range l.last {
					if id < firstProbeID || id == testFence {
						t.Errorf("probed with producer id %#x, which somebody may have", id)
					}
				}
			})
		})
	}
}

func TestProbeIsNotPossible(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*probed)
		want   error // nil: a *BrokerError of op with code
		op     string
		code   int16
	}{
		{"may not write", func(b *probed) { b.produceCode = 29 }, nil, "Produce", 29},
		{"may not read", func(b *probed) { b.codes = map[kmsg.Key]int16{kmsg.DescribeProducers: 29} }, nil, "DescribeProducers", 29},
		{"may not describe", func(b *probed) { b.codes = map[kmsg.Key]int16{kmsg.Metadata: 29} }, nil, "Metadata", 29},
		{"no topic", func(b *probed) { b.codes = map[kmsg.Key]int16{kmsg.Metadata: codeUnknownTopic} }, nil, "Metadata", codeUnknownTopic},
		{"led elsewhere", func(b *probed) { b.named, b.replicas = testNode+1, []int32{testNode + 1} }, &NoProbePartitionError{4, false}, "", 0},
		{"led elsewhere for now", func(b *probed) { b.named, b.replicas = testNode+1, []int32{testNode} }, &NoProbePartitionError{4, true}, "", 0},
		{"broker's timestamps", func(b *probed) { b.appendTime = true }, ErrProbeTimestamps, "", 0},
		{"a passing error for a duplicate teaches nothing", func(b *probed) { b.again = 56 }, nil, "Produce", 56},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &probed{marks: ByLogAppendTime, listsIdle: true, armsAnywhere: true, last: map[int64]int32{}, base: map[int64]int64{}}
			l.epoch = 5
			tc.change(l)
			b := &scriptedBroker{handle: l.handle}
			run(t, Config{Dial: b.dial, StateFrom: AsProbed}, func(t *testing.T, ctx context.Context, p *Pool) {
				got, session, err := p.Probe(ctx, testNode, "probe")
				var refused *BrokerError
				var none, wantNone *NoProbePartitionError
				switch {
				case got != Behaviour{} || session != 0:
					t.Errorf("got %+v in session %d, want nothing", got, session)
				case tc.want == nil:
					if !errors.As(err, &refused) || refused.Op != tc.op || refused.Code != tc.code {
						t.Errorf("got %v, want %s with code %d", err, tc.op, tc.code)
					}
				case errors.As(tc.want, &wantNone):
					if !errors.As(err, &none) || *none != *wantNone {
						t.Errorf("got %v, want %+v", err, wantNone)
					}
				case !errors.Is(err, tc.want):
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}

// What was learnt on a connection ends with it: the broker behind the next one
// may be another version.
func TestBehaviourEndsWithItsConnection(t *testing.T) {
	l := &probed{marks: ByLogAppendTime, listsIdle: true, armsAnywhere: false, last: map[int64]int32{}, base: map[int64]int64{}}
	l.epoch, l.ends, l.high = 5, []int64{1}, 1
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial, StateFrom: AsProbed}, func(t *testing.T, ctx context.Context, p *Pool) {
		view := func() error {
			_, err := p.ReadView(ctx, testNode, testTopic, 0)
			return err
		}
		if err := view(); !errors.Is(err, ErrNotProbed) {
			t.Errorf("before a probe: got %v, want ErrNotProbed", err)
		}
		_, first, err := p.Probe(ctx, testNode, "probe")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(view(), p.Confirm(ctx, testNode, first)); err != nil {
			t.Error(err)
		}
		if v, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil || !v.ArmAtZero {
			t.Errorf("got %+v, %v, want a view that says with what the fence is armed", v, err)
		}
		c, err := p.connection(ctx, testNode)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.broken("read from", errors.New("cut"))
		if err := view(); !errors.Is(err, ErrNotProbed) {
			t.Errorf("after the connection was lost: got %v, want ErrNotProbed", err)
		}
		if err := p.Confirm(ctx, testNode, first); !errors.Is(err, ErrNotProbed) {
			t.Errorf("the lost session: got %v, want ErrNotProbed", err)
		}
		_, second, err := p.Probe(ctx, testNode, "probe")
		if err != nil || second == first {
			t.Errorf("got session %d again (%v), want another", second, err)
		}
		if err := view(); err != nil {
			t.Error(err)
		}
	})
}

// A broker that was not probed may or may not list idle producers. If it does
// not, its log's last batch gives it away.
func TestViewOfABrokerThatMayNotListIdleProducers(t *testing.T) {
	for _, tc := range []struct {
		name      string
		listed    bool
		age       int64 // of the last batch, in ms
		producer  int64
		wantState bool
	}{
		{"lists it", true, 0, testFence, true},
		{"does not list it", false, 1000, testFence, true},
		{"has forgotten it", false, youngState.Milliseconds() + 1000, testFence, false},
		{"never had it", false, 0, 99, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &leader{epoch: 5, ends: []int64{11}, high: 11}
			b := &scriptedBroker{handle: l.handle}
			run(t, Config{Dial: b.dial, StateFrom: DescribeOrTail}, func(t *testing.T, ctx context.Context, p *Pool) {
				at := time.Now().UnixMilli() - tc.age
				l.batches = [][]byte{storedBatch(10, tc.producer, 0, 4, at, "a")}
				if tc.listed {
					l.producers = append(l.producers, producer(testFence, 0, 4, at))
				}
				v, err := p.ReadView(ctx, testNode, testTopic, 0)
				if err != nil {
					t.Fatal(err)
				}
				want := View{LeaderEpoch: 5, LogEnd: 11, HighWatermark: 11, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1}
				if tc.wantState {
					want.HasState, want.LastSequence, want.ProducerEpoch, want.LastTimestamp = true, 4, 0, at
				}
				if v != want {
					t.Errorf("got %+v, want %+v", v, want)
				}
			})
		})
	}
}

// kfake itself, whose marks are its own, on a topic that has to be made.
func TestProbeKfake(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	testProbe(t, dialCluster(t, Config{StateFrom: AsProbed}, cluster.ListenAddrs()...),
		Behaviour{Duplicates: ByLogStartOffset, ArmsAnywhere: true, ChecksSequences: true})
}

// testProbe makes the topic, with a partition led by each broker, and probes.
func testProbe(t *testing.T, c *liveCluster, want Behaviour) {
	topic := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	ctx := t.Context()
	var nodes []int32
	for node := range c.addresses {
		nodes = append(nodes, node)
	}
	// Before KRaft the controller alone creates.
	var failures []error
	for _, node := range nodes {
		err := c.pool.CreateTopic(ctx, node, topic, nodes[:1], map[string]string{"retention.ms": "86400000"})
		if err == nil {
			failures = nil
			break
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		c.addProbePartition(t, topic, node, nodes)
		for range 2 { // the second finds the topic written
			got, _, err := c.pool.Probe(ctx, node, topic)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("broker %d: got %+v, want %+v", node, got, want)
			}
		}
	}
}
