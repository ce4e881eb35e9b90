package proxy

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// observeAll are the rules of a proxy that only observes.
func observeAll() []Rule { return []Rule{{Topics: "seen*", Mode: ModeObserve}} }

// observed reads the counters of observed batches that are not 0.
func (r *fencedRig) observed() map[string]int64 { return nonZero(r.metrics.observed) }

func nonZero(c counts) map[string]int64 {
	got := map[string]int64{}
	for name, n := range c {
		if n := n.Load(); n != 0 {
			got[name] = n
		}
	}
	return got
}

// wantObserved waits until the counters are as wanted.
func (r *fencedRig) wantObserved(want map[string]int64) {
	r.t.Helper()
	for deadline := time.Now().Add(seamPatience); fmt.Sprint(r.observed()) != fmt.Sprint(want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("observed: got %v, want %v", r.observed(), want)
		}
	}
}

// knowing waits until an observed topic was looked up.
func (r *fencedRig) knowing(topics ...string) {
	r.t.Helper()
	for _, topic := range topics {
		r.fencing.topics.look(0, topic)
		r.await(topic+" is known", func() bool {
			_, known := r.fencing.topics.peek(topic)
			return known
		})
	}
}

// What the fence would have said of each batch is counted.
func TestObservedOutcomes(t *testing.T) {
	l := newLeader(t, "seen", "seenappendtime")
	l.topics["seenappendtime"].appendTime = true
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll()})
	r.knowing("seen", "seenappendtime")
	client := r.dial()
	want, refusals := map[string]int64{}, map[string]int64{}
	send := func(outcome string, code int16, topic string, batch []byte) {
		t.Helper()
		got := resultsOf(client.produce(9, -1, part{topic: topic, records: batch}))
		if len(got) != 1 || got[0].Code != code {
			t.Errorf("%s: got %+v, want code %d", outcome, got, code)
		}
		want[outcome]++
		r.wantObserved(want)
	}
	refused := func(reason string, topic string, batch []byte) {
		t.Helper()
		send(outcomeRefused, 0, topic, batch)
		refusals[reason]++
		if got := nonZero(r.metrics.observedRefusals); fmt.Sprint(got) != fmt.Sprint(refusals) {
			t.Errorf("%s: got refusals %v, want %v", reason, got, refusals)
		}
	}
	send(outcomeWon, 0, "seen", conditional(0, "a", "b"))
	send(outcomeTaken, 0, "seen", conditional(1, "c"))
	send(outcomeNotReached, 0, "seen", conditional(4, "d"))
	send(outcomeWon, 0, "seen", identified(4, "e"))
	send(observedUnconditional, 0, "seen", plain("f"))
	send(observedAtEnd, 0, "seen", batchOf(batchOptions{}, record{value: "g", expected: "end"}))
	send(observedUnready, 3, "seen9", conditional(0, "h")) // the topic is not there
	l.change(func() {
		l.edit = func(a *kmsg.ProduceResponse) { a.Topics[0].Partitions[0].ErrorCode = 10 }
	})
	send(outcomeBroker, 10, "seen", conditional(9, "refused by the broker"))
	l.change(func() { l.edit = nil })
	refused(refusalRecord, "seen", batchOf(batchOptions{}, record{value: "i", expected: "-1"}))
	refused(refusalRecord, "seen", batchOf(batchOptions{producerID: defaultFenceID}, record{value: "j", expected: "7"}))
	refused(refusalRecord, "seenappendtime", conditional(0, "without an append-id"))
	send(outcomeWon, 0, "seenappendtime", identified(1, "with one"))
	refused(refusalTimestamp, "seen", batchOf(batchOptions{timestamp: time.Now().Add(-30 * time.Hour).UnixMilli()}, record{value: "k", expected: "9"}))
	refused(refusalTransaction, "seen", batchOf(batchOptions{producerID: 5, attributes: 16}, record{value: "l", expected: "9"}))
	if got, want := l.values("seen", 0), 12; len(got) != want {
		t.Errorf("the log has %q, want %d records", got, want)
	}
	if n := r.outcomes(outcomeRefused) + r.outcomes(outcomeWon); n != 0 || r.lanes() != 0 {
		t.Errorf("%d batches were fenced", n)
	}
	// An operator sees the first of each kind and topic, and at level debug the others.
	const told = " msg=\"batch would be refused by a rule that does more than observe"
	if info, debug := r.log.count("level=INFO"+told), r.log.count("level=DEBUG"+told); info != 6 || debug != 1 {
		t.Errorf("%d refusals are told at level info and %d at debug, want 6 and 1", info, debug)
	}
}

