package fence

import (
	"cmp"
	"math"
	"slices"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// lookWaiting decides what a batch that is not upstream waits for, sends it,
// or refuses it.
func (p *Partition) lookWaiting(now ps.Now, t *Ticket) {
	if p.lookInLine(now, t) {
		return
	}
	if t.read != 0 {
		p.wakeOrExpire(now, t)
		return
	}
	if p.expire(now, t) {
		return
	}
	if t.free() {
		p.lookFree(now, t)
		return
	}
	if !p.cfg.Unsafe && p.twinUpstream(t) {
		return // its answer decides about the same records
	}
	p.forgetDead(now, t)

	if end, ok := p.state.CommittedEnd(now.Instant, p.cfg.ViewMaxAge); ok && t.Expected < end {
		p.identify(now, t, end)
		return
	}

	oldest := p.inFlight()
	inside := p.insideQueue(t, oldest != nil)
	overtaking := false
	fresh := t.needAfter
	if oldest != nil && inside && t.Expected == oldest.end() && !p.cfg.keeps(guardOneInFlight) {
		p.sendOn(now, t, oldest.predicted())
		return
	}
	if oldest != nil && inside {
		overtake, may := p.overtakes(now, oldest)
		if !may {
			return
		}
		fresh = max(fresh, overtake)
		overtaking = true
	}
	v, ok := p.viewFor(now, t, fresh)
	if !ok {
		p.lookAt(now, t, t.Node)
		return
	}
	switch {
	case t.Expected < v.Next:
		// In the leader's log and not committed: the high watermark will
		// reach it, or it goes away.
		if !p.cfg.keeps(guardUncommitted) {
			p.identify(now, t, v.Next)
			return
		}
		p.lookAt(now, t, t.Node)
	case t.Expected > v.Next && overtaking:
		// What it waits for is stuck; others may bring the end there.
		again := v.At.Add(p.admissionWait())
		if now.Instant < again {
			p.wakeAt(again)
			return
		}
		p.lookAt(now, t, t.Node)
	case t.Expected > v.Next && inside:
		// What is queued before it may bring the end there.
	case t.Expected > v.Next:
		p.beyond(now, t, v)
	default:
		p.sendOn(now, t, v)
	}
}

// overtakes reports whether what waits behind the oldest transmission in flight
// need not any more: the queue's wait is an optimisation, not a lock. A view that
// is read from the instant given on may be used although one is in flight.
func (p *Partition) overtakes(now ps.Now, oldest *Ticket) (ps.Instant, bool) {
	overtake := oldest.sentAt.Add(p.admissionWait())
	if now.Instant < overtake {
		p.wakeAt(overtake)
		return overtake, false
	}
	return overtake, true
}

// viewFor is the view for sending the ticket's batch; false: it must be read.
func (p *Partition) viewFor(now ps.Now, t *Ticket, fresh ps.Instant) (ps.View, bool) {
	v, ok := p.state.View()
	if !ok || v.Leader != t.Node || v.At < fresh ||
		v.At < t.ConnOpened && p.cfg.keeps(guardConnAge) ||
		now.Instant.Sub(v.At) >= p.cfg.ViewMaxAge && p.cfg.keeps(guardViewAge) {
		return ps.View{}, false
	}
	return v, true
}

// beyond: the batch expects an offset that the log has not reached.
func (p *Partition) beyond(now ps.Now, t *Ticket, v ps.View) {
	if v.At < t.admittedAt {
		p.lookAt(now, t, t.Node)
		return
	}
	end, ok := p.state.CommittedEnd(now.Instant, p.cfg.ViewMaxAge)
	if !ok {
		p.lookAt(now, t, t.Node)
		return
	}
	p.decideUnsent(t, Verdict{Kind: NotReached, Next: end})
}

// sendOn sends a batch whose expected offset is the end of the log, if the
// view may be used for sending.
func (p *Partition) sendOn(now ps.Now, t *Ticket, v ps.View) {
	if p.cfg.Unsafe {
		p.send(now, t, v, Effect{Kind: Send, Ticket: t, Unstamped: true})
		return
	}
	if p.givesWay(now, t, v) || p.yields(now, t) {
		return
	}
	// Truncation of uncommitted stamped batches would leave the partition
	// without state while the view lives, were there none below them that
	// lives as long.
	if v.HighWatermark < v.Next && !p.witnessed(now) && p.cfg.keeps(guardWitness) {
		p.lookAt(now, t, t.Node)
		return
	}
	if !v.Aligned() && !p.outlivesUse(now, v.StateTimestamp) && p.cfg.keeps(guardDrift) {
		p.giveBack(t, StateNearExpiry)
		return
	}
	// A tail view is of the past; the broker refuses a stale one only while
	// it still has the state.
	if v.FromTail && v.HasState && t.Marking != MarkLogStartOffset && p.cfg.keeps(guardTailView) &&
		now.Wall.Sub(v.StateTimestamp) >= p.cfg.ProducerExpiry/2-p.cfg.stateUse() {
		p.lookAt(now, t, t.Node)
		return
	}
	if p.state.RefusedInVain(v, p.cfg.SameViewRounds) {
		p.effects = append(p.effects, Effect{Kind: RaiseAlarm, Ticket: t, Alarm: Undecidable, Offset: t.Expected})
		p.giveBack(t, SameViewRefused)
		return
	}
	epoch, sequence := v.Stamp()
	if !v.HasState && !p.cfg.keeps(guardArming) {
		sequence = 0
	}
	t.again = false
	for _, u := range p.openCopies(t) {
		// Stamped as before, the broker appends at most one of the copies. One
		// whose bytes are gone can only be committed at its place, by a leader
		// that has it in its log: never besides another.
		if (u.Epoch != epoch || u.SequenceAt(t.Expected) != sequence) && !p.bytesGone(now, u) && p.cfg.keeps(guardSameSequence) {
			p.unknown(t)
			return
		}
		t.again = true
	}
	// A copy of one that is remembered, stamped alike, costs no more.
	if n := p.cfg.MaxUnsettled; n > 0 && len(p.state.Unsettled())+len(p.upstream) >= n && !p.tooOld(now) &&
		p.state.Remembered(t.Expected, t.Records, epoch, sequence) == nil {
		p.giveBack(t, TooManyUnknown)
		return
	}
	t.epoch, t.baseSequence = epoch, sequence
	p.send(now, t, v, Effect{Kind: Send, Ticket: t, Epoch: epoch, BaseSequence: sequence})
}

// tooOld reports whether the bytes of all transmissions of unknown fate are gone.
// They may have been for where the log ends now, and are remembered until it ends
// behind that: so one batch after the other must be let through, however many
// there are.
func (p *Partition) tooOld(now ps.Now) bool {
	return len(p.upstream) == 0 && p.cfg.keeps(guardRoom) &&
		!slices.ContainsFunc(p.state.Unsettled(), func(u *ps.Unsettled) bool { return !p.bytesGone(now, u) })
}

// witnessed reports whether committed fence state was seen that is still there
// when all that is sent on it has arrived.
func (p *Partition) witnessed(now ps.Now) bool {
	timestamp, ok := p.state.Witnessed(now.Instant, p.cfg.ViewMaxAge)
	return ok && (p.outlivesUse(now, timestamp) || !p.cfg.keeps(guardWitnessLife))
}

// outlivesUse reports whether fence state with this timestamp lives longer
// than a view, and what is sent on it, can be of use.
func (p *Partition) outlivesUse(now ps.Now, timestamp ps.Timestamp) bool {
	return timestamp != -1 && now.Wall.Sub(timestamp) < p.cfg.ProducerExpiry-p.cfg.stateUse()
}

func (p *Partition) send(now ps.Now, t *Ticket, v ps.View, e Effect) {
	t.phase, t.beaten = sent, false
	p.racers.absent = false
	t.sentAt = now.Instant
	t.used = v
	p.wakeAt(p.answerDue(t))
	p.upstream = append(p.upstream, t)
	p.state.Counts().Attempts++
	// Batches before it in the queue were looked at while it was not in flight.
	p.reach.known = false
	p.changed = p.changed || p.tickets[0] != t
	p.effects = append(p.effects, e)
}

// answerDue is when the answer to a ticket's transmission is overdue.
func (p *Partition) answerDue(t *Ticket) ps.Instant {
	within := t.AnswerWithin
	if most := p.cfg.AnswerMax; most > 0 {
		within = min(within, most)
	}
	return t.sentAt.Add(within)
}

// lookSent abandons a transmission whose answer is overdue.
func (p *Partition) lookSent(now ps.Now, t *Ticket) {
	due := p.answerDue(t)
	if now.Instant < due {
		p.wakeAt(due)
		return
	}
	p.effects = append(p.effects, Effect{Kind: Abandon, Ticket: t})
	p.unsettle(now, t)
	p.changed = true
}

// expire ends a batch that was held for as long as it may be.
func (p *Partition) expire(now ps.Now, t *Ticket) bool {
	if now.Instant < t.HoldUntil {
		p.wakeAt(t.HoldUntil)
		return false
	}
	p.giveBack(t, HoldExpired)
	return true
}

// wakeOrExpire is expire for tickets that wait for a reading.
func (p *Partition) wakeOrExpire(now ps.Now, t *Ticket) {
	if p.expire(now, t) {
		p.leaveRead(t)
	}
}

// forgetDead forgets unknown transmissions of the ticket's records of which no
// copy can be alive any more: what is in the log by now is there, and nothing
// will follow.
func (p *Partition) forgetDead(now ps.Now, t *Ticket) {
	for _, u := range p.openFor(t) {
		if p.dead(now, u) && !p.ownedByTicket(u) {
			p.state.Forget(u)
		}
	}
}

// bytesGone reports whether no copy of the transmission can arrive any more.
func (p *Partition) bytesGone(now ps.Now, u *ps.Unsettled) bool {
	return now.Instant.Sub(u.SentAt) >= p.cfg.copyLife()
}

// dead reports whether no copy of the transmission will ever be committed any
// more, unless it is below the committed end already. That its bytes are gone
// is not enough: it may lie in a leader's log beyond a high watermark that
// stands still, or in the log of a follower that leads next. When the
// committed end has passed its place, it is there or never will be. A
// partition that cannot be asked any more is given up at last.
func (p *Partition) dead(now ps.Now, u *ps.Unsettled) bool {
	return p.bytesGone(now, u) &&
		(p.state.LowerBound() > u.Expected || now.Instant.Sub(u.SentAt) >= p.cfg.copyLife()+p.cfg.givenUpAfter())
}

// inFlight is the transmission that has been upstream for longest.
func (p *Partition) inFlight() *Ticket {
	var oldest *Ticket
	for _, t := range p.upstream {
		if t.phase == sent && (oldest == nil || t.sentAt < oldest.sentAt) {
			oldest = t
		}
	}
	return oldest
}

// reach is the run of offsets, from … to, that what is in flight and queued in
// this proxy may bring the end of the log to.
type reach struct {
	from, to ps.Offset
	known    bool // false: to be computed anew
}

// insideQueue reports whether the ticket's expected offset lies where what is
// in flight and queued in this proxy may bring the end. At the end itself
// nothing is waited for.
func (p *Partition) insideQueue(t *Ticket, inFlight bool) bool {
	if !p.reach.known {
		p.reach = p.findReach(inFlight)
	}
	r := p.reach
	return r.from <= t.Expected && t.Expected <= r.to && (inFlight || r.from < t.Expected)
}

// findReach follows the queue in order of offset; a ticket's own records lie
// behind the offset it expects, so they make no difference to itself.
func (p *Partition) findReach(inFlight bool) reach {
	r := reach{from: math.MaxInt64, to: ps.NoOffset, known: true}
	if inFlight {
		for _, f := range p.upstream {
			if f.phase == sent {
				r.from, r.to = min(r.from, f.Expected), max(r.to, f.end())
			}
		}
	} else if v, ok := p.state.View(); ok {
		r.from, r.to = v.Next, v.Next
	}
	queue := p.queue[:0]
	for _, q := range p.tickets {
		if q.phase == waiting && q.Expected >= r.from {
			queue = append(queue, q)
		}
	}
	slices.SortFunc(queue, func(a, b *Ticket) int { return cmp.Compare(a.Expected, b.Expected) })
	for _, q := range queue {
		if q.Expected > r.to {
			break
		}
		r.to = max(r.to, q.end())
	}
	clear(queue)
	p.queue = queue
	return r
}
