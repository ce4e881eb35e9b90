package proxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// freshStatus takes a Status that is of now.
func (r *fencedRig) freshStatus() *Status {
	r.status.mu.Lock()
	defer r.status.mu.Unlock()
	return r.takeStatus(instant())
}

// partitionOf finds a partition in a Status.
func (s *Status) partitionOf(t *testing.T, topic string, partition int32) PartitionStatus {
	t.Helper()
	for _, p := range s.Partitions {
		if p.Topic == topic && p.Partition == partition {
			return p
		}
	}
	t.Fatalf("%s %d is not among %+v", topic, partition, s.Partitions)
	return PartitionStatus{}
}

func TestStatusShowsWhatGoesOn(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{Default: ModeObserve, MaxConnections: 7}, l)
	c := r.dial()
	wantResult(t, c.one(1, conditional(0, "a", "b")), 0, 0, "")
	wantResult(t, c.one(1, conditional(0, "x")), 1, -1, "expected-offset taken: expected=0 next=2")
	s := r.freshStatus()
	if s.State != stateReady || s.Reason != "" || s.Drain != nil {
		t.Errorf("got state %s, %q, drain %v", s.State, s.Reason, s.Drain)
	}
	if s.Connections.Open != 1 || s.Connections.Max != 7 || s.Traffic.Requests < 2 || s.Traffic.BytesIn == 0 || s.Traffic.BytesOut == 0 {
		t.Errorf("got %+v, %+v", s.Connections, s.Traffic)
	}
	if len(s.Listeners) != 1 || s.Listeners[0].Address != r.Addr() || s.Listeners[0].Connections != 1 {
		t.Errorf("got listeners %+v", s.Listeners)
	}
	if len(s.Brokers) != 1 || s.Brokers[0].Upstream != l.server.Addr() || s.Brokers[0].State != brokerReached || !s.Brokers[0].InCluster ||
		s.Brokers[0].Addresses[s.Listeners[0].Name] != r.BrokerAddrs()[0] || s.Brokers[0].MarksBy != "log_append_time" {
		t.Errorf("got brokers %+v", s.Brokers)
	}
	if len(s.Rules) != 1 || s.Rules[0].Topics != "fenced*" || s.Rules[0].Mode != "require" || len(s.Rules[0].Options) != 0 || s.DefaultMode != "observe" {
		t.Errorf("got rules %+v, default %s", s.Rules, s.DefaultMode)
	}
	if a := s.Appends; a.Outcomes[outcomeWon] != 1 || a.Outcomes[outcomeTaken] != 1 || a.Outcomes[outcomeViolation] != 0 || a.Attempts != 1 || a.Unknown != 0 {
		t.Errorf("got appends %+v", a)
	}
	got := s.partitionOf(t, "fenced", 1)
	if got.ViewAgeMillis < 0 {
		t.Errorf("got a view of age %d", got.ViewAgeMillis)
	}
	got.ViewAgeMillis = 0
	want := PartitionStatus{
		Topic: "fenced", Partition: 1, State: partitionOpen, NextOffset: 2, NextKnown: true, CommittedEnd: 2, Turn: "free",
		LeaderEpoch: got.LeaderEpoch, Losing: 1, Attempts: 1, Appended: 1, Refused: 1,
	}
	if got != want || got.LeaderEpoch < 0 {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// TestStatusKeepsIdlePartitions: they are shown for as long as there is room, with the
// end that is remembered.
func TestStatusKeepsIdlePartitions(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	wantResult(t, r.dial().one(2, conditional(0, "a")), 0, 0, "")
	r.await("the lane is put away", func() bool { return r.lanes() == 0 })
	s := r.freshStatus()
	if got := s.partitionOf(t, "fenced", 2); got.State != partitionIdle || got.NextOffset != 1 || got.Appended != 1 || got.Leader != 0 || !got.NextKnown {
		t.Errorf("got %+v", got)
	}
	if s.PartitionsInUse != 0 || s.PartitionsIdle != 1 || s.PartitionsLeftOut != 0 {
		t.Errorf("got %d in use, %d idle, %d left out", s.PartitionsInUse, s.PartitionsIdle, s.PartitionsLeftOut)
	}
	// In use again, it is not shown twice.
	wantResult(t, r.dial().one(2, conditional(1, "b")), 0, 1, "")
	if s := r.freshStatus(); len(s.Partitions) != 1 || s.Partitions[0].Appended != 2 || s.Appends.Attempts != 2 {
		t.Errorf("got %+v, %d attempts", s.Partitions, s.Appends.Attempts)
	}
}

// TestStatusSeesNothingOfALanePutAway: its partition's state is that of another lane by
// then, which changes it under a lock of its own.
func TestStatusSeesNothingOfALanePutAway(t *testing.T) {
	p := manyLanes(t, 2)
	f := p.fencing
	lanes := f.allLanes()
	for _, l := range lanes {
		l.users.Add(-1)
	}
	f.sweep()
	for _, l := range lanes {
		var g laneGlance
		if !l.glance(&g, instant()) || g.lane != nil {
			t.Errorf("%v: got a look at %+v, want none", l.key, g)
		}
	}
	if s := p.takeStatus(instant()); s.PartitionsInUse != 0 || s.PartitionsIdle != 2 || len(s.Partitions) != 2 {
		t.Errorf("got %d in use, %d idle, %d shown, want 0, 2, 2", s.PartitionsInUse, s.PartitionsIdle, len(s.Partitions))
	}
}

// TestStatusTellsViolationsAndTopics: what a person has to look at.
func TestStatusTellsViolationsAndTopics(t *testing.T) {
	l := newLeader(t, "fenced", "fenced-lost")
	l.change(func() {
		l.edit = func(a *kmsg.ProduceResponse) { a.Topics[0].Partitions[0].BaseOffset += 5 }
		l.topicConfigs = map[string]string{configMinInSync: "1"}
	})
	r := newFencedRig(t, Config{}, l)
	wantResult(t, r.dial().one(0, conditional(0, "a")), -1, -1, "appended at 5, expected 0: another writer bypasses the proxy")
	s := r.freshStatus()
	if len(s.Violations) != 1 || s.Violations[0].Topic != "fenced" || !strings.Contains(s.Violations[0].What, "expected offset 0 was appended at 5") || s.Violations[0].At.IsZero() {
		t.Errorf("got violations %+v", s.Violations)
	}
	if len(s.Topics) != 1 || s.Topics[0].Topic != "fenced" || s.Topics[0].Weak == "" || s.TopicsWeak != 1 {
		t.Errorf("got topics %+v, %d weak", s.Topics, s.TopicsWeak)
	}
}

// TestStatusTellsWhyPartitionsDoNotGoOn: unknown fates come first, and a lane at work
// is not waited for.
func TestStatusTellsWhyPartitionsDoNotGoOn(t *testing.T) {
	l := newLeader(t, "fenced")
	held := make(chan struct{}) // until the test ends
	l.change(func() {
		l.onProduce = func(r *kmsg.ProduceRequest) fate {
			if r.Topics[0].Partitions[0].Partition == 3 {
				l.change(func() { l.onOther = func(kmsg.Request) bool { l.wait(held); return true } })
				return fateCutBefore
			}
			return fateAnswer
		}
	})
	r := newFencedRig(t, Config{}, l)
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
	slow := r.dial()
	slow.send(produceOf(9, -1, part{topic: "fenced", partition: 3, records: conditional(0, "b")}))
	r.await("its fate is unknown", func() bool { return r.freshStatus().Appends.Unknown == 1 })
	s := r.freshStatus()
	if p := s.Partitions[0]; p.Partition != 3 || p.State != partitionUnknown || p.Unknown != 1 || !strings.Contains(p.Why, "became of 1 transmissions") {
		t.Errorf("got first %+v", p)
	}

	busy := r.fencing.lane(ps.Key{Topic: "fenced", ID: l.topics["fenced"].id, Partition: 1})
	defer busy.users.Add(-1)
	busy.mu.Lock()
	s = r.freshStatus()
	busy.mu.Unlock()
	if got := s.partitionOf(t, "fenced", 1); got.State != partitionBusy || s.PartitionsBusy != 1 {
		t.Errorf("got %+v, %d busy", got, s.PartitionsBusy)
	}
}

func TestStatusSaysWhatBatchesWaitFor(t *testing.T) {
	for _, c := range []struct {
		standing fence.Standing
		want     string
	}{
		{fence.Standing{Undecided: 2, Upstream: 1}, "open: "},
		{fence.Standing{Undecided: 1, Turn: fence.TurnPausing}, "held: the next place is left to other proxies for a moment"},
		{fence.Standing{Undecided: 1, Turn: fence.TurnOthers}, "held: it is another proxy's turn"},
		{fence.Standing{Undecided: 1, ReadingView: true}, "held: the end of the log is being read"},
		{fence.Standing{Undecided: 1, ReadingRecords: true}, "held: records are being read from the log"},
		{fence.Standing{Undecided: 1}, "held: batches wait for their turn"},
		{fence.Standing{Unknown: 3, Upstream: 1, Full: true}, "closed: 4 batches are upstream or of unknown fate, as many as limits.max_unknown allows: new ones are given back"},
	} {
		g := laneGlance{lane: &lane{key: ps.Key{Topic: "t"}}, standing: c.standing}
		p := g.status(nil, 0)
		if got := p.State + ": " + p.Why; got != c.want {
			t.Errorf("%+v: got %q, want %q", c.standing, got, c.want)
		}
	}
	g := laneGlance{lane: &lane{key: ps.Key{Topic: "t"}}}
	if p := g.status(map[string]TopicStatus{"t": {Refusal: "no"}}, 0); p.State != partitionClosed || p.Why != "no" {
		t.Errorf("not served: got %+v", p)
	}
	if p := g.status(map[string]TopicStatus{"t": {Refusal: "no", Observed: true}}, 0); p.State != partitionOpen {
		t.Errorf("observed: got %+v", p)
	}
}

// TestStatusOfADrain tells that it goes on, and the brokers that cannot be reached.
func TestStatusOfADrain(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{DrainTimeout: 3 * time.Second}, l)
	r.dial()
	r.reached.tried(t.Context(), 0, errNoBroker)
	r.await("the client is counted", func() bool { return r.freshStatus().Connections.Open == 1 })
	if b := r.freshStatus().Brokers[0]; b.State != brokerFailing || b.Failure != errNoBroker.Error() || b.FailedAt == nil {
		t.Errorf("got %+v", b)
	}
	r.leaving.Store(true)
	s := r.freshStatus()
	if s.State != stateDraining || s.Drain == nil || *s.Drain != (DrainStatus{Accepting: true, ConnectionsLeft: 1, TimeoutSeconds: 3}) {
		t.Errorf("got %s, %+v", s.State, s.Drain)
	}
	r.leaving.Store(false)
}

