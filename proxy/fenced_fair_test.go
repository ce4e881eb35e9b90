package proxy

import (
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// TestAppendsArePausedForOtherProxies: one that appends without a break leaves the
// partition to others from time to time, though it sees none. How often and for how
// long is tested in the fence. Time is made up: on a busy machine a test would leave
// gaps of its own, which do for a pause.
func TestAppendsArePausedForOtherProxies(t *testing.T) {
	u := newTouched(t, Config{})
	l := u.lane(ps.Key{Topic: "topic"})
	l.due = 1 // a timer that never fires
	at := now()
	until := at.Instant.Add(20 * time.Second)
	end := ps.Offset(0)
	var next func(*fence.Partition, ps.Now) []fence.Effect
	for l.part.Pauses() < 2 {
		if at.Instant > until {
			t.Fatalf("%d pauses after %d appends", l.part.Pauses(), end)
		}
		event := next
		if event == nil {
			ticket := &fence.Ticket{Batch: fence.Batch{
				Expected: end, Records: []ps.Record{{Digest: uint64(end)}}, Connection: 1,
				HoldUntil: at.Instant.Add(time.Minute), AnswerWithin: time.Minute, MaxTimestamp: at.Wall,
			}}
			event = func(p *fence.Partition, now ps.Now) []fence.Effect { return p.Admit(now, ticket) }
		}
		next = (*fence.Partition).Tick
		for _, e := range event(l.part, at) {
			switch e.Kind {
			case fence.ReadView:
				v := ps.View{Next: end, HighWatermark: end, At: at.Instant, HasState: end > 0, Sequence: ps.Sequence(end), StateTimestamp: at.Wall}
				next = func(p *fence.Partition, now ps.Now) []fence.Effect { return p.ViewRead(now, e.Node, v) }
			case fence.Send:
				next = func(p *fence.Partition, now ps.Now) []fence.Effect {
					return p.Answered(now, e.Ticket, fence.Answer{BaseOffset: e.Ticket.Expected, LogAppendTime: -1})
				}
			case fence.Decide:
				if e.Verdict.Kind != fence.Won {
					t.Fatalf("append %d: %v", end, e.Verdict)
				}
				end, next = end+1, nil
			}
		}
		at.Instant, at.Wall = at.Instant.Add(time.Millisecond), at.Wall+1
	}
	l.step(at, func(*fence.Partition, ps.Now) []fence.Effect { return nil })
	if got, want := u.metrics.pauses.Load(), int64(l.part.Pauses()); got != want {
		t.Errorf("got %d pauses counted, want %d", got, want)
	}
}

// TestConnectionThatAlwaysLosesIsWaitedFor: it is as slow each time, so that
// another always comes first.
func TestConnectionThatAlwaysLosesIsWaitedFor(t *testing.T) {
	const rounds = 60
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	fast, slow := r.dial(), r.dial()
	wantResult(t, fast.one(0, conditional(0, "first")), 0, 0, "")
	for at := int64(1); at < rounds; at++ {
		first := fast.send(produceOf(9, -1, part{topic: "fenced", records: conditional(at, "fast")}))
		// As far away: what the fast one sent is admitted long before.
		time.Sleep(10 * time.Millisecond)
		second := slow.send(produceOf(9, -1, part{topic: "fenced", records: conditional(at, "slow")}))
		got := resultsOf(slow.expect(second, 9))[0]
		if got.Code == 0 {
			wantResult(t, resultsOf(fast.expect(first, 9))[0], 1, -1, takenMessage(at, at+1))
			return
		}
		wantResult(t, got, 1, -1, takenMessage(at, at+1))
		wantResult(t, resultsOf(fast.expect(first, 9))[0], 0, at, "")
	}
	t.Errorf("it lost %d places in a row", rounds-1)
}
