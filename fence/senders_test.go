package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// lose has a sender lose n places from the place at on, and come back each time.
func (s *senders) lose(id ps.ConnectionID, at ps.Offset, n int) {
	for i := range ps.Offset(n) {
		s.lost(ps.Instant(time.Hour), id, at+i+1)
		s.came(ps.Instant(time.Hour+time.Millisecond), id)
	}
}

func deprivedID(s *senders) ps.ConnectionID {
	if d := s.deprived(); d != nil {
		return d.id
	}
	return 0
}

func TestWhoLosesMostComesFirst(t *testing.T) {
	var s senders
	expect := func(when string, want ps.ConnectionID) {
		t.Helper()
		if got := deprivedID(&s); got != want {
			t.Errorf("%s: got %d first, want %d", when, got, want)
		}
	}
	expect("nobody lost", 0)
	s.lose(1, 0, 11)
	s.lose(2, 0, 11)
	expect("each lost 11 of 12 that two senders are to bear", 0)
	s.lose(2, 11, 1)
	expect("one lost 12", 2)
	s.lose(1, 11, 2)
	expect("the other lost 13", 1)
	s.forget(1)
	expect("it won", 2)
	s.forget(2)
	expect("both won", 0)
}

// TestOnePlaceIsLostOnce: whoever sends several batches ahead loses all of them
// for the same place.
func TestOnePlaceIsLostOnce(t *testing.T) {
	var s senders
	for range 100 {
		s.lost(1, 1, 7)
	}
	if got := s.losing[1].losses; got != 1 {
		t.Errorf("got %d losses, want 1", got)
	}
}

func TestSendersAreBounded(t *testing.T) {
	var s senders
	for id := range ps.ConnectionID(2 * maxSenders) {
		s.lost(1, id+1, 7)
	}
	if got := len(s.losing); got != maxSenders {
		t.Errorf("got %d senders, want %d", got, maxSenders)
	}
}

// TestSendersThatEndAreForgotten: connections that come, lose and end must not
// make the others wait longer for their turn.
func TestSendersThatEndAreForgotten(t *testing.T) {
	for name, end := range map[string]bool{"ends": true, "goes on": false} {
		p := New(&Config{ViewMaxAge: time.Minute, ConnectionIdle: time.Minute, ProducerExpiry: time.Hour}, new(ps.State))
		now := ps.Now{Instant: ps.Instant(time.Hour)}
		p.senders.lost(now.Instant, 7, 1)
		ticket := &Ticket{Batch: Batch{
			Expected: 1, Records: []ps.Record{{Digest: 1}}, Connection: 7, HoldUntil: now.Instant.Add(time.Second),
		}}
		p.Admit(now, ticket)
		if end {
			p.Cancel(now, ticket)
		}
		if got, want := len(p.senders.losing) == 0, end; got != want {
			t.Errorf("a connection that %s: got forgotten %v, want %v", name, got, want)
		}
	}
}

// TestNobodyWaitsForOneWhoLeft: a sender that loses, is to be first, and does not
// come back holds up the others once, and for moments.
func TestNobodyWaitsForOneWhoLeft(t *testing.T) {
	measure := func(id ps.ConnectionID) *contention {
		times := contentionSettings[0].times
		c := newContention(times, Fairness{}, 4)
		far := c.proxies[0].writers[3]
		far.id, far.leaves = id, true
		c.measure(0, time.Second)
		if far.wins > 0 || far.losing == 0 {
			t.Errorf("the one who left: %d places won, %d lost; want it to have lost", far.wins, far.losing)
		}
		return c
	}
	with, without := measure(4), measure(0)
	if got := float64(with.wins()) / float64(without.wins()); got < 0.97 {
		t.Errorf("the others got %.3f of what they get if nobody is waited for", got)
	}
	if got := with.slowest(1); got > 2*longestAwaited {
		t.Errorf("one waited for %v", got)
	}
}
