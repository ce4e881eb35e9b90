package proxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// mixedPart is a part of a mixed request and what must come of it.
type mixedPart struct {
	part
	code    int16
	message string
	plain   bool // not under a rule
	sent    bool // reaches the broker
}

// mixedParts is one of everything that can stand in a request.
func mixedParts(l *leader) []mixedPart {
	id := func(topic string) [16]byte {
		if log := l.topics[topic]; log != nil {
			return log.id
		}
		return [16]byte{8}
	}
	on := func(topic string, partition int32, records []byte) part {
		return part{topic, id(topic), partition, records}
	}
	return []mixedPart{
		{part: on("free", 0, plain("x")), plain: true, sent: true},
		{part: on("free", 1, conditional(7, "y")), plain: true, sent: true},
		{part: on("free", 9, plain("z")), code: 3, plain: true, sent: true},
		{part: on("fenced", 0, conditional(0, "won")), sent: true},
		{part: on("fenced", 1, conditional(0, "late")), code: 1, message: "expected-offset taken: expected=0 next=1"},
		{part: on("fenced", 2, conditional(3, "early")), code: 1, message: "expected-offset not reached: expected=3 next=0"},
		{part: on("fenced", 3, plain("none")), code: 87, message: "the topic requires an expected-offset header on every record"},
		{part: on("fenced-too", 0, conditional(0, "won", "too")), sent: true},
		{part: on("fenced-too", 1, atEnd("won", "at", "end")), sent: true},
		{part: on("fenced-too", 2, batchOf(batchOptions{}, record{expected: "x"})), code: 87, message: "record 0: " + `expected-offset is neither a decimal number nor "end"`},
		{part: on("fenced-unknown", 0, conditional(0, "nowhere")), code: 3},
		{part: on("enforced", 0, plain("won", "without", "condition")), sent: true},
		{part: on("enforced", 1, conditional(0, "won")), sent: true},
		{part: on("enforced", 2, conditional(4, "early")), code: 1, message: "expected-offset not reached: expected=4 next=0"},
		{part: on("observed", 0, conditional(9, "seen")), plain: true, sent: true},
		{part: on("observed", 1, plain("seen")), plain: true, sent: true},
	}
}

// Any mix is answered in the order of the request, whatever became of which
// part where, and the broker gets each part as its writer meant it.
func TestMixedRequests(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		version := int16(3 + random.IntN(11))
		acks := []int16{-1, 1}[random.IntN(2)]
		t.Run(fmt.Sprintf("seed%d_v%d_acks%d", seed, version, acks), func(t *testing.T) {
			l := newLeader(t, "free", "fenced", "fenced-too", "enforced", "observed")
			c := newFencedRig(t, Config{Rules: []Rule{
				{Topics: "enforced", Mode: ModeEnforce}, {Topics: "observed", Mode: ModeObserve},
			}}, l).dial()
			wantResult(t, c.one(1, conditional(0, "first")), 0, 0, "")
			all := mixedParts(l)
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			all = all[:1+random.IntN(len(all))]
			var parts []part
			for _, p := range all {
				p.records = bytes.Clone(p.records)
				parts = append(parts, p.part)
			}
			l.change(func() { l.received = nil })
			results := resultsOf(c.produce(version, acks, parts...))
			if len(results) != len(all) {
				t.Fatalf("got %d results, want %d", len(results), len(all))
			}
			for i, p := range all {
				got := results[i]
				if got.Partition != p.partition || version < 13 && got.Topic != p.topic || version >= 13 && got.ID != p.id[15] {
					t.Errorf("result %d: got %s/%d-%d, want %s-%d", i, got.Topic, got.ID, got.Partition, p.topic, p.partition)
				}
				if version < 8 {
					p.message = ""
				}
				if p.topic == "fenced-unknown" && version >= 13 {
					p.code = 100 // it is the id that is unknown
				}
				base := int64(-1)
				if p.code == 0 {
					base = 0
				}
				wantResult(t, got, p.code, base, p.message)
			}
			checkReceived(t, l, all, version, acks)
		})
	}
}