// Of topics that clients make up the operator is told nothing, or they could fill the log.
func TestMadeUpTopicsDoNotFillTheLog(t *testing.T) {
	l := newLeader(t, "seen")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll()})
	r.knowing("seen")
	c := r.dial()
	const told = " msg=\"batch would be refused by a rule that does more than observe"
	for i, topic := range []string{"seen-nowhere", "seen-nor-there", "seen"} {
		c.produce(9, -1, part{topic: topic, records: batchOf(batchOptions{producerID: 5, attributes: 16}, record{value: "v", expected: "9"})})
		r.wantObserved(map[string]int64{outcomeRefused: int64(i + 1)})
	}
	r.await("all are told", func() bool { return r.log.count(told) == 3 })
	if got := r.log.count("level=INFO" + told); got != 1 {
		t.Errorf("got %d lines at level info, want that of the topic that exists", got)
	}
}

// Whatever an observed topic is sent goes to the broker as it came, with other
// correlation ids, and the answer comes back as the broker gave it, with the
// proxy's addresses. The same under a rule that fences does not.
func TestObservedRequestsPassByteForByte(t *testing.T) {
	junk := []byte("no record batch at all")
	for version := int16(3); version <= 13; version++ {
		for name, batch := range map[string][]byte{
			"conditional": conditional(0, "a"), "malformed": batchOf(batchOptions{}, record{value: "a", expected: "x"}),
			"unconditional": plain("a"), "junk": junk, "null": nil,
			"transactional": batchOf(batchOptions{producerID: 9, attributes: 16}, record{value: "a", expected: "0"}),
		} {
			for _, mode := range []Mode{ModeObserve, ModeEnforce} {
				t.Run(fmt.Sprintf("v%d/%s/%s", version, name, map[Mode]string{ModeObserve: "observe", ModeEnforce: "enforce"}[mode]), func(t *testing.T) {
					l := newLeader(t, "seen", "free")
					var frames [][]byte
					l.onFrame = func(frame []byte) { frames = append(frames, bytes.Clone(frame)) }
					l.edit = func(a *kmsg.ProduceResponse) {
						p := &a.Topics[0].Partitions[0]
						p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 0, 7
						a.ThrottleMillis = 3
						p.ErrorMessage = kmsg.StringPtr("as the broker says")
						broker := kmsg.NewProduceResponseBroker()
						broker.Host, broker.Port = "127.0.0.1", l.server.Port()
						a.Brokers = append(a.Brokers, broker)
					}
					r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: []Rule{{Topics: "seen*", Mode: mode}}})
					r.knowing("seen")
					for name, log := range l.topics { // as learnt from answers to clients
						if _, err := r.fencing.topics.name(log.id, func() (string, error) { return name, nil }); err != nil {
							t.Fatal(err)
						}
					}
					client := r.dial()
					request := produceOf(version, 1, part{topic: "seen", id: l.topics["seen"].id, records: batch},
						part{topic: "free", id: l.topics["free"].id, partition: 1, records: plain("b")})
					answer := client.expect(client.send(request), version)
					l.mu.Lock()
					defer l.mu.Unlock()
					sent := request.AppendTo(nil)
					untouched := len(frames) == 1 && bytes.HasSuffix(frames[0], sent)
					if untouched != (mode == ModeObserve) {
						t.Errorf("%d frames at the broker, unchanged: %v", len(frames), untouched)
					}
					if mode != ModeObserve || version < 8 {
						return
					}
					p := answer.Topics[0].Partitions[0]
					if p.ErrorMessage == nil || *p.ErrorMessage != "as the broker says" || answer.ThrottleMillis != 3 {
						t.Errorf("the answer is not the broker's: %+v", answer)
					}
					if version >= 10 && (p.CurrentLeader.LeaderEpoch != 7 || len(answer.Brokers) != 1 || answer.Brokers[0].Port == l.server.Port()) {
						t.Errorf("the new leader is not passed on, or with its own address: %+v", answer)
					}
				})
			}
		}
	}
}

