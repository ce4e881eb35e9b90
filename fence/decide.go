package fence

import (
	"math"
	"slices"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// lookWaiting decides what a batch that is not upstream waits for, sends it,
// or refuses it.
func (p *Partition) lookWaiting(now ps.Now, t *Ticket) {
	if t.read != 0 {
		p.wakeOrExpire(now, t)
		return
	}
	if p.expire(now, t) {
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
	fresh := t.needAfter
	if oldest != nil && inside && t.Expected == oldest.end() && !p.cfg.keeps(guardOneInFlight) {
		p.sendOn(now, t, oldest.predicted())
		return
	}
	if oldest != nil && inside {
		// The queue's wait is an optimisation, not a lock: after a while a
		// view read from then on may be used although one is in flight.
		overtake := oldest.sentAt.Add(p.admissionWait())
		if now.Instant < overtake {
			p.wakeAt(overtake)
			return
		}
		fresh = max(fresh, overtake)
	}
	v, ok := p.state.View()
	if !ok || v.Leader != t.Node || v.At < fresh ||
		v.At < t.ConnOpened && p.cfg.keeps(guardConnAge) ||
		now.Instant.Sub(v.At) >= p.cfg.ViewMaxAge && p.cfg.keeps(guardViewAge) {
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
	case t.Expected > v.Next:
		p.beyond(now, t, v, inside)
	default:
		p.sendOn(now, t, v)
	}
}

// beyond: the batch expects an offset that the log has not reached.
func (p *Partition) beyond(now ps.Now, t *Ticket, v ps.View, inside bool) {
	if inside {
		return // what is queued before it may bring the end there
	}
	if v.At < t.admittedAt {
		t.needAfter = t.admittedAt
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
	// Truncation of a first, uncommitted stamped batch would leave the
	// partition without state while the view lives.
	if v.HighWatermark < v.Next && !p.state.Witnessed(now.Instant, p.cfg.ViewMaxAge) && p.cfg.keeps(guardWitness) {
		p.lookAt(now, t, t.Node)
		return
	}
	youngEnough := v.StateTimestamp != -1 && now.Wall.Sub(v.StateTimestamp) < p.cfg.ProducerExpiry-p.cfg.stateUse()
	if !v.Aligned() && !youngEnough && p.cfg.keeps(guardDrift) {
		p.giveBack(t, StateNearExpiry)
		return
	}
	// A tail view is of the past; the broker refuses a stale one only while
	// it still has the state.
	if v.FromTail && v.HasState && p.cfg.Marking == MarkLogAppendTime &&
		now.Wall.Sub(v.StateTimestamp) >= p.cfg.ProducerExpiry/2-p.cfg.stateUse() {
		p.lookAt(now, t, t.Node)
		return
	}
	if t.refused {
		t.refused = false
		if v.SamePair(t.used) {
			t.sameView++
		} else {
			t.sameView = 0
		}
		if t.sameView >= p.cfg.SameViewRounds {
			p.effects = append(p.effects, Effect{Kind: RaiseAlarm, Ticket: t, Alarm: Undecidable, Offset: t.Expected})
			p.giveBack(t, SameViewRefused)
			return
		}
	}
	epoch, sequence := v.Stamp()
	if !v.HasState && !p.cfg.keeps(guardArming) {
		sequence = 0
	}
	again := false
	for _, u := range p.state.Unsettled() {
		if !u.Overlaps(t.Expected, t.Records) {
			continue
		}
		// Stamped as before, the broker appends at most one of the copies.
		if (u.Epoch != epoch || u.SequenceAt(t.Expected) != sequence) && p.cfg.keeps(guardSameSequence) {
			p.unknown(t)
			return
		}
		again = true
	}
	t.again = again
	t.epoch, t.baseSequence = epoch, sequence
	p.send(now, t, v, Effect{Kind: Send, Ticket: t, Epoch: epoch, BaseSequence: sequence})
}

func (p *Partition) send(now ps.Now, t *Ticket, v ps.View, e Effect) {
	t.phase = sent
	t.sentAt = now.Instant
	t.used = v
	p.wakeAt(t.sentAt.Add(t.AnswerWithin))
	p.effects = append(p.effects, e)
}

// lookSent abandons a transmission whose answer is overdue.
func (p *Partition) lookSent(now ps.Now, t *Ticket) {
	due := t.sentAt.Add(t.AnswerWithin)
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
	for _, u := range slices.Clone(p.state.Unsettled()) {
		if u.Overlaps(t.Expected, t.Records) && p.dead(now, u) && !p.ownedByTicket(u) {
			p.state.Forget(u)
		}
	}
}

// dead reports whether no copy of the transmission will ever be appended or
// committed any more, except if it is below the committed end already. That
// its bytes are gone is not enough: they may lie in a leader's log beyond a
// high watermark that stands still, or in the log of a follower that leads
// next. Once the committed end has passed its place, or has been seen after
// the bytes were gone to be the end of the log before its place, all replicas
// agree. A partition that cannot be asked any more is given up at last.
func (p *Partition) dead(now ps.Now, u *ps.Unsettled) bool {
	gone := u.SentAt.Add(p.cfg.copyLife())
	if now.Instant < gone {
		return false
	}
	if p.state.LowerBound() > u.Expected || now.Instant >= gone.Add(p.cfg.givenUpAfter()) {
		return true
	}
	v, ok := p.state.View()
	return ok && v.At >= gone && v.HighWatermark >= v.Next && v.Next <= u.Expected
}

// inFlight is the transmission that has been upstream for longest.
func (p *Partition) inFlight() *Ticket {
	var oldest *Ticket
	for _, t := range p.tickets {
		if t.phase == sent && (oldest == nil || t.sentAt < oldest.sentAt) {
			oldest = t
		}
	}
	return oldest
}

// insideQueue reports whether the ticket's expected offset lies where what is
// in flight and queued in this proxy may bring the end.
func (p *Partition) insideQueue(t *Ticket, inFlight bool) bool {
	var lo, hi ps.Offset
	if inFlight {
		lo = ps.Offset(math.MaxInt64)
		for _, f := range p.tickets {
			if f.phase == sent {
				lo, hi = min(lo, f.Expected), max(hi, f.end())
			}
		}
	} else {
		v, ok := p.state.View()
		if !ok {
			return false
		}
		lo, hi = v.Next, v.Next
	}
	for grown := true; grown && hi < t.Expected; {
		grown = false
		for _, q := range p.tickets {
			if q != t && q.phase == waiting && lo <= q.Expected && q.Expected <= hi && q.end() > hi {
				hi, grown = q.end(), true
			}
		}
	}
	if inFlight {
		return lo <= t.Expected && t.Expected <= hi
	}
	return lo < t.Expected && t.Expected <= hi
}
