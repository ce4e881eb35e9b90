package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// racers remembers who was told where the log ends, of those who race for one place
// after the other. Were all told at once, all would try the next place, and all but
// one in vain: with 16 of them that is 16 requests for one append. So one is told
// for each append, and races for the next place with whoever has just won; the
// others stay where they are, in a queue, and are told of a later end. Nothing is
// lost by that: what they would have tried meanwhile would hardly have been theirs.
//
// Only those wait who race, that is, who came for the very place that they had been
// told of or won their way to. Whoever comes for the first time, and wants to know
// whether it is too late, is told at once. And all are told at once where another
// proxy has brought the log to its end, which they must be quick to follow, or a
// batch that may lie anywhere, behind which others wait.
type racers struct {
	// told is who was told last, that the log ends at next, and due when it must
	// have come for that for others to go on waiting.
	told ps.ConnectionID
	next ps.Offset
	due  ps.Instant
	// here is what that has brought, once it was found; absent: it was looked for in
	// vain, and nothing has come or was sent since.
	here   *Ticket
	absent bool
	// winner has appended what lies before won.
	winner ps.ConnectionID
	won    ps.Offset
}

// races reports whether a connection comes for the place that it was led to.
func (p *Partition) races(t *Ticket) bool {
	switch {
	case t.Connection == 0 || t.AtEnd || t.Producer != nil:
		return false
	case p.racers.winner == t.Connection && p.racers.won == t.Expected:
		return true
	}
	l := p.senders.losing[t.Connection]
	return l != nil && l.next == t.Expected
}

// queues reports whether a ticket that has lost its place, since the log ends at
// end, is to be told so later. If not, it is told now, and the others wait for it.
func (p *Partition) queues(now ps.Now, t *Ticket, end ps.Offset) bool {
	if !t.racing || t.detached || p.racers.won != end {
		return false
	}
	if l := p.senders.deprived(); l != nil && l.id == t.Connection {
		return false // it is waited for
	}
	if p.racers.told == t.Connection && p.racers.next == end {
		return false // it was to be told when the log had to be read first
	}
	last := tellBy(t, p.cfg.Fairness.TellWithin)
	if now.Instant < last && p.racers.next >= end {
		switch {
		case p.toldCame():
			p.wakeAt(last)
			return true
		case now.Instant < p.racers.due:
			p.wakeAt(min(last, p.racers.due))
			return true
		}
	}
	trip := longestAwaited
	if l := p.senders.losing[t.Connection]; l != nil && l.trip > 0 {
		trip = l.trip
	}
	p.racers.told, p.racers.next, p.racers.absent = t.Connection, end, false
	p.racers.due = now.Instant.Add(min(2*trip+time.Millisecond, longestAwaited))
	return false
}

// tellBy is when a ticket that queues is told at the latest: within the time given,
// and well before its client's own runs out.
func tellBy(t *Ticket, within time.Duration) ps.Instant {
	return t.admittedAt.Add(min(within, t.HoldUntil.Sub(t.admittedAt)/2))
}

// toldCame reports whether a batch of the one who was told last is here, for the
// place that it was told of. All who queue ask that again and again.
func (p *Partition) toldCame() bool {
	r := &p.racers
	if r.here != nil && r.brought(r.here) {
		return true
	}
	if r.absent {
		return false
	}
	r.here = nil
	for _, t := range p.tickets {
		if r.brought(t) {
			r.here = t
			break
		}
	}
	r.absent = r.here == nil
	return !r.absent
}

// brought reports whether a ticket is such a batch.
func (r *racers) brought(t *Ticket) bool {
	return t.Connection == r.told && t.Expected == r.next && (t.phase == waiting || t.isUpstream())
}
