package fence

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// crowd is a partition with n batches that wait behind one in flight. order
// gives the offset that the i-th expects.
func crowd(n int, order func(i int) ps.Offset) (*Partition, *Ticket, ps.Now) {
	cfg := modelConfig(0)
	now := ps.Now{Instant: ps.Instant(time.Hour)}
	p := New(cfg, new(ps.State))
	ticket := func(at ps.Offset, digest int) *Ticket {
		return &Ticket{Batch: Batch{
			Expected: at, Records: []ps.Record{{Digest: uint64(digest + 1)}}, Node: 1,
			HoldUntil: now.Instant.Add(time.Hour), AnswerWithin: time.Hour,
		}}
	}
	first := ticket(0, 0)
	p.Admit(now, first)
	p.ViewRead(now, 1, ps.View{Leader: 1, HighWatermark: 0, At: now.Instant})
	now.Instant++ // the view is older than the batches that come now
	for i := range n {
		p.Admit(now, ticket(order(i), i+1))
	}
	return p, first, now
}

// processorTime is what the tests have used so far, which does not grow with what
// else the machine has to do.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestThousandWaiting: the work of an event must stay far from the square of
// what waits, in whatever order it came.
func TestThousandWaiting(t *testing.T) {
	const n = 1000
	for name, order := range map[string]func(int) ps.Offset{
		"in order":  func(i int) ps.Offset { return ps.Offset(i + 1) },
		"backwards": func(i int) ps.Offset { return ps.Offset(n - i) },
		"one place": func(int) ps.Offset { return 0 },
	} {
		p, at, now := crowd(n, order)
		if got := waitingIn(p); got != n {
			t.Fatalf("%s: got %d waiting, want %d", name, got, n)
		}
		begun := processorTime(t)
		won, lost := 0, 0
		effects := p.Answered(now, at, Answer{BaseOffset: 0, LogAppendTime: -1})
		for len(effects) > 0 {
			var sent *Ticket
			for _, e := range effects {
				switch {
				case e.Kind == Send:
					sent = e.Ticket
				case e.Kind == Decide && e.Verdict.Kind == Won:
					won++
				case e.Kind == Decide && e.Verdict.Kind == Taken:
					lost++
				}
			}
			if sent == nil {
				break
			}
			now.Instant = now.Instant.Add(time.Millisecond)
			effects = p.Answered(now, sent, Answer{BaseOffset: sent.Expected, LogAppendTime: -1})
		}
		if won+lost != n+1 || waitingIn(p) > 0 {
			t.Errorf("%s: got %d won and %d lost of %d, %d waiting", name, won, lost, n+1, waitingIn(p))
		}
		if took := processorTime(t) - begun; took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// unknowns is a partition with many transmissions of unknown fate and a
// hundred batches that wait for a view.
func unknowns(n int, place func(i int) ps.Offset) (*Partition, ps.Now) {
	cfg := modelConfig(0)
	cfg.ConnectionIdle = 24 * time.Hour
	now := ps.Now{Instant: ps.Instant(time.Hour)}
	state := new(ps.State)
	for i := range n {
		state.Unsettle(&ps.Unsettled{
			Expected: place(i), Records: []ps.Record{{Digest: uint64(i + 1)}}, SentAt: now.Instant, NextLook: now.Instant.Add(time.Hour),
		})
	}
	p := New(cfg, state)
	for i := range 100 {
		p.Admit(now, &Ticket{Batch: Batch{
			Expected: place(i), Records: []ps.Record{{Digest: uint64(1_000_000 + i)}}, Node: 1,
			HoldUntil: now.Instant.Add(time.Hour), AnswerWithin: time.Hour,
		}})
	}
	return p, now
}

var unknownPlaces = map[string]func(int) ps.Offset{
	"one place": func(int) ps.Offset { return 7 },
	"spread":    func(i int) ps.Offset { return ps.Offset(10 * i) },
}

// TestThousandUnknown: every event, under the lane's lock, had each waiting
// batch compared with each open transmission.
func TestThousandUnknown(t *testing.T) {
	for name, place := range unknownPlaces {
		p, now := unknowns(1024, place)
		begun := processorTime(t)
		for range 1000 {
			p.Tick(now)
		}
		if got := waitingIn(p); got != 100 {
			t.Fatalf("%s: got %d waiting, want 100", name, got)
		}
		if took := processorTime(t) - begun; took > 5*time.Second {
			t.Errorf("%s: 1,000 events took %v", name, took)
		}
	}
}

func BenchmarkEventWithManyUnknown(b *testing.B) {
	for name, place := range unknownPlaces {
		b.Run(name, func(b *testing.B) {
			p, now := unknowns(1024, place)
			b.ReportAllocs()
			for b.Loop() {
				p.Tick(now)
			}
		})
	}
}

func BenchmarkEventWithManyWaiting(b *testing.B) {
	for _, n := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, _, now := crowd(n, func(i int) ps.Offset { return ps.Offset(i + 1) })
			b.ReportAllocs()
			for b.Loop() {
				p.Tick(now)
			}
		})
	}
}