// Without an answer, nothing is known.
func TestObservedWithoutAnAnswer(t *testing.T) {
	l := newLeader(t, "seen", "fenced")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: append(observeAll(), Rule{Topics: "fenced", Mode: ModeRequire})})
	r.knowing("seen", "fenced")
	client := r.dial()
	client.send(produceOf(9, 0, part{topic: "seen", records: conditional(0, "a")}))
	r.wantObserved(map[string]int64{observedUnanswered: 1})
	r.await("the broker has it", func() bool { return l.end("seen", 0) == 1 })
	l.hook(func(*kmsg.ProduceRequest) fate { return fateCutAfter })
	client.send(produceOf(9, 1, part{topic: "seen", records: conditional(1, "b")}))
	r.wantObserved(map[string]int64{observedUnanswered: 1, observedLost: 1})

	client = r.dial() // beside a fenced partition, with acks of its own
	client.send(produceOf(9, 1, part{topic: "fenced", records: conditional(0, "c")}, part{topic: "seen", records: conditional(2, "d")}))
	r.wantObserved(map[string]int64{observedUnanswered: 1, observedLost: 2})
}

// Observed partitions beside fenced ones go with the client's acks, untouched,
// and are judged by the same answer.
func TestObservedBesideFenced(t *testing.T) {
	l := newLeader(t, "seen", "fenced")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: append(observeAll(), Rule{Topics: "fenced", Mode: ModeRequire})})
	r.knowing("seen", "fenced")
	client := r.dial()
	seen := conditional(3, "a")
	results := resultsOf(client.produce(9, 1, part{topic: "seen", records: seen}, part{topic: "fenced", records: conditional(0, "b")},
		part{topic: "seen", partition: 1, records: conditional(0, "c")}))
	for i, want := range []result{{Topic: "seen"}, {Topic: "fenced"}, {Topic: "seen", Partition: 1}} {
		if results[i] != want {
			t.Errorf("got %+v, want %+v", results[i], want)
		}
	}
	r.wantObserved(map[string]int64{outcomeNotReached: 1, outcomeWon: 1})
	for _, q := range l.requests() {
		if q.Topics[0].Topic == "seen" && (q.Acks != 1 || !bytes.Equal(q.Topics[0].Partitions[0].Records, seen)) {
			t.Errorf("the observed partition arrived with acks %d or changed", q.Acks)
		}
	}
}

// A topic that could not be fenced is told once, and its writers go on.
func TestObservedTopicThatCouldNotBeFenced(t *testing.T) {
	l := newLeader(t, "seen")
	l.configs = map[string]string{configProducerExpiry: "1000", configConnectionIdle: "600000"}
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll()})
	r.knowing("seen")
	client := r.dial()
	for i := range int64(3) {
		if got := resultsOf(client.produce(9, -1, part{topic: "seen", records: conditional(i, "a")})); got[0].Code != 0 {
			t.Errorf("got %+v", got)
		}
		r.fencing.topics.forget("seen")
		r.knowing("seen")
	}
	r.wantObserved(map[string]int64{outcomeRefused: 3})
	if got := nonZero(r.metrics.observedRefusals); got[refusalNotServed] != 3 {
		t.Errorf("refusals: got %v", got)
	}
	if n := r.log.count("topic is observed and could not be fenced"); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	if n := r.metrics.unserved.Load(); n != 0 {
		t.Errorf("%d topics count as refused", n)
	}
}

