package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Partition is the single serialising writer of one partition: it admits
// batches, lets at most one at a time go upstream on a predicted end, and
// decides what becomes of each. Not for concurrent use: the caller holds a
// lock around each event. The effects an event returns are valid until the
// next event.
type Partition struct {
	cfg   *Config
	state *ps.State

	// tickets are the batches not decided yet, in order of admission.
	tickets []*Ticket
	// upstream are those of them that are sent or typing, and perhaps some
	// that no longer are.
	upstream []*Ticket
	// reach and queue serve insideQueue within one pass.
	reach reach
	queue []*Ticket
	// viewReads are the outstanding readings of views.
	viewReads []viewRead
	// recordReads are the outstanding readings of records.
	recordReads []*recordRead
	lastRead    ReadID

	// lines are what is in flight of idempotent clients; concluded is up to where
	// effects has been gone through for what verdicts mean to them.
	lines     map[ps.ProducerID]*line
	concluded int

	// turn and senders are for fairness between proxies, and within this one.
	turn    turn
	senders senders
	racers  racers
	// tallied counts the effects of this event that senders knows of.
	tallied int
	// ackTime is a moving average of the time from sending to acknowledgement.
	ackTime time.Duration
	// pass counts the passes in which open transmissions were marked with it
	// for which a ticket waits.
	pass uint64

	effects []Effect
	wake    ps.Instant
	hasWake bool
	// overlapping is for lookups of open transmissions.
	overlapping []*ps.Unsettled

	// changed: a ticket was decided or sent in this pass, so that others must
	// be looked at again.
	changed bool
}

// recordRead is one reading of records, shared by all tickets that want them.
// Without tickets it is for an unsettled transmission nobody waits for.
type recordRead struct {
	id         ReadID
	from, upTo ps.Offset
	tickets    []*Ticket
}

// New makes the decision maker of a partition over what is known of it. It
// owns state until Busy is false.
func New(cfg *Config, state *ps.State) *Partition {
	p := &Partition{state: state}
	p.Configure(cfg)
	return p
}

// Configure has the partition decide by cfg from now on.
func (p *Partition) Configure(cfg *Config) {
	p.cfg = cfg
	p.state.KeepRecent(cfg.MaxRecent)
}

// State is what is known of the partition; read it only between events.
func (p *Partition) State() *ps.State { return p.state }

// Busy reports whether anything is in progress or of unknown fate. While it
// is false, the state may be put away and a new Partition made from it later.
func (p *Partition) Busy() bool {
	return len(p.tickets) > 0 || len(p.viewReads) > 0 || len(p.recordReads) > 0 || len(p.state.Unsettled()) > 0
}

// Wake is when Tick is due, if nothing happens before.
func (p *Partition) Wake() (ps.Instant, bool) { return p.wake, p.hasWake }

// Admit takes in a batch. Some effect may already send or decide it.
func (p *Partition) Admit(now ps.Now, t *Ticket) []Effect {
	t.admittedAt = now.Instant
	p.turn.came(&p.cfg.Fairness, now.Instant, t.Expected, p.ackTime)
	p.senders.came(now.Instant, t.Connection)
	p.cameToRace(now, t)
	t.tied = t.AtEnd && t.Expected != ps.NoOffset
	p.tickets = append(p.tickets, t)
	p.racers.absent = false
	p.effects = p.effects[:0]
	if t.Producer != nil {
		p.enter(now, t)
	}
	return p.resume(now)
}

// Tick looks at everything again because time has passed.
func (p *Partition) Tick(now ps.Now) []Effect { return p.run(now) }

// Cancel tells that nobody waits for the ticket any more, as its connection
// ends. A batch that was not sent is forgotten; one that was goes on until its
// fate is known.
func (p *Partition) Cancel(now ps.Now, t *Ticket) []Effect {
	p.effects = p.effects[:0]
	t.detached = true
	p.senders.forget(t.Connection) // it ends, and is not to be waited for
	if t.phase == waiting {
		p.withdrawn(now, t)
		p.remove(t)
	}
	return p.resume(now)
}

// Answered takes in the broker's answer to the ticket's transmission. Late
// answers, after Abandoned, are ignored.
func (p *Partition) Answered(now ps.Now, t *Ticket, a Answer) []Effect {
	p.effects = p.effects[:0]
	if t.phase != sent && p.cfg.keeps(guardAbandon) {
		return p.run(now)
	}
	switch judge(p.cfg, t.Marking, a) {
	case appended:
		p.acknowledged(now, t, a)
	case notNow:
		p.refusedBySequence(now, t)
	case refusedByBroker:
		p.state.DropView()
		p.leftNothing(now, t, Verdict{Kind: BrokerError, Code: a.Code})
	case ambiguous:
		if p.unsettle(now, t); t.phase == unsettled {
			t.phase, t.base = typing, a.BaseOffset
		}
	case noIdea:
		p.unsettle(now, t)
	}
	return p.resume(now)
}

// Abandoned tells that the ticket's transmission will get no answer: its
// connection is closed. Bytes of it may still arrive at the broker.
func (p *Partition) Abandoned(now ps.Now, t *Ticket) []Effect {
	p.effects = p.effects[:0]
	if t.phase == sent {
		p.unsettle(now, t)
	}
	return p.resume(now)
}

