package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// probedID is the state of a producer id that a probe uses.
type probedID struct {
	sequence int32
	base     int64
	stamp    int64
}

func isProbe(id int64) bool { return id >= 1<<62 && id != defaultFenceID }

// appendProbe is append for those ids.
func (p *partitionLog) appendProbe(h wire.BatchHeader, batch []byte, answer *kmsg.ProduceResponseTopicPartition) {
	switch last, known := p.probed[h.ProducerID]; {
	case known && h.BaseSequence == last.sequence:
		answer.BaseOffset, answer.LogAppendTime = last.base, last.stamp
		return
	case known && h.BaseSequence != last.sequence+1:
		answer.ErrorCode = kerr.OutOfOrderSequenceNumber.Code
		return
	}
	answer.BaseOffset = p.end
	if p.probed == nil {
		p.probed = map[int64]probedID{}
	}
	p.probed[h.ProducerID] = probedID{h.BaseSequence, p.end, h.MaxTimestamp}
	p.store(batch, false)
}

func (p *partitionLog) probedIDs() []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	var all []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for id, last := range p.probed {
		s := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		s.ProducerID, s.LastSequence, s.LastTimestamp = id, last.sequence, last.stamp
		all = append(all, s)
	}
	return all
}

// createTopic creates one topic, unless it is told to refuse with a code.
func (l *leader) createTopic(r *kmsg.CreateTopicsRequest, code int16) kmsg.Response {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode = r.Topics[0].Topic, code
	if code == 0 {
		l.topics[t.Topic] = newTopicLog(byte(len(l.topics) + 1))
	}
	a := kmsg.NewPtrCreateTopicsResponse()
	a.Topics = append(a.Topics, t)
	return a
}

// unmark has the leader answer duplicates as it answers appends.
func (l *leader) unmark() {
	l.edit = func(a *kmsg.ProduceResponse) {
		for _, t := range a.Topics {
			for i := range t.Partitions {
				t.Partitions[i].LogAppendTime = -1
			}
		}
	}
}

// overtake has a rival's stamped batch reach the leader before the next one that
// is produced, whose sequence it takes.
func (l *leader) overtake(rival []byte) {
	l.onProduce = func(r *kmsg.ProduceRequest) fate {
		if r.Topics[0].Topic != "fenced" {
			return fateAnswer
		}
		wire.Stamp(rival, defaultFenceID, 0, 0, time.Now().UnixMilli())
		l.change(func() {
			l.partition("fenced", 0).store(rival, false)
			l.onProduce = nil
		})
		return fateAnswer
	}
}

const probeTopic = "probe"

// TestUnmarkedBroker does not tell a duplicate from an append, so each success
// is read back. Taken for Kafka, it makes of a lost race a success.
func TestUnmarkedBroker(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cfg      Config
		unmarked bool
		want     result
		values   []string
	}{
		{"probed", Config{ProbeTopic: probeTopic}, true,
			result{Code: kerr.OffsetOutOfRange.Code, Base: -1, Message: "expected-offset taken: expected=0 next=1"}, []string{"rival"}},
		{"probed, and marked", Config{ProbeTopic: probeTopic}, false,
			result{Code: kerr.OffsetOutOfRange.Code, Base: -1, Message: "expected-offset taken: expected=0 next=1"}, []string{"rival"}},
		{"twin: taken for Kafka", Config{BrokerKind: ApacheKafka, ProbeTopic: "nowhere"}, true,
			result{Code: 0, Base: 0}, []string{"rival"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			l.change(func() {
				if tc.unmarked {
					l.unmark()
				}
				l.overtake(identified(0, "rival"))
			})
			c := newFencedRig(t, tc.cfg, l).dial()
			wantResult(t, c.one(0, identified(0, "mine")), tc.want.Code, tc.want.Base, tc.want.Message)
			if got := l.values("fenced", 0); len(got) != 1 || got[0] != "rival" {
				t.Errorf("the log holds %q, want the rival's alone", got)
			}
		})
	}
}