// Where topics are only observed, nobody waits for a topic id's name, and what
// cannot be read is the broker's business.
func TestObserveNeverHoldsARequest(t *testing.T) {
	l := newLeader(t, "seen")
	l.lenient = true
	ask := make(chan struct{})
	l.onOther = func(r kmsg.Request) bool {
		if m, ok := r.(*kmsg.MetadataRequest); ok && len(m.Topics) > 0 {
			l.wait(ask)
		}
		return true
	}
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll()})
	client := r.dial()
	id := l.topics["seen"].id
	if got := resultsOf(client.produce(13, -1, part{id: id, records: conditional(0, "a")})); got[0].Code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := resultsOf(client.produce(9, -1, part{topic: "seen", records: conditional(1, "b")})); got[0].Code != 0 {
		t.Errorf("got %+v", got)
	}
	r.wantObserved(map[string]int64{observedUnnamed: 1, observedUnready: 1})
	close(ask)
	r.await("the topic is known", func() bool { _, known := r.fencing.topics.peek("seen"); return known })
	client.produce(9, -1, part{topic: "seen", records: conditional(2, "c")})
	r.wantObserved(map[string]int64{observedUnnamed: 1, observedUnready: 1, outcomeWon: 1})

	transaction := kmsg.NewPtrAddPartitionsToTxnRequest()
	transaction.Version = 3
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = "seen", []int32{0}
	transaction.Topics = append(transaction.Topics, topic)
	answer := kmsg.NewPtrAddPartitionsToTxnResponse()
	answer.Version = 3
	client.Expect(client.send(transaction), answer)
	if l.count(kmsg.AddPartitionsToTxn) != 1 {
		t.Error("the transaction did not reach the broker")
	}
}

// A request with more partitions than are looked at passes uncounted.
func TestObserveIsBounded(t *testing.T) {
	l := newLeader(t, "seen")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll(), MaxProducePartitions: 1})
	r.knowing("seen")
	got := resultsOf(r.dial().produce(9, -1, part{topic: "seen", records: conditional(0, "a")}, part{topic: "seen", partition: 1, records: conditional(0, "b")}))
	if len(got) != 2 || got[0].Code != 0 || got[1].Code != 0 {
		t.Errorf("got %+v", got)
	}
	r.wantObserved(map[string]int64{observedUncounted: 2})
}

// An answer that is too long to be looked at passes all the same.
func TestObservedAnswerThatIsTooLong(t *testing.T) {
	l := newLeader(t, "seen")
	l.edit = func(a *kmsg.ProduceResponse) {
		a.Topics[0].Partitions[0].ErrorMessage = kmsg.StringPtr(string(make([]byte, 4096)))
	}
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: observeAll(), MaxRewrittenBytes: 2048})
	r.knowing("seen")
	got := resultsOf(r.dial().produce(8, -1, part{topic: "seen", records: conditional(0, "a")}))
	if len(got) != 1 || got[0].Code != 0 || len(got[0].Message) != 4096 {
		t.Errorf("got %+v", got)
	}
	r.wantObserved(map[string]int64{observedLost: 1})
}

// Answers of brokers that make no sense are passed on, and count as lost.
func FuzzObservedAnswer(f *testing.F) {
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = 9
	topic, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
	topic.Topic, partition.BaseOffset = "seen", 7
	topic.Partitions = append(topic.Partitions, partition)
	answer.Topics = append(answer.Topics, topic)
	f.Add(append([]byte{0}, answer.AppendTo(nil)...), int16(9))
	f.Add([]byte{}, int16(3))
	answer.Topics[0].Partitions[0].BaseOffset = 8 // of which the operator is told
	f.Add(append([]byte{0}, answer.AppendTo(nil)...), int16(9))
	m := &metrics{observed: newCounts(observedNames)}
	forewarned, err := newOnceByTopic(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < 0 || version > 13 {
			return
		}
		before := total(m.observed)
		b := &watched{f: &fencing{
			metrics: m, logger: slog.New(slog.DiscardHandler), forewarned: forewarned, readings: &readingQueues{ctx: t.Context()},
		}, topic: "seen", name: "seen", expected: 7}
		(&watch{version: version, batches: []*watched{b, b}}).answered(body)
		if got := total(m.observed) - before; got != 2 {
			t.Fatalf("%d batches counted, want 2", got)
		}
	})
}

func total(c counts) (sum int64) {
	for _, n := range c {
		sum += n.Load()
	}
	return sum
}