// checkReceived checks that each part that was to reach the broker did so once:
// stamped and with acks −1 if it is fenced, else untouched and with the
// client's own acks.
func checkReceived(t *testing.T, l *leader, sent []mixedPart, version, acks int16) {
	t.Helper()
	seen := map[string]int{}
	name := func(topic string, id [16]byte, partition int32) string {
		if version >= 13 {
			topic = ""
		} else {
			id = [16]byte{}
		}
		return fmt.Sprint(topic, id[15], "-", partition)
	}
	wanted := map[string]mixedPart{}
	for _, p := range sent {
		if p.sent {
			wanted[name(p.topic, p.id, p.partition)] = p
		}
	}
	for _, r := range l.requests() {
		if r.Version != version {
			t.Errorf("got version %d at the broker, want %d", r.Version, version)
		}
		if r.TimeoutMillis <= 0 || r.TimeoutMillis > 4000 {
			t.Errorf("got timeout %d at the broker, want what is left of 4000", r.TimeoutMillis)
		}
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				n := name(topic.Topic, topic.TopicID, p.Partition)
				seen[n]++
				want, ok := wanted[n]
				switch {
				case !ok:
					t.Errorf("%s: reached the broker", n)
				case want.plain:
					if r.Acks != acks || !bytes.Equal(p.Records, want.records) {
						t.Errorf("%s: got acks %d and other bytes %v, want acks %d and the client's bytes", n, r.Acks, !bytes.Equal(p.Records, want.records), acks)
					}
				default:
					checkStamp(t, n, r.Acks, p.Records, want.records)
				}
			}
		}
	}
	for n := range wanted {
		if seen[n] != 1 {
			t.Errorf("%s: reached the broker %d times, want once", n, seen[n])
		}
	}
}

// checkStamp checks a stamped batch that arms the fence at offset 0.
func checkStamp(t *testing.T, name string, acks int16, got, sent []byte) {
	t.Helper()
	h := headerOf(t, got) // the checksum holds
	if acks != -1 || h.ProducerID != defaultFenceID || h.ProducerEpoch != 0 || h.BaseSequence != 0 {
		t.Errorf("%s: got acks %d, id %x, epoch %d, sequence %d; want −1, the fence's, 0, 0", name, acks, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	if !bytes.Equal(got[61:], sent[61:]) || h.NumRecords != headerOf(t, sent).NumRecords {
		t.Errorf("%s: records were changed", name)
	}
	if h.MaxTimestamp != h.FirstTimestamp || h.Attributes != 0 {
		t.Errorf("%s: got max timestamp %d, attributes %x; want %d, 0", name, h.MaxTimestamp, h.Attributes, h.FirstTimestamp)
	}
}

// The header is made what the broker would make of it.
func TestStampNormalisesTheHeader(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{}, l).dial()
	now := time.Now().UnixMilli()
	sent := batchOf(batchOptions{timestamp: now, maxTime: now + 1e6, producerID: 5, attributes: 0x7f08}, record{value: "a", expected: "0"})
	wantResult(t, c.one(0, sent), 0, 0, "")
	checkStamp(t, "fenced", -1, l.requests()[0].Topics[0].Partitions[0].Records, sent)
}

func TestPartitionNamedTwice(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	c := newFencedRig(t, Config{}, l).dial()
	results := resultsOf(c.produce(9, -1,
		part{topic: "fenced", records: conditional(0, "a")},
		part{topic: "free", records: plain("x")},
		part{topic: "fenced", records: conditional(1, "b")}))
	if len(results) != 3 {
		t.Fatalf("got %d results, want 3", len(results))
	}
	wantResult(t, results[0], 0, 0, "")
	wantResult(t, results[1], 0, 0, "")
	wantResult(t, results[2], 42, -1, "the partition is named twice in one request")
	if got := l.values("fenced", 0); len(got) != 1 {
		t.Errorf("got log %q, want a alone", got)
	}
}

// acks=0: no answer. A refusal closes the connection.
func TestNoAcks(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	c.send(produceOf(9, 0, part{topic: "free", records: plain("x")}, part{topic: "fenced", records: conditional(0, "a")}))
	c.send(produceOf(9, 0, part{topic: "fenced", records: conditional(1, "b")}))
	groups := c.send(listGroups())
	if got := c.NextID(); got != groups {
		t.Fatalf("got an answer to %d, want to %d alone", got, groups)
	}
	await(t, "both are in the log", func() bool { return l.end("fenced", 0) == 2 && l.end("free", 0) == 1 })
	for _, q := range l.requests() {
		want := int16(0)
		if q.Topics[0].Topic == "fenced" {
			want = -1
		}
		if q.Acks != want || len(q.Topics) != 1 {
			t.Errorf("got acks %d for %d topics from %s on, want %d for one", q.Acks, len(q.Topics), q.Topics[0].Topic, want)
		}
	}
	c.send(produceOf(9, 0, part{topic: "fenced", records: conditional(1, "taken")}))
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x, want no answer", rest)
	}
	c = r.dial()
	c.send(produceOf(9, 0, part{topic: "fenced", records: plain("malformed")}))
	c.ExpectClosed()
	r.awaitQuiet()
}