// NotSent tells that not one byte of the ticket's transmission was given to
// its connection, which is closed.
func (p *Partition) NotSent(now ps.Now, t *Ticket) []Effect { return p.unsent(now, t, Unreachable) }

// Unsendable tells that the ticket's transmission cannot be made: its bytes
// went with an earlier one, which was not appended.
func (p *Partition) Unsendable(now ps.Now, t *Ticket) []Effect { return p.unsent(now, t, ViewChanged) }

func (p *Partition) unsent(now ps.Now, t *Ticket, r Reason) []Effect {
	p.effects = p.effects[:0]
	if t.phase == sent {
		p.leftNothing(now, t, Verdict{Kind: Retry, Reason: r})
	}
	return p.resume(now)
}

// leftNothing: the ticket's transmission is known to have left nothing. v says
// so of the batch as well, unless another transmission of any of its records
// is open: it may be on its way, or lie uncommitted in the log of a follower
// that leads next. Then only the log can tell.
func (p *Partition) leftNothing(now ps.Now, t *Ticket, v Verdict) {
	if p.othersOpen(t) {
		p.readBack(now, t)
		return
	}
	p.decide(t, v)
}

// othersOpen reports whether a transmission of any of the ticket's records is
// open, or was when the ticket's own, which is not, was sent.
func (p *Partition) othersOpen(t *Ticket) bool {
	return p.cfg.keeps(guardWeak) && t.concerned() && !t.beaten &&
		(t.again || p.state.FindUnsettled(t.Expected, t.Records) != nil || p.twinUpstream(t))
}

func (p *Partition) acknowledged(now ps.Now, t *Ticket, a Answer) {
	if p.cfg.Unsafe {
		p.state.Acknowledged(now.Instant, p.appendOf(t, a.BaseOffset))
		p.decide(t, Verdict{Kind: Won, Offset: a.BaseOffset})
		return
	}
	if a.BaseOffset != t.Expected {
		p.misplaced(now, t, a.BaseOffset)
		return
	}
	p.state.Settle(t.Expected, t.Records)
	p.state.Acknowledged(now.Instant, p.appendOf(t, t.Expected))
	average(&p.ackTime, now.Instant.Sub(t.sentAt))
	p.turn.won(now.Instant, t.end())
	if t.beaten {
		p.lostPlace(t) // somebody was told that this append is theirs
		return
	}
	if !t.AtEnd {
		p.wonPlace(now, t)
	}
	p.decide(t, Verdict{Kind: Won, Offset: t.Expected})
}

// misplaced: the batch was appended at another offset than its stamp stands for.
// To one that may lie anywhere no harm is done, but others are not safe.
func (p *Partition) misplaced(now ps.Now, t *Ticket, at ps.Offset) {
	p.state.AppendedElsewhere(now.Instant, at, len(t.Records), t.sentAt)
	if t.AtEnd {
		p.effects = append(p.effects, Effect{Kind: RaiseAlarm, Ticket: t, Alarm: Misplaced, Offset: at})
		p.decide(t, Verdict{Kind: Won, Offset: at})
		return
	}
	p.decide(t, Verdict{Kind: Violation, Offset: at})
}

func (p *Partition) appendOf(t *Ticket, at ps.Offset) ps.Append {
	return ps.Append{
		At: at, Records: t.Records, Epoch: t.epoch, BaseSequence: t.baseSequence,
		MaxTimestamp: t.MaxTimestamp, Leader: t.used.Leader, LeaderEpoch: t.used.LeaderEpoch,
		ArmAtZero: t.used.ArmAtZero, SentAt: t.sentAt,
	}
}

// refusedBySequence: the broker did not append this transmission because the
// sequence is not the next one. The view was wrong, or another proxy was
// faster. Which it was, a view that is read from now on tells.
func (p *Partition) refusedBySequence(now ps.Now, t *Ticket) {
	p.state.Counts().LostRaces++
	p.state.Refused(now.Instant, t.used)
	p.lostTurn(now)
	if p.othersOpen(t) {
		p.readBack(now, t)
		return
	}
	if !p.cfg.keeps(guardSecondLook) {
		p.decide(t, Verdict{Kind: Taken, Next: t.Expected + 1})
		return
	}
	if t.detached {
		// Nothing of it is in the log, and nobody is there to want it there.
		p.giveBack(t, HoldExpired)
		return
	}
	t.phase = waiting
	t.needAfter = now.Instant
	t.looks, t.nextLook = 0, 0
	if t.AtEnd {
		t.Expected, t.tied = ps.NoOffset, false
	}
}

// readBack: the log must tell what became of an earlier transmission of the
// ticket's records; the last one is known to have left nothing.
func (p *Partition) readBack(now ps.Now, t *Ticket) {
	p.state.DropView()
	t.phase = unsettled
	t.needAfter = now.Instant
	t.looks, t.nextLook = 0, 0
}

