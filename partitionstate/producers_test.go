package partitionstate

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestSequencesGoRound(t *testing.T) {
	const last = 1<<31 - 1
	for _, c := range []struct {
		s, o Sequence
		want bool
	}{
		{0, 1, true}, {1, 0, false}, {5, 5, false},
		{last, 0, true}, {0, last, false}, {last - 3, 2, true}, {2, last - 3, false},
		{0, 1<<30 - 1, true}, {0, 1 << 30, false},
	} {
		if got := c.s.Before(c.o); got != c.want {
			t.Errorf("%d before %d: got %v, want %v", c.s, c.o, got, c.want)
		}
	}
}

func TestDigestOfTellsBatchesApart(t *testing.T) {
	a, b := Record{Digest: 1}, Record{Digest: 2}
	batches := [][]Record{{a}, {b}, {a, b}, {b, a}, {a, a}, {a, a, a}, {{Digest: 0}}, {{Digest: 0}, {Digest: 0}}}
	seen := map[BatchDigest][]Record{}
	for _, r := range batches {
		d := DigestOf(r)
		if o, ok := seen[d]; ok {
			t.Errorf("%v and %v have one digest", r, o)
		}
		if again := DigestOf(slices.Clone(r)); again != d {
			t.Errorf("%v has two digests", r)
		}
		seen[d] = r
	}
	// The rule may have another name for append-ids by the time of a retry.
	if DigestOf([]Record{a}) != DigestOf([]Record{{Digest: 1, AppendID: true}}) {
		t.Error("a record with and without a name for its append-id has two digests")
	}
}

// The states against a list in order of use.
func TestProducersAgainstNaive(t *testing.T) {
	type naive struct {
		id       ProducerID
		used     Instant
		inFlight int
		p        *Producer
	}
	const most, keep = 4, 10 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		var s State
		var all []*naive // by last use, in flight or not
		now := Instant(time.Hour)
		find := func(id ProducerID) *naive {
			for _, n := range all {
				if n.id == id {
					return n
				}
			}
			return nil
		}
		use := func(n *naive) {
			all = append(slices.DeleteFunc(all, func(o *naive) bool { return o == n }), n)
			n.used = now
		}
		idle := func(o *naive) bool { return o.inFlight == 0 }
		expire := func() {
			all = slices.DeleteFunc(all, func(o *naive) bool { return idle(o) && now.Sub(o.used) >= keep })
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			id := ProducerID(rapid.IntRange(0, 7).Draw(t, "id"))
			n := find(id)
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case n == nil:
				expire()
				want := 0
				for len(all) >= most && slices.ContainsFunc(all, idle) {
					i := slices.IndexFunc(all, idle)
					all = slices.Delete(all, i, i+1)
					want++
				}
				p, got := s.AddProducer(now, id, keep, most)
				if got != want {
					t.Fatalf("got %d forgotten, want %d", got, want)
				}
				use(&naive{id: id, p: p})
			case what == 0:
				s.TouchProducer(now, n.p)
				use(n)
			case what == 1:
				s.HoldProducer(n.p)
				n.inFlight++
			case what == 2 && n.inFlight > 0:
				s.ReleaseProducer(now, n.p)
				n.inFlight--
				use(n)
			case what == 3:
				s.Idle(now)
				expire()
			}
			if got := s.Producers(); got != len(all) {
				t.Fatalf("got %d states, want %d", got, len(all))
			}
			for _, n := range all {
				if s.Producer(n.id) != n.p {
					t.Fatalf("the state of %d is another, or gone", n.id)
				}
			}
		}
	})
}

func TestProducersWithoutBounds(t *testing.T) {
	var s State
	for i := range 5000 {
		if _, forgotten := s.AddProducer(Instant(i)*Instant(time.Hour), ProducerID(i), 0, 0); forgotten != 0 {
			t.Fatalf("got %d forgotten", forgotten)
		}
	}
	if got := s.Producers(); got != 5000 {
		t.Errorf("got %d states, want 5000", got)
	}
}

func told(s Sequence, count int32, o Outcome) Told {
	return Told{Sequence: s, Count: count, Digest: BatchDigest(s), Outcome: o, Offset: Offset(s), LogStart: NoOffset}
}