// TestStatusIsShared: what was taken just now is given to all who ask.
func TestStatusIsShared(t *testing.T) {
	r := newFencedRig(t, Config{}, newLeader(t, "fenced"))
	first := r.Status()
	r.status.mu.Lock()
	r.status.at = instant()
	r.status.mu.Unlock()
	if again := r.Status(); again != first {
		t.Error("a second status was taken at once")
	}
	r.status.mu.Lock()
	r.status.at = instant().Add(-statusAge)
	r.status.mu.Unlock()
	if later := r.Status(); later == first {
		t.Error("a status was given that is too old")
	}
}

// TestStatusWhileWritersRace is for the race detector.
func TestStatusWhileWritersRace(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	var writers, watchers sync.WaitGroup
	ended := make(chan struct{})
	for range 3 {
		watchers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if _, err := json.Marshal(r.freshStatus()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for p := range int32(4) {
		c := r.dial()
		writers.Go(func() {
			for i := range int64(50) {
				c.one(p, conditional(i, "v"))
				c.one(p, conditional(0, "w"))
			}
		})
	}
	writers.Wait()
	close(ended)
	watchers.Wait()
	s := r.freshStatus()
	if got := s.Appends.Outcomes[outcomeWon]; got != 200 {
		t.Errorf("got %d appends won, want 200", got)
	}
}

// manyLanes is a proxy that never runs, with so many partitions in use.
func manyLanes(t testing.TB, n int) *Proxy {
	t.Helper()
	p, err := New(Config{Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:0", Rules: []Rule{{Topics: "*", Mode: ModeRequire}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		l := p.fencing.lane(ps.Key{Topic: fmt.Sprintf("topic-%05d", i/10), Partition: int32(i % 10)})
		l.part.State().Counts().Attempts = uint64(i)
	}
	return p
}

// TestStatusOfManyPartitions shows those in which most has happened.
func TestStatusOfManyPartitions(t *testing.T) {
	const lanes = 10_000
	p := manyLanes(t, lanes)
	s := p.Status()
	if len(s.Partitions) != shownPartitions || s.PartitionsInUse != lanes || s.PartitionsLeftOut != lanes-shownPartitions {
		t.Fatalf("got %d shown, %d in use, %d left out", len(s.Partitions), s.PartitionsInUse, s.PartitionsLeftOut)
	}
	var got, want []uint64
	for i, p := range s.Partitions {
		got, want = append(got, p.Attempts), append(want, uint64(lanes-1-i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStatusAllocatesLittle: with ten thousand partitions it takes a list of them and
// what is shown, no more.
func TestStatusAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	few, many := manyLanes(t, 100), manyLanes(t, 10_000)
	count := func(p *Proxy) float64 { return testing.AllocsPerRun(5, func() { p.takeStatus(instant()) }) }
	if got, want := count(many), count(few); got > want+5 {
		t.Errorf("got %v allocations with 10,000 partitions, %v with 100", got, want)
	}
}

func TestEventRingForgetsTheOldest(t *testing.T) {
	var r eventRing
	for i := range keptEvents + 3 {
		r.note(ps.Key{Topic: "t", Partition: int32(i)}, "what")
	}
	got := r.newestFirst()
	if len(got) != keptEvents || got[0].Partition != keptEvents+2 || got[keptEvents-1].Partition != 3 {
		t.Errorf("got %d events from %d to %d", len(got), got[0].Partition, got[len(got)-1].Partition)
	}
}

func TestTextsAreShortenedBetweenCharacters(t *testing.T) {
	if got, want := shortened(strings.Repeat("é", shownText)), strings.Repeat("é", shownText/2)+"…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := shortened("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}

func BenchmarkStatus(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := manyLanes(b, n)
			b.ReportAllocs()
			for b.Loop() {
				p.takeStatus(instant())
			}
		})
	}
}
