package fence

import (
	"math"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// racers remembers who was told where the log ends, of those who race for one place
// after the other. Were all told at once, all would try the next place, and all but
// one in vain: with 16 of them that is 16 requests for one append. So whoever has won
// goes on for a run of appends, as if it were alone, while the others stay where they
// are, in a queue. At the end of a run one of them is told, and races for the next
// place with the winner. Nothing is lost by that: what they would have tried meanwhile
// would hardly have been theirs.
//
// A winner that is further away than those who queue, or does not come back, has no
// run: one of them is told for each of its appends.
//
// Only those queue who race, that is, who came for the very place that they had been
// told of or won their way to. Whoever comes for the first time, and wants to know
// whether it is too late, is told at once. And all are told at once where another
// proxy has brought the log to its end, which they must be quick to follow, once it
// is not another's turn any more; or a batch that may lie anywhere, behind which
// others wait.
type racers struct {
	// told is who was told last, that the log ends at next, and due when it must
	// have come for that for others to go on waiting.
	told ps.ConnectionID
	next ps.Offset
	due  ps.Instant
	// heir: it is about as near as the winner, which leaves the place to it.
	heir bool
	// here is what that has brought, once it was found; absent: it was looked for in
	// vain, and nothing has come or was sent since.
	here   *Ticket
	absent bool
	// winner has appended what lies before won, at wonAt, and is away until it comes
	// for that place, with came. trip is a moving average of how long that takes it; 0: not
	// known.
	winner ps.ConnectionID
	won    ps.Offset
	wonAt  ps.Instant
	away   bool
	came   *Ticket
	trip   time.Duration
	// run counts its appends since runSince.
	run      int
	runSince ps.Instant
}

// longestRun is how many appends a run has at most. Its end costs about half an append:
// one more try, and the way of whoever comes next.
const longestRun = 16

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

// wonPlace notes that a ticket was appended, for which a connection had come.
func (p *Partition) wonPlace(now ps.Now, t *Ticket) {
	r := &p.racers
	if r.winner != t.Connection {
		r.winner, r.run, r.runSince, r.trip = t.Connection, 0, r.wonAt, t.trip
	}
	r.won, r.wonAt, r.away, r.came = t.end(), now.Instant, true, nil
	r.run++
}

// cameToRace notes that a batch came, and how long its sender has taken for that.
func (p *Partition) cameToRace(now ps.Now, t *Ticket) {
	if p.cfg.Fairness.TellWithin == 0 || !p.races(t) {
		return
	}
	t.racing = true
	r := &p.racers
	if t.Connection != r.winner || t.Expected != r.won {
		t.trip = p.senders.tripOf(t.Connection)
		return
	}
	if r.away {
		r.away, r.came = false, t
		average(&r.trip, min(now.Instant.Sub(r.wonAt), longestAwaited))
	}
	t.trip = r.trip
}

// goesOn reports whether the winner's run goes on, so that a sender whose way takes
// trip is not told yet; it is to be looked at again then.
func (p *Partition) goesOn(now ps.Now, end ps.Offset, trip time.Duration) (again ps.Instant, _ bool) {
	r := &p.racers
	// All who queue are to have their turn within half the time that they may queue.
	most := p.cfg.Fairness.TellWithin / time.Duration(2*max(len(p.tickets), 1))
	switch {
	case p.turn.overtaken || r.won != end || r.trip == 0 || r.trip > 2*trip:
		return 0, false
	case r.run >= longestRun, r.wonAt.Sub(r.runSince) >= most: // by then: later it would come too late for this place
		return 0, false
	case !r.away && r.came != nil && r.came.phase != waiting && !r.came.isUpstream():
		return 0, false // its batch has failed
	case !r.away:
		return ps.Instant(math.MaxInt64), true
	}
	back := r.wonAt.Add(min(2*r.trip+time.Millisecond, longestAwaited))
	return back, now.Instant < back
}

// queues reports whether a ticket that has lost its place, since the log ends at
// end, is to be told so later. If not, it is told now, and the others wait for it.
func (p *Partition) queues(now ps.Now, t *Ticket, end ps.Offset) bool {
	if !t.racing || t.detached {
		return false
	}
	last := tellBy(t, p.cfg.Fairness.TellWithin)
	if p.racers.won != end {
		if p.turn.end == end || p.turn.overtaken {
			return false // others must be followed quickly, or take any place here
		}
		if now.Instant < last && p.rests(now, t, last) {
			return true
		}
	}
	if l := p.senders.deprived(); l != nil && l.id == t.Connection {
		return false // it is waited for
	}
	if p.racers.told == t.Connection && p.racers.next == end {
		return false // it was to be told when the log had to be read first
	}
	switch {
	case now.Instant >= last:
		return false
	case p.racers.next < end:
		if again, ok := p.goesOn(now, end, t.trip); ok {
			p.wakeAt(min(last, again))
			return true
		}
	case p.toldCame():
		p.wakeAt(last)
		return true
	case now.Instant < p.racers.due:
		p.wakeAt(min(last, p.racers.due))
		return true
	}
	trip := t.trip
	if trip == 0 {
		trip = longestAwaited
	}
	r := &p.racers
	r.told, r.next, r.absent = t.Connection, end, false
	r.due = now.Instant.Add(min(2*trip+time.Millisecond, longestAwaited))
	r.run, r.runSince = 0, r.wonAt
	r.heir = r.won == end && t.trip != 0 && t.trip <= 2*r.trip
	return false
}

// yieldsToHeir reports whether the ticket, of the one who has had its run, must not be
// sent yet, because the one who was told at its end comes soon for the same place.
func (p *Partition) yieldsToHeir(now ps.Now, t *Ticket) bool {
	r := &p.racers
	if !r.heir || t.Connection != r.winner || t.Expected != r.next || now.Instant >= r.due {
		return false
	}
	p.wakeAt(r.due)
	return true
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