func TestProducerRemembersFiveBatches(t *testing.T) {
	var p Producer
	p.Begin(0, 0, 1)
	for i := range Sequence(7) {
		p.Tell(told(10*i, 10, Appended))
	}
	for i := range Sequence(7) {
		if _, got := p.Told(10 * i); got != (i >= 2) {
			t.Errorf("batch %d: remembered %v", i, got)
		}
	}
	if got := p.Next(); got != 70 {
		t.Errorf("got next %d, want 70", got)
	}
}

func TestProducerTellsTheLast(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then Outcome
		want        Outcome
	}{
		{"a refusal makes way", Superseded, Undecided, Undecided},
		{"unknown makes way", Undecided, Superseded, Superseded},
		{"what is in the log is there", Appended, Undecided, Appended},
		{"what was unknown is in the log", Undecided, Appended, Appended},
		{"at another offset", Misplaced, Superseded, Misplaced},
	} {
		var p Producer
		p.Begin(0, 5, 1)
		p.Tell(told(5, 1, c.first))
		p.Tell(told(5, 1, c.then))
		got, ok := p.Told(5)
		if !ok || got.Outcome != c.want {
			t.Errorf("%s: got %v %v, want %v", c.name, got.Outcome, ok, c.want)
		}
		p.Untell(5)
		if _, ok := p.Told(5); ok != (Told{Outcome: c.want}).InLog() {
			t.Errorf("%s: remembered %v after untelling", c.name, ok)
		}
	}
}

// A batch that is not in the log does not move the next sequence: clients go
// back to it.
func TestProducerNext(t *testing.T) {
	const last = 1<<31 - 1
	for _, c := range []struct {
		name string
		told Told
		want Sequence
	}{
		{"appended", told(5, 3, Appended), 8},
		{"violation", told(5, 3, Misplaced), 8},
		{"refused", told(5, 3, Superseded), 5},
		{"unknown", told(5, 3, Undecided), 5},
		{"before the next", told(1, 3, Appended), 5},
	} {
		var p Producer
		p.Begin(0, 5, 1)
		p.Tell(c.told)
		if got := p.Next(); got != c.want {
			t.Errorf("%s: got next %d, want %d", c.name, got, c.want)
		}
	}
	var p Producer
	p.Begin(0, last-1, 1)
	p.Tell(told(last-1, 3, Appended))
	if got := p.Next(); got != 1 {
		t.Errorf("got next %d after the last sequence, want 1", got)
	}
}