func TestThrottleTimeIsTheLarger(t *testing.T) {
	for _, times := range [][2]int32{{5, 100}, {100, 5}} {
		l := newLeader(t, "fenced", "free")
		c := newFencedRig(t, Config{}, l).dial()
		l.change(func() {
			l.edit = func(a *kmsg.ProduceResponse) { a.ThrottleMillis = times[len(l.received)-1] }
		})
		// acks=1, so that the request is split.
		a := c.produce(9, 1, part{topic: "free", records: plain("x")}, part{topic: "fenced", records: conditional(0, "a")})
		if n := len(l.requests()); n != 2 {
			t.Fatalf("got %d requests at the broker, want 2", n)
		}
		if a.ThrottleMillis != 100 {
			t.Errorf("got throttle time %d of %v, want 100", a.ThrottleMillis, times)
		}
	}
}

// warm has the proxy read the views of partitions 0 to 3, so that batches for
// them go at once.
func warm(t *testing.T, c *fencedClient) {
	t.Helper()
	for p := range int32(4) {
		if got := c.one(p, conditional(1000, "beyond")); got.Code != 1 {
			t.Fatalf("partition %d: got code %d, want 1", p, got.Code)
		}
	}
}

func TestAnswerInAnotherOrder(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	c := newFencedRig(t, Config{}, l).dial()
	warm(t, c)
	l.change(func() {
		l.edit = func(a *kmsg.ProduceResponse) {
			a.Topics[0], a.Topics[1] = a.Topics[1], a.Topics[0]
			p := a.Topics[0].Partitions
			p[0], p[1] = p[1], p[0]
		}
	})
	results := resultsOf(c.produce(9, -1, part{topic: "free", records: plain("x")},
		part{topic: "fenced", partition: 1, records: conditional(0, "a", "b")}, part{topic: "fenced", partition: 2, records: conditional(0, "c")}))
	for i, want := range []int32{0, 1, 2} {
		if results[i].Partition != want {
			t.Errorf("result %d: got partition %d, want %d", i, results[i].Partition, want)
		}
		wantResult(t, results[i], 0, 0, "")
	}
	if n := len(l.requests()); n != 1 {
		t.Errorf("got %d requests at the broker, want all in one", n)
	}
}

// A broker that leaves out a partition has said nothing of it. What is fenced
// can be read back; without the rest there is no answer at all.
func TestAnswerWithoutAPartition(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	warm(t, c)
	leaveOut := func(topic string) {
		l.change(func() {
			l.edit = func(a *kmsg.ProduceResponse) {
				for i := range a.Topics {
					if a.Topics[i].Topic == topic {
						a.Topics[i].Partitions = nil
					}
				}
			}
		})
	}
	leaveOut("fenced")
	results := resultsOf(c.produce(9, -1, part{topic: "free", records: plain("x")}, part{topic: "fenced", records: identified(0, "a")}))
	wantResult(t, results[0], 0, 0, "")
	wantResult(t, results[1], 0, 0, "")
	leaveOut("free")
	c.send(produceOf(9, -1, part{topic: "free", records: plain("y")}, part{topic: "fenced", records: identified(1, "b")}))
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x, want no answer", rest)
	}
	r.awaitQuiet()
}

// An answer that is none ends the connection and leaves the batch unknown.
func TestAnswerThatCannotBeRead(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	l.change(func() {
		l.edit = func(a *kmsg.ProduceResponse) { a.Topics[0].Partitions = nil }
	})
	c := r.dial()
	wantResult(t, c.one(0, identified(0, "a")), 0, 0, "")
	wantResult(t, c.one(0, conditional(1, "b")), -1, -1, "outcome unknown: expected=1 next=2; read the partition from 1")
	r.awaitQuiet()
}