// TestUnmarkedBrokerNeedsAppendIDs, since equal records cannot be told apart
// there; nothing else is asked of clients.
func TestUnmarkedBrokerNeedsAppendIDs(t *testing.T) {
	l := newLeader(t, "fenced")
	l.change(func() { l.codes[kmsg.CreateTopics] = kerr.TopicAuthorizationFailed.Code })
	r := newFencedRig(t, Config{ProbeTopic: probeTopic, Rules: []Rule{{Topics: "fenced*", Mode: ModeEnforce}}}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), kerr.InvalidRecord.Code, -1, messageUnmarked)
	if n := l.count(kmsg.Fetch); n != 0 {
		t.Errorf("got %d fetches for a refused batch", n)
	}
	wantResult(t, c.one(0, identified(0, "b")), 0, 0, "")
	if n := l.count(kmsg.Fetch); n == 0 {
		t.Error("the success was not read back")
	}
	wantResult(t, c.one(0, plain("c")), 0, 1, "")
	if n := r.log.count("grant its principal CREATE"); n != 1 {
		t.Errorf("got %d log lines that say what is missing, want 1", n)
	}
	// Once the operator has mended it, nobody has to restart anything.
	l.change(func() { l.topics[probeTopic] = newTopicLog(99) })
	if err := r.fencing.kinds.again(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantResult(t, c.one(0, conditional(2, "d")), 0, 2, "")
}

// TestProbeThatFailsForNow has clients send again, until it works.
func TestProbeThatFailsForNow(t *testing.T) {
	l := newLeader(t, "fenced", probeTopic)
	l.change(func() {
		l.onOther = func(r kmsg.Request) bool {
			m, ok := r.(*kmsg.MetadataRequest)
			return !ok || len(m.Topics) == 0 || m.Topics[0].Topic == nil || *m.Topics[0].Topic != probeTopic
		}
	})
	c := newFencedRig(t, Config{ProbeTopic: probeTopic}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), kerr.NotLeaderForPartition.Code, -1, "the broker cannot be probed now; send again")
	l.change(func() { l.onOther = nil })
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
}

// TestKfakeIsLearnt needs nothing said about it, and makes what it is probed on.
func TestKfakeIsLearnt(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(9, "fenced"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := startFenced(t, Config{Bootstrap: cluster.ListenAddrs(), ProbeTopic: probeTopic})
	r.await("all brokers are probed", func() bool { return r.metrics.kinds["log_start_offset"].Load() == 3 })
	client, err := kgo.NewClient(kgo.SeedBrokers(r.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for p := range int32(9) { // kfake picks leaders at random: most likely all
		for i, want := range []error{nil, kerr.OffsetOutOfRange} {
			record := &kgo.Record{Topic: "fenced", Partition: p, Value: []byte{byte(i)}, Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte("0")}}}
			if err := client.ProduceSync(t.Context(), record).FirstErr(); err != want {
				t.Errorf("partition %d, record %d: got %v, want %v", p, i, err, want)
			}
		}
	}
	topics, err := kadm.NewClient(client).ListTopics(t.Context(), probeTopic)
	if err != nil || !topics.Has(probeTopic) {
		t.Errorf("probe topic: %v, %+v", err, topics)
	}
}

// TestKfakeTakenForKafkaIsNotServed: its duplicates would pass for appends.
func TestKfakeTakenForKafkaIsNotServed(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "fenced", probeTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := startFenced(t, Config{
		Bootstrap: cluster.ListenAddrs(), BrokerKind: ApacheKafka, ProbeTopic: probeTopic,
		AssertedProducerExpiry: 24 * time.Hour, AssertedConnectionIdle: 10 * time.Minute,
	})
	r.await("the broker is refused", func() bool { return r.metrics.kinds[kindRefused].Load() == 1 })
	got := r.dial().one(0, conditional(0, "a"))
	if got.Code != kerr.PolicyViolation.Code || !strings.Contains(got.Message, "brokers.kind says kafka") {
		t.Errorf("got %+v, want POLICY_VIOLATION because of brokers.kind", got)
	}
}
