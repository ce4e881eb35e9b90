package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// givesWay reports whether the ticket must not be sent on the view yet, because
// others must have their chance first. A view that is begun after the pause shows
// whether they took it.
func (p *Partition) givesWay(now ps.Now, t *Ticket, v ps.View) bool {
	u := &p.turn
	switch {
	case p.cfg.Fairness.ContendedFor == 0:
		return false
	case u.since == 0:
		return p.sitsOut(now, t, v)
	case u.pauseEnd == 0 && !p.beginPause(now):
		return false
	case v.At >= u.pauseEnd:
		u.unused()
		return false
	case now.Instant < u.pauseEnd:
		p.wakeAt(u.pauseEnd)
		return true
	}
	p.lookAt(now, t, t.Node)
	return true
}

// Pauses is how often the partition was left to other proxies so far.
func (p *Partition) Pauses() int { return p.turn.pauses }

// beginPause begins a pause if it is time for one. It counts from the last
// append: whoever has left the partition alone for that long need not wait.
func (p *Partition) beginPause(now ps.Now) bool {
	u, f := &p.turn, &p.cfg.Fairness
	pause := u.pause(p.ackTime, u.stretch)
	alone := !u.contended(f, now.Instant, pause)
	length := u.length(f, pause)
	if alone {
		length = u.lengthAlone(f, u.pause(p.ackTime, nearStretch))
	}
	if now.Instant.Sub(u.since) < length {
		return false
	}
	if alone {
		u.stretch = u.stretchAlone(now.Instant, p.ackTime)
		pause = u.pause(p.ackTime, u.stretch)
	}
	end := u.lastWin.Add(pause)
	if now.Instant >= end {
		u.since = 0
		return false
	}
	u.pauseEnd = end
	u.pauses++
	return true
}

// eagerness and leisure are how many times as long as a view takes to be read lies
// between two of them while it is another's turn: leisure where this proxy is sure of
// its next turn.
const eagerness, leisure = 2, 8

// sitsOut reports whether it is another's turn. Views are read meanwhile, so that
// batches that come too late are told so.
func (p *Partition) sitsOut(now ps.Now, t *Ticket, v ps.View) bool {
	u := &p.turn
	sure := t.racing && !u.overtaken
	again := v.At.Add(eagerness * u.viewTime)
	if sure {
		again = max(v.At, u.lookedAt).Add(leisure * u.viewTime)
	}
	switch {
	case u.outUntil == 0, now.Instant >= u.outUntil && (!sure || v.At >= u.outUntil):
		return false
	case now.Instant >= u.outUntil:
		p.lookAt(now, t, t.Node) // what was seen meanwhile is of before
	case v.At.Sub(u.stillSince) >= u.pause(p.ackTime, u.stretch):
		u.outUntil = 0
		return false
	case now.Instant < again:
		p.wakeAt(min(again, u.outUntil))
	case sure:
		t.looking, t.resting = true, true
		p.readView(now, t.Node)
	default:
		p.lookAt(now, t, t.Node)
	}
	return true
}

// rests reports whether a ticket of one that races, which has lost its place to
// another proxy, is to be told so later, but not after last: it is another's turn, so
// that it would come for the next place in vain.
func (p *Partition) rests(now ps.Now, t *Ticket, last ps.Instant) bool {
	u := &p.turn
	if p.cfg.Fairness.ContendedFor == 0 || u.since != 0 || u.outUntil == 0 || u.overtaken {
		return false
	}
	v, ok := p.state.View()
	if !ok || v.Leader != t.Node || !p.sitsOut(now, t, v) {
		return false
	}
	p.wakeAt(last)
	return true
}

// lookForRivals notices in a view that was read what others have appended.
func (p *Partition) lookForRivals(now ps.Now, begun ps.Instant, v ps.View) {
	u := &p.turn
	if begun != 0 {
		average(&u.viewTime, now.Instant.Sub(begun))
	}
	old, ok := p.state.View()
	if !ok && u.lastWin == 0 {
		return
	}
	known := max(u.end, old.Next)
	for _, t := range p.upstream {
		known = max(known, t.end())
	}
	if v.Next > known {
		u.stillSince = v.At
		p.lostTurn(now)
	}
}

// lostTurn notes that another writer was noticed.
func (p *Partition) lostTurn(now ps.Now) {
	p.turn.lost(&p.cfg.Fairness, now.Instant, p.turn.pause(p.ackTime, p.turn.stretch))
}
