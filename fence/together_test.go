package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// together is one client that sends a batch to each of many partitions in one
// request, and the next request when the last of them is answered.
type together struct {
	parts  []*Partition
	now    ps.Instant
	ends   []ps.Offset
	rounds int
	reads  int // of views
	// wins is when each partition was won last, rested when others last had the
	// time for a view and a client's way there, and longest the longest time in
	// which they had it not.
	wins, rested [maxTogether]ps.Instant
	longest      time.Duration
	// Times of a request: of the answer to what is sent, of the reading of a view,
	// and of the client's way.
	answer, view, trip time.Duration
}

const maxTogether = 250

func newTogether(n int, f Fairness) *together {
	cfg := &Config{
		ViewMaxAge: time.Minute, AdmissionWait: 50 * time.Millisecond, ProducerExpiry: 24 * time.Hour,
		ConnectionIdle: 10 * time.Minute, Margin: 10 * time.Minute, SameViewRounds: 4, Fairness: f,
	}
	c := &together{now: ps.Instant(time.Hour), ends: make([]ps.Offset, n),
		answer: 4 * time.Millisecond, view: 2 * time.Millisecond, trip: time.Millisecond}
	for i := range n {
		c.parts = append(c.parts, New(cfg, new(ps.State)))
		c.ends[i] = ps.Offset(1000 * i) // partitions differ in when they pause
	}
	return c
}

// round is a request, from its arrival to the arrival of the next one.
func (c *together) round(t *testing.T) {
	t.Helper()
	type event struct {
		at ps.Instant
		do func(now ps.Now) []Effect
	}
	next := make([]event, len(c.parts)) // one at a time is due for each
	wins := 0
	began := c.now
	ends := began
	take := func(i int, at ps.Instant, effects []Effect) {
		p := c.parts[i]
		next[i] = event{}
		if wake, ok := p.Wake(); ok {
			next[i] = event{wake, p.Tick}
		}
		for _, e := range effects {
			switch e.Kind {
			case Send:
				ticket, base := e.Ticket, c.ends[i]
				c.sent(i, at)
				next[i] = event{at.Add(c.answer), func(now ps.Now) []Effect {
					c.ends[i]++
					return p.Answered(now, ticket, Answer{BaseOffset: base, LogAppendTime: -1, LogStart: ps.NoOffset})
				}}
			case ReadView:
				node, v := e.Node, ps.View{Leader: 1, LeaderEpoch: 1, Next: c.ends[i], HighWatermark: c.ends[i], At: at}
				if v.HasState = v.Next > 0; v.HasState {
					v.Sequence, v.StateTimestamp = ps.Sequence(v.Next), ps.Timestamp(at)/1e6
				}
				c.reads++
				next[i] = event{at.Add(c.view), func(now ps.Now) []Effect { return p.ViewRead(now, node, v) }}
			case Decide:
				if e.Verdict.Kind != Won {
					t.Fatalf("partition %d: got %v", i, e.Verdict)
				}
				wins++
				c.wins[i] = at
				ends = max(ends, at)
			}
		}
	}
	clock := func(at ps.Instant) ps.Now { return ps.Now{Instant: at, Wall: ps.Timestamp(at) / 1e6} }
	for i, p := range c.parts {
		take(i, began, p.Admit(clock(began), &Ticket{Batch: Batch{
			Expected: c.ends[i], Records: []ps.Record{{Digest: uint64(c.ends[i])}}, Connection: 1, Node: 1,
			HoldUntil: began.Add(time.Minute), AnswerWithin: time.Minute, ConnOpened: 1, MaxTimestamp: ps.Timestamp(began) / 1e6,
		}}))
	}
	for i := range c.parts {
		for won := wins; wins == won && next[i].do != nil && c.ends[i] == ps.Offset(1000*i+c.rounds); {
			e := next[i]
			take(i, e.at, e.do(clock(e.at)))
		}
	}
	if wins != len(c.parts) {
		t.Fatalf("round %d: got %d of %d decided", c.rounds, wins, len(c.parts))
	}
	c.rounds++
	c.now = ends.Add(c.trip)
}

// sent notes what chance others had before a batch was sent.
func (c *together) sent(i int, at ps.Instant) {
	if c.rested[i] == 0 {
		c.rested[i] = at
	}
	if at.Sub(c.wins[i]) >= c.view+c.trip {
		c.longest = max(c.longest, at.Sub(c.rested[i]))
		c.rested[i] = at
	}
}

// run sends requests for so long and gives how many there were.
func (c *together) run(t *testing.T, d time.Duration) int {
	t.Helper()
	until := c.now.Add(d)
	from := c.rounds
	for c.now < until {
		c.round(t)
	}
	return c.rounds - from
}

// Partitions that one client writes together pause together: else one of many would
// nearly always pause, and the client wait for it with all of them.
func TestPartitionsWrittenTogetherPauseTogether(t *testing.T) {
	const lasts = 20 * time.Second
	for _, n := range []int{1, 16, 250} {
		without := newTogether(n, Fairness{})
		without.run(t, lasts)
		most := without.run(t, lasts)
		c := newTogether(n, testFairness)
		c.run(t, lasts)
		c.reads, c.rested, c.longest = 0, [maxTogether]ps.Instant{}, 0
		got := c.run(t, lasts)
		t.Logf("%d partitions: %d requests of %d without pauses, %d views read, at most %v without a rest", n, got, most, c.reads, c.longest)
		if got < most*97/100 {
			t.Errorf("%d partitions: got %d requests, and %d without pauses", n, got, most)
		}
		// Others have their chance in each of them all the same.
		if c.longest > 2*time.Second {
			t.Errorf("%d partitions: others had no chance in one for %v", n, c.longest)
		}
		if c.longest == 0 || c.parts[0].Pauses() == 0 {
			t.Errorf("%d partitions: no pause was seen", n)
		}
	}
}
