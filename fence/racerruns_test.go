package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// trip is how long those who race need from a verdict to their next batch.
const racingTrip = 100 * time.Microsecond

// newRun is a racing partition on which connection 1 has won place 10 as well, and 2
// and 3 race with it and wait for that place, each as near as the others: 3 for longer.
func newRun(t *testing.T) (*racing, []Effect) {
	r := newRacing(t)
	r.now.Instant = r.now.Instant.Add(racingTrip)
	winner, effects := r.admit(1, 10)
	r.wants(effects, "send 1")
	_, effects = r.admit(2, 10)
	r.wants(effects, "")
	r.now.Instant = r.now.Instant.Add(time.Millisecond)
	r.wants(r.p.Answered(r.now, winner, Answer{BaseOffset: 10, LogAppendTime: -1}), "won 1, taken 3")
	r.now.Instant = r.now.Instant.Add(racingTrip)
	winner, effects = r.admit(1, 11)
	if len(effects) == 1 {
		r.wants(effects, "send 1")
	} else { // 3 comes soon
		r.wants(effects, "")
	}
	third, effects := r.admit(3, 11)
	if third.phase == sent {
		r.Fatalf("got %v, want the one who won first to be sent", effects)
	}
	return r, r.p.Answered(r.now, winner, Answer{BaseOffset: 11, LogAppendTime: -1})
}

// TestWinnerGoesOnForARun: nobody is told while it comes back as soon as others would.
func TestWinnerGoesOnForARun(t *testing.T) {
	r, effects := newRun(t)
	end := ps.Offset(12)
	appends := 1
	for ; len(effects) == 1; appends++ {
		r.wants(effects, "won 1")
		r.now.Instant = r.now.Instant.Add(racingTrip)
		winner, sent := r.admit(1, end)
		r.wants(sent, "send 1")
		r.now.Instant = r.now.Instant.Add(time.Millisecond)
		effects = r.p.Answered(r.now, winner, Answer{BaseOffset: end, LogAppendTime: -1})
		end++
	}
	r.wants(effects, "won 1, taken 2")
	if appends != longestRun {
		t.Errorf("got %d appends in a row, want %d", appends, longestRun)
	}
	// Who has had its run leaves the next place to the one who was told.
	r.now.Instant = r.now.Instant.Add(racingTrip)
	_, effects = r.admit(1, end)
	r.wants(effects, "")
	_, effects = r.admit(2, end)
	r.wants(effects, "send 2")
}

// TestWinnerDoesNotWaitForAnHeirWhoDoesNotCome: it has its place then.
func TestWinnerDoesNotWaitForAnHeirWhoDoesNotCome(t *testing.T) {
	r, effects := newRun(t)
	end := ps.Offset(12)
	for len(effects) == 1 {
		r.now.Instant = r.now.Instant.Add(racingTrip)
		winner, _ := r.admit(1, end)
		r.now.Instant = r.now.Instant.Add(time.Millisecond)
		effects = r.p.Answered(r.now, winner, Answer{BaseOffset: end, LogAppendTime: -1})
		end++
	}
	begun := r.now.Instant
	_, effects = r.admit(1, end)
	r.wants(effects, "")
	for sent := false; !sent; {
		for _, e := range r.later() {
			sent = sent || e.Kind == Send && e.Ticket.Connection == 1
		}
	}
	if got, want := r.now.Instant.Sub(begun), 3*time.Millisecond; got > want {
		t.Errorf("it waited for %v, want at most %v", got, want)
	}
}

// TestRunEndsWhenTheWinnerDoesNotComeBack: others are told soon.
func TestRunEndsWhenTheWinnerDoesNotComeBack(t *testing.T) {
	r, effects := newRun(t)
	r.wants(effects, "won 1")
	begun := r.now.Instant
	r.wants(r.later(), "taken 2")
	if got, want := r.now.Instant.Sub(begun), 2*time.Millisecond; got > want {
		t.Errorf("it waited for %v, want at most %v", got, want)
	}
}

// TestModelTurnsCostLittle: of two proxies whose writers race for the same places the
// one whose turn it is not asks seldom how far the other is, and has its writers wait
// rather than come for places that are not theirs.
func TestModelTurnsCostLittle(t *testing.T) {
	for _, s := range someSettings() {
		for _, writers := range []int{4, 16} {
			c := newContention(s.times, testFairness, spread(writers, 2)...)
			c.measure(0, lasting(4*time.Second))
			wins := float64(c.wins())
			// While a batch is replicated for long, a view for each is not much.
			most := 0.3
			if s.times.replicate > 0 || s.times.client > s.times.link {
				most = 1.1
			}
			if got := float64(c.views) / wins; got > most {
				t.Errorf("%s, %d writers: %.2f views an append, want at most %.2f", s.name, writers, got, most)
			}
			if got, most := float64(c.tries)/wins, 5.0; got > most {
				t.Errorf("%s, %d writers: %.2f tries an append, want at most %.2f", s.name, writers, got, most)
			}
		}
	}
}

// TestRunEndsWhenTheWinnersBatchFails: others are told as soon as when it does not come.
func TestRunEndsWhenTheWinnersBatchFails(t *testing.T) {
	for name, end := range map[string]func(r *racing, w *Ticket) []Effect{
		"its connection is gone": func(r *racing, w *Ticket) []Effect { return r.p.NotSent(r.now, w) },
		"refused by the broker": func(r *racing, w *Ticket) []Effect {
			return r.p.Answered(r.now, w, Answer{Code: 19, BaseOffset: -1, LogAppendTime: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, effects := newRun(t)
			r.wants(effects, "won 1")
			r.now.Instant = r.now.Instant.Add(racingTrip)
			winner, effects := r.admit(1, 12)
			r.wants(effects, "send 1")
			begun := r.now.Instant
			effects = end(r, winner)
			for range 20 {
				for _, e := range effects {
					if e.Kind == Decide && e.Verdict.Kind == Taken {
						if got, want := r.now.Instant.Sub(begun), 2*time.Millisecond; got > want {
							t.Errorf("they waited for %v, want at most %v", got, want)
						}
						return
					}
				}
				effects = r.later()
			}
			t.Error("nobody was told")
		})
	}
}