func TestProducerGap(t *testing.T) {
	at := func(prepare func(*Producer)) *Producer {
		p := new(Producer)
		p.Begin(0, 10, 5)
		prepare(p)
		return p
	}
	refusedAt10 := func(p *Producer) { p.Break(5, 10, BehindRefused) }
	for _, c := range []struct {
		name string
		p    *Producer
		on   ConnectionID
		seq  Sequence
		want Break
	}{
		{"none", at(func(*Producer) {}), 5, 12, Unbroken},
		{"behind it", at(refusedAt10), 5, 12, BehindRefused},
		{"at it", at(refusedAt10), 5, 10, Unbroken},
		{"before it", at(refusedAt10), 5, 9, Unbroken},
		{"elsewhere", at(refusedAt10), 6, 12, Unbroken},
		{"the client came back to it", at(func(p *Producer) { refusedAt10(p); p.Came(5, 10) }), 5, 12, Unbroken},
		{"… before it", at(func(p *Producer) { refusedAt10(p); p.Came(5, 3) }), 5, 12, Unbroken},
		{"… on a newer connection", at(func(p *Producer) { refusedAt10(p); p.Came(6, 10) }), 5, 12, Unbroken},
		{"… behind it", at(func(p *Producer) { refusedAt10(p); p.Came(5, 11) }), 5, 12, BehindRefused},
		{"… on an old connection", at(func(p *Producer) { refusedAt10(p); p.Came(4, 10) }), 5, 12, BehindRefused},
		{"a new epoch", at(func(p *Producer) { refusedAt10(p); p.Begin(1, 0, 5) }), 5, 12, Unbroken},
		{"an earlier one counts", at(func(p *Producer) { p.Break(5, 12, BehindRetriable); refusedAt10(p) }), 5, 14, BehindRefused},
		{"a later one does not", at(func(p *Producer) { refusedAt10(p); p.Break(5, 12, BehindRetriable) }), 5, 14, BehindRefused},
		{"the same again", at(func(p *Producer) { refusedAt10(p); p.Break(5, 10, BehindUnknown) }), 5, 14, BehindUnknown},
		{"an unknown one is in the log", at(func(p *Producer) { p.Break(5, 10, BehindUnknown); p.Tell(told(10, 1, Appended)) }), 5, 12, Unbroken},
		{"a retriable one is in the log", at(func(p *Producer) { p.Break(5, 10, BehindRetriable); p.Tell(told(10, 1, Misplaced)) }), 5, 12, Unbroken},
		{"another is in the log", at(func(p *Producer) { p.Break(5, 10, BehindUnknown); p.Tell(told(8, 2, Appended)) }), 5, 12, BehindUnknown},
		{"a retriable one is unknown", at(func(p *Producer) { p.Break(5, 10, BehindRetriable); p.Tell(told(10, 1, Undecided)) }), 5, 12, BehindRetriable},
		{"on a newer connection", at(func(p *Producer) { refusedAt10(p); p.Break(6, 20, BehindUnknown) }), 6, 24, BehindUnknown},
		{"… no more on the old one", at(func(p *Producer) { refusedAt10(p); p.Break(6, 20, BehindUnknown) }), 5, 24, Unbroken},
		{"on an older connection", at(func(p *Producer) { refusedAt10(p); p.Break(4, 5, BehindUnknown) }), 5, 12, BehindRefused},
	} {
		if got := c.p.Late(c.on, c.seq); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// A client may take for done what left the gap: told so by an answer to an earlier
// transmission, say. It must not be told for ever that its predecessor failed.
func TestProducerGapEndsForAClientThatGoesOn(t *testing.T) {
	var p Producer
	p.Begin(0, 10, 5)
	p.Break(5, 10, BehindUnknown)
	for i := range Sequence(7) {
		want := BehindUnknown
		if i >= toldKept {
			want = BehindRetriable
		}
		if got := p.Late(5, 11+i); got != want {
			t.Errorf("late batch %d: got %v, want %v", i, got, want)
		}
	}
}

// After an unclean election what was in the log may not be there any more.
func TestProducerResultsEndWithTheirLog(t *testing.T) {
	var s State
	s.ReadView(at(10), View{LeaderEpoch: 1, Next: 9, HighWatermark: 9, At: at(10)})
	p, _ := s.AddProducer(at(10), 7, time.Minute, 10)
	p.Begin(0, 0, 1)
	p.Tell(told(0, 1, Appended))
	s.ReadView(at(12), View{LeaderEpoch: 1, Next: 9, HighWatermark: 9, At: at(11)})
	if _, ok := p.Told(0); !ok {
		t.Fatal("the result is gone without a reason")
	}
	s.ReadView(at(14), View{LeaderEpoch: 2, Next: 3, HighWatermark: 3, At: at(13)})
	if _, ok := p.Told(0); ok {
		t.Error("a success is told of a record that is gone")
	}
}

// The figure is in docs/semantics.md.
func TestProducerStateCostsThreeHundredBytes(t *testing.T) {
	if got := unsafe.Sizeof(Producer{}); got > 288 {
		t.Errorf("got %d bytes for a state", got)
	}
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s State
	for i := range ProducerID(n) {
		s.AddProducer(1, i, time.Minute, 0)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.0f bytes for each producer id", each)
	if each > 350 {
		t.Errorf("got %.0f bytes for each producer id, want at most 350", each)
	}
	s.Idle(Instant(time.Hour))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if left := int64(after.HeapAlloc) - int64(before.HeapAlloc); left > 1<<20 {
		t.Errorf("got %d bytes held by states that have expired", left)
	}
	runtime.KeepAlive(&s)
}
