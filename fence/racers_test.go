package fence

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// TestModelRacersTryInTurn: of those who race for each place in one proxy the winner
// goes on for a run, and then one more tries for the next place. All get as many
// appends as one alone, and each as many as the others; nobody loses many in a row, nor
// waits for longer than the queue lasts. Told at once, all try for each place, and
// where ways vary much whoever happens to be the fastest of 16 is faster than one
// alone.
func TestModelRacersTryInTurn(t *testing.T) {
	atOnce := testFairness
	atOnce.TellWithin = 0
	for _, s := range someSettings() {
		for _, writers := range []int{2, 4, 16} {
			measure := func(f Fairness, writers int) *contention {
				c := newContention(s.times, f, writers)
				c.measure(0, lasting(4*time.Second))
				return c
			}
			name := fmt.Sprintf("%s, %d writers", s.name, writers)
			with, without, alone := measure(testFairness, writers), measure(atOnce, writers), measure(testFairness, 1)
			tries := func(c *contention) float64 { return float64(c.tries) / float64(c.wins()) }
			if got := tries(with); got > 2.1 || writers <= 4 && got > 1.4 {
				t.Errorf("%s: %.2f tries for an append", name, got)
			}
			if got, want := tries(without), float64(writers)*0.9; got < want {
				t.Errorf("%s: %.2f tries for an append where all are told at once, so that the setting proves nothing; want %.2f", name, got, want)
			}
			if got := float64(with.wins()) / float64(alone.wins()); got < 0.97 {
				t.Errorf("%s: got %.2f of what one alone gets", name, got)
			}
			if got := float64(with.wins()) / float64(without.wins()); got < 0.85 {
				t.Errorf("%s: got %.2f of what is got where all are told at once", name, got)
			}
			if got := with.worst(); got > 4 {
				t.Errorf("%s: one lost %d places in a row", name, got)
			}
			least := with.wins()
			for _, w := range with.proxies[0].writers {
				least = min(least, w.wins)
			}
			if got := float64(least*writers) / float64(with.wins()); got < 0.8 {
				t.Errorf("%s: one got %.2f of an even share", name, got)
			}
			t.Logf("%s: %.2f tries for an append, %.2f where all are told at once; %.3f as many appends; the least %.2f of an even share; worst %d lost in a row",
				name, tries(with), tries(without), float64(with.wins())/float64(without.wins()), float64(least*writers)/float64(with.wins()), with.worst())
		}
	}
}

// TestModelRacersDoNotHoldUpOthers: who races beside writers that take any place is
// waited for, when it has lost too often, and so does not queue.
func TestModelRacersDoNotHoldUpOthers(t *testing.T) {
	atOnce := testFairness
	atOnce.TellWithin = 0
	for _, s := range someSettings() {
		measure := func(f Fairness) (*contention, int) {
			c, racing := newContention(s.times, f, 24), 0
			for i, w := range c.proxies[0].writers {
				w.atEnd = i%2 == 1
			}
			c.measure(0, lasting(4*time.Second))
			for _, w := range c.proxies[0].writers {
				if !w.atEnd {
					racing += w.wins
				}
			}
			return c, racing
		}
		with, racing := measure(testFairness)
		without, racingWithout := measure(atOnce)
		if got := float64(with.wins()) / float64(without.wins()); got < 0.95 {
			t.Errorf("%s: got %.2f of what is got where all are told at once", s.name, got)
		}
		if got := float64(racing) / float64(racingWithout); got < 0.6 {
			t.Errorf("%s: those who race got %.2f of what they get where all are told at once", s.name, got)
		}
	}
}

// racing is a partition whose log ends at 10, after a race that connection 1 won and
// the others lost: of these 2 was told first, and 3 waits.
type racing struct {
	*testing.T
	p   *Partition
	now ps.Now
}

func newRacing(t *testing.T) *racing {
	r := &racing{T: t, now: ps.Now{Instant: ps.Instant(time.Hour), Wall: 3600e3}}
	r.p = New(&Config{
		ViewMaxAge: time.Minute, AdmissionWait: 50 * time.Millisecond, ProducerExpiry: 24 * time.Hour,
		ConnectionIdle: time.Minute, Margin: time.Minute, SameViewRounds: 4, Fairness: testFairness,
	}, new(ps.State))
	r.p.ViewRead(r.now, 1, ps.View{Leader: 1, At: r.now.Instant, Next: 8, HighWatermark: 8, HasState: true, Sequence: 8, StateTimestamp: 3600e3})
	for place := ps.Offset(8); place < 10; place++ {
		var sent *Ticket
		for id := ps.ConnectionID(1); id <= 3; id++ {
			ticket, effects := r.admit(id, place)
			if id == 1 {
				sent = ticket
				r.wants(effects, "send 1")
			} else {
				r.wants(effects, "")
			}
		}
		r.now.Instant += ps.Instant(time.Millisecond)
		effects := r.p.Answered(r.now, sent, Answer{BaseOffset: place, LogAppendTime: -1, LogStart: 0})
		if place == 8 {
			r.wants(effects, "won 1, taken 2, taken 3") // they race only from now on
		} else {
			r.wants(effects, "won 1, taken 2")
		}
	}
	return r
}