// unsettle: the ticket's transmission may be in the log now, later or never.
func (p *Partition) unsettle(now ps.Now, t *Ticket) {
	if t.beaten {
		p.lostPlace(t)
		return
	}
	p.readBack(now, t)
	// The bytes may have been given to the connection at any time up to now:
	// what was decided before a freeze is written after it.
	t.open = p.state.Unsettle(&ps.Unsettled{
		Expected: t.Expected, Records: t.Records,
		Epoch: t.epoch, BaseSequence: t.baseSequence, SentAt: now.Instant, Node: t.Node,
		NextLook: t.HoldUntil, Anywhere: t.AtEnd,
	})
}

// resume finishes an event that has put effects already.
func (p *Partition) resume(now ps.Now) []Effect {
	p.look(now)
	p.tally(now)
	p.tallied = 0
	return p.effects
}

func (p *Partition) run(now ps.Now) []Effect {
	p.effects = p.effects[:0]
	return p.resume(now)
}

// look goes over all tickets, in order of admission, until nothing changes.
func (p *Partition) look(now ps.Now) {
	for {
		p.conclude(now)
		p.changed = false
		p.hasWake = false
		p.reach.known = false
		for _, t := range p.tickets {
			switch t.phase {
			case waiting:
				p.lookWaiting(now, t)
			case sent:
				p.lookSent(now, t)
			case typing, unsettled:
				p.lookUnsettled(now, t)
			}
		}
		p.sweep()
		if !p.changed {
			break
		}
	}
	p.concluded = 0
	p.lookAbandoned(now)
}

// sweep removes the tickets that are done.
func (p *Partition) sweep() {
	kept := p.tickets[:0]
	for _, t := range p.tickets {
		if t.phase != done {
			kept = append(kept, t)
		}
	}
	clear(p.tickets[len(kept):])
	p.tickets = kept
	up := p.upstream[:0]
	for _, t := range p.upstream {
		if t.isUpstream() {
			up = append(up, t)
		}
	}
	clear(p.upstream[len(up):])
	p.upstream = up
}

func (p *Partition) remove(t *Ticket) {
	t.phase = done
	p.sweep()
}

func (p *Partition) decide(t *Ticket, v Verdict) {
	if t.AtEnd && (v.Kind == Taken || v.Kind == NotReached) {
		p.freeAgain(t)
		return
	}
	if v = p.sentenced(t, v); v.Kind != Taken {
		v.LogStart = ps.NoOffset
	}
	if t.AtEnd && v.Kind == Won {
		p.claim(t, v.Offset)
	}
	t.phase = done
	p.changed = true
	p.count(v.Kind)
	p.effects = append(p.effects, Effect{Kind: Decide, Ticket: t, Verdict: v})
}

// freeAgain: where a batch that may lie anywhere was tried, it is not and never
// will be. Time limits are looked at when it is its turn.
func (p *Partition) freeAgain(t *Ticket) {
	t.phase, t.Expected, t.open, t.again = waiting, ps.NoOffset, nil, false
	t.tied, t.beaten = false, false
	t.looks, t.nextLook = 0, 0
	if t.detached {
		p.giveBack(t, HoldExpired)
	}
	p.changed = true
}

func (p *Partition) unknown(t *Ticket) {
	p.decide(t, Verdict{Kind: Unknown, Next: p.state.LowerBound()})
}

// giveBack ends a ticket of which nothing was appended, so that its client
// may send it again.
func (p *Partition) giveBack(t *Ticket, r Reason) {
	p.decideUnsent(t, Verdict{Kind: Retry, Reason: r})
}

// decideUnsent gives v to a ticket of which this proxy knows no transmission
// whose fate is open, and Unknown to any other.
func (p *Partition) decideUnsent(t *Ticket, v Verdict) {
	if p.cfg.keeps(guardWeak) && (t.followsOpen() || t.tied && v.Kind != NotReached ||
		t.concerned() && (p.state.FindUnsettled(t.Expected, t.Records) != nil || p.twinUpstream(t))) {
		p.unknown(t)
		return
	}
	p.decide(t, v)
}

// twinUpstream reports whether another transmission of any of the ticket's
// records is on its way.
func (p *Partition) twinUpstream(t *Ticket) bool {
	for _, o := range p.upstream {
		if o != t && o.isUpstream() && o.overlaps(t) {
			return true
		}
	}
	return false
}

// openFor lists the open transmissions of any of the ticket's records, until
// the next call.
func (p *Partition) openFor(t *Ticket) []*ps.Unsettled {
	p.overlapping = p.state.AppendOverlapping(p.overlapping[:0], t.Expected, t.Records)
	return p.overlapping
}

// openCopies lists the open transmissions of the ticket's batch, until the next
// call.
func (p *Partition) openCopies(t *Ticket) []*ps.Unsettled {
	if !t.concerned() {
		return nil
	}
	return p.openFor(t)
}

func (p *Partition) wakeAt(at ps.Instant) {
	if !p.hasWake || at < p.wake {
		p.wake, p.hasWake = at, true
	}
}

// admissionWait is how long the batch in flight is waited for.
func (p *Partition) admissionWait() time.Duration {
	return max(p.cfg.AdmissionWait, 4*p.ackTime)
}
