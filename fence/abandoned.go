package fence

import (
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// lookAbandoned reads the log for transmissions whose fate is unknown and
// that nobody waits for, so that a misplaced append is counted and their
// memory comes to an end.
func (p *Partition) lookAbandoned(now ps.Now) {
	if len(p.state.Unsettled()) == 0 {
		return
	}
	p.markOwned()
	var dead []*ps.Unsettled
	for _, u := range p.state.Unsettled() {
		switch {
		case u.Pass == p.pass:
		case p.dead(now, u):
			if !p.readingFor(u.Expected) {
				dead = append(dead, u)
			}
		case now.Instant < u.NextLook:
			p.wakeAt(u.NextLook)
		case len(p.recordReads) >= abandonedReads || p.readingFor(u.Expected):
			// It is looked at again when a reading has ended.
		default:
			u.Looks++
			u.NextLook = now.Instant.Add(time.Second << min(u.Looks, 6))
			p.wakeAt(u.NextLook)
			if end := p.state.LowerBound(); u.Expected < end {
				p.startRead(u.Expected, min(u.End()+misplacedReach, end))
			} else {
				p.readView(now, ps.AnyNode)
			}
		}
	}
	p.state.Forget(dead...)
}

// abandonedReads is how many readings of records there may be before none is
// begun for transmissions that nobody waits for.
const abandonedReads = 8

// misplacedReach is how far behind its place a record of unknown fate is
// looked for.
const misplacedReach = 64

// markOwned marks the open transmissions whose ticket waits for its verdict
// with the number of this pass.
func (p *Partition) markOwned() {
	p.pass++
	for _, t := range p.tickets {
		if t.open != nil && (t.phase == unsettled || t.phase == typing) {
			t.open.Pass = p.pass
		}
	}
}

func (p *Partition) ownedByTicket(u *ps.Unsettled) bool {
	for _, t := range p.tickets {
		if t.open == u && (t.phase == unsettled || t.phase == typing) {
			return true
		}
	}
	return false
}

func (p *Partition) readingFor(from ps.Offset) bool {
	for _, r := range p.recordReads {
		if r.from == from {
			return true
		}
	}
	return false
}

// settleAbandoned settles what nobody waits for.
func (p *Partition) settleAbandoned(r *recordRead, s *Stored) {
	p.markOwned()
	var gone []*ps.Unsettled
	for _, u := range slices.Clone(p.state.Unsettled()) {
		if u.Expected != r.from || u.Pass == p.pass || s.ReadTo < min(u.End(), s.HighWatermark) {
			continue
		}
		upTo := min(u.End(), s.HighWatermark)
		switch c := compare(u.Expected, u.Records, upTo, s); {
		case c.equal > 0:
			p.state.Settle(u.Expected, u.Records[:upTo-u.Expected])
		case c.missing == 0 && lost(u, s):
			gone = append(gone, u)
		default:
			p.raiseBypassed(u, s)
		}
	}
	p.state.Forget(gone...)
}

// lookForBypass raises an alarm for each open transmission of the ticket's
// records in whose place another producer's record lies.
func (p *Partition) lookForBypass(t *Ticket, s *Stored) {
	for _, u := range p.openFor(t) {
		p.raiseBypassed(u, s)
	}
}

// raiseBypassed raises an alarm, once, if another producer wrote where the
// transmission was sent: the log ended there then. What lies before it may be
// older than the rule.
func (p *Partition) raiseBypassed(u *ps.Unsettled, s *Stored) {
	if u.Alarmed {
		return
	}
	for _, st := range s.Records {
		if !st.ByFence && u.Expected <= st.Offset && st.Offset < u.End() {
			u.Alarmed = true
			p.effects = append(p.effects, Effect{Kind: RaiseAlarm, Alarm: Bypassed, Offset: st.Offset})
			return
		}
	}
}

// lookForMisplaced raises an alarm for records of unknown fate that lie at
// another offset than the one they were promised, once for each transmission.
func (p *Partition) lookForMisplaced(s *Stored) {
	if len(p.state.Unsettled()) == 0 {
		return
	}
	read := make(map[ps.Record]bool, len(s.Records))
	for _, st := range s.Records {
		read[st.Record] = true
	}
	for _, u := range p.state.Unsettled() {
		if u.Alarmed || !slices.ContainsFunc(u.Records, func(r ps.Record) bool { return read[r] }) {
			continue
		}
		for _, st := range s.Records {
			if !u.Alarmed && !st.Control && u.Misplaces(st.Record, st.Offset) {
				u.Alarmed = true
				p.effects = append(p.effects, Effect{Kind: RaiseAlarm, Alarm: Misplaced, Offset: st.Offset})
			}
		}
	}
}