func (r *racing) admit(id ps.ConnectionID, place ps.Offset) (*Ticket, []Effect) {
	t := &Ticket{Batch: Batch{
		Expected: place, Records: []ps.Record{{Digest: uint64(id)<<32 + uint64(place)}}, MaxTimestamp: r.now.Wall,
		Connection: id, Node: 1, HoldUntil: r.now.Instant.Add(10 * time.Second), AnswerWithin: 20 * time.Second,
	}}
	return t, r.p.Admit(r.now, t)
}

func (r *racing) wants(effects []Effect, want string) {
	r.Helper()
	got := ""
	for _, e := range effects {
		what := ""
		switch {
		case e.Kind == Send:
			what = "send"
		case e.Kind == Decide && e.Verdict.Kind == Won:
			what = "won"
		case e.Kind == Decide && e.Verdict.Kind == Taken:
			what = "taken"
		default:
			r.Fatalf("got effect %v", e)
		}
		if got != "" {
			got += ", "
		}
		got += fmt.Sprintf("%s %d", what, e.Ticket.Connection)
	}
	if got != want {
		r.Fatalf("got %q, want %q", got, want)
	}
}

// later lets the partition's next tick come.
func (r *racing) later() []Effect {
	at, ok := r.p.Wake()
	if !ok {
		r.Fatal("nothing is waited for")
	}
	r.now.Instant = max(r.now.Instant, at)
	return r.p.Tick(r.now)
}

// TestRacerIsToldWhenTheEndHasMoved: at the next append, whoever wins it.
func TestRacerIsToldWhenTheEndHasMoved(t *testing.T) {
	r := newRacing(t)
	winner, effects := r.admit(1, 10)
	r.wants(effects, "send 1")
	_, effects = r.admit(2, 10)
	r.wants(effects, "")
	r.wants(r.p.Answered(r.now, winner, Answer{BaseOffset: 10, LogAppendTime: -1}), "won 1, taken 3")
}

// TestRacerIsToldWhenTheOneBeforeDoesNotCome: soon, and well before its hold ends.
func TestRacerIsToldWhenTheOneBeforeDoesNotCome(t *testing.T) {
	r := newRacing(t)
	begun := r.now.Instant
	r.wants(r.later(), "taken 3")
	if got, want := r.now.Instant.Sub(begun), longestAwaited; got > want {
		t.Errorf("it waited for %v, want at most %v", got, want)
	}
}

// TestRacerIsToldInTime: also while those before it are upstream for long.
func TestRacerIsToldInTime(t *testing.T) {
	r := newRacing(t)
	begun := r.now.Instant
	_, effects := r.admit(2, 10)
	r.wants(effects, "send 2")
	for effects = nil; len(effects) == 0; {
		effects = r.later()
	}
	r.wants(effects, "taken 3")
	if got, want := r.now.Instant.Sub(begun), testFairness.TellWithin; got > want {
		t.Errorf("it waited for %v, want at most %v", got, want)
	}
}

// TestWhoDoesNotRaceIsToldAtOnce: it came for the first time, or for another place.
func TestWhoDoesNotRaceIsToldAtOnce(t *testing.T) {
	r := newRacing(t)
	_, effects := r.admit(4, 9)
	r.wants(effects, "taken 4")
	_, effects = r.admit(2, 8)
	r.wants(effects, "taken 2")
}

// cameByScan is toldCame without a memory.
func (p *Partition) cameByScan() bool {
	return slices.ContainsFunc(p.tickets, p.racers.brought)
}

// Whether the one who was told has come is remembered, and no other than what a look
// at all batches says, after each event and before the next.
func TestRacerWhoWasToldIsFoundAsByAScan(t *testing.T) {
	seen := map[bool]int{}
	for _, atEnd := range []bool{false, true} {
		c := newContention(contentionTimes{link: 100 * time.Microsecond, work: 50 * time.Microsecond, client: 50 * time.Microsecond, chance: 0.5}, testFairness, 12, 4)
		for _, p := range c.proxies {
			p.writers[0].atEnd = atEnd
			p.begin()
		}
		for until := c.now.Add(2 * time.Second); c.now < until; {
			e := heap.Pop(&c.events).(contentionEvent)
			c.now = e.at
			e.do()
			for i, p := range c.proxies {
				if p.part.racers.told == 0 {
					continue
				}
				got, want := p.part.toldCame(), p.part.cameByScan()
				if got != want {
					t.Fatalf("proxy %d at %v: got %v, want %v", i, c.now, got, want)
				}
				seen[got]++
			}
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("got only one answer: %v", seen)
	}
}
