package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// sender is a connection that lost the races for its last places.
type sender struct {
	id ps.ConnectionID
	// losses counts the places in a row for which it was too late; of the last one
	// it was told that next is to be tried.
	losses int
	next   ps.Offset
	// toldAt is when it was told so, until it sends again; 0: it has.
	toldAt ps.Instant
	// trip is a moving average of the time from a verdict to its next batch.
	trip time.Duration
}

// senders remembers who loses, so that nobody loses without end: whoever has lost
// most, and more than by bad luck, is waited for. The zero value is empty.
type senders struct {
	losing map[ps.ConnectionID]*sender
	// first has lost most; nil: it must be found.
	first *sender
	// sweptAt is when those who had left were last forgotten.
	sweptAt ps.Instant
}

const (
	// maxSenders bounds the senders that are remembered. The others are as lucky as
	// they are.
	maxSenders = 1024
	// senderGone is how long after a verdict a sender that did not come back is
	// forgotten; it is looked for as seldom.
	senderGone = time.Second
	// longestAwaited bounds how long a sender is waited for.
	longestAwaited = 100 * time.Millisecond
)

// patience is how many places a sender may lose before others wait for it.
// Among equals one loses that many by bad luck, though not often.
func (s *senders) patience() int { return 2*len(s.losing) + 8 }

// lost notes that a sender was told that it was too late, and to try next.
func (s *senders) lost(now ps.Instant, id ps.ConnectionID, next ps.Offset) {
	l := s.losing[id]
	if l == nil && now.Sub(s.sweptAt) >= senderGone {
		s.sweep(now)
	}
	switch {
	case l == nil && len(s.losing) >= maxSenders:
		return
	case l == nil:
		if s.losing == nil {
			s.losing = map[ps.ConnectionID]*sender{}
		}
		l = &sender{id: id}
		s.losing[id] = l
	}
	l.toldAt = now
	if next <= l.next {
		return // for what it sent before it was told
	}
	l.next = next
	l.losses++
	if s.first != nil && l.losses > s.first.losses {
		s.first = l
	}
}

// missed notes that a sender was waited for in vain: somewhat later it is again.
func (s *senders) missed(l *sender) {
	l.losses = s.patience() * 3 / 4
	s.first = nil
}

// forget notes that a sender won or has left.
func (s *senders) forget(id ps.ConnectionID) {
	if s.first != nil && s.first.id == id {
		s.first = nil
	}
	delete(s.losing, id)
}

// sweep forgets the senders that have left.
func (s *senders) sweep(now ps.Instant) {
	s.sweptAt = now
	for id, l := range s.losing {
		if l.toldAt != 0 && now.Sub(l.toldAt) >= senderGone {
			s.forget(id)
		}
	}
}

// came notes that a sender sent again.
func (s *senders) came(now ps.Instant, id ps.ConnectionID) {
	if l := s.losing[id]; l != nil && l.toldAt != 0 {
		average(&l.trip, min(now.Sub(l.toldAt), longestAwaited))
		l.toldAt = 0
	}
}

// tripOf is how long a sender that has lost needs from a verdict to its next batch;
// 0: not known.
func (s *senders) tripOf(id ps.ConnectionID) time.Duration {
	if l := s.losing[id]; l != nil {
		return l.trip
	}
	return 0
}

// deprived is the sender that has lost most, if it has lost too often; or nil.
func (s *senders) deprived() *sender {
	if s.first == nil {
		for _, l := range s.losing {
			if s.first == nil || l.losses > s.first.losses || l.losses == s.first.losses && l.id < s.first.id {
				s.first = l
			}
		}
	}
	if s.first == nil || s.first.losses < s.patience() {
		return nil
	}
	return s.first
}

// due is when it must have sent again to be waited for.
func (l *sender) due() ps.Instant {
	return l.toldAt.Add(min(2*l.trip+time.Millisecond, longestAwaited))
}

// yields reports whether the ticket must not be sent yet, because a sender that
// has lost too often has come for the same place, or comes soon. Only who has the
// turn can be so generous.
func (p *Partition) yields(now ps.Now, t *Ticket) bool {
	if t.Connection == 0 || p.turn.since == 0 {
		return false
	}
	if p.yieldsToHeir(now, t) {
		return true
	}
	p.tally(now)
	for {
		l := p.senders.deprived()
		if l == nil || l.id == t.Connection {
			return false
		}
		due := l.due()
		if l.toldAt == 0 {
			o := p.comesFor(t.Expected, l.id)
			if o == nil {
				return false
			}
			due = max(o.admittedAt, p.turn.lastWin).Add(longestAwaited)
		}
		if now.Instant < due {
			p.wakeAt(due)
			return true
		}
		p.senders.missed(l)
	}
}

// comesFor is the batch that a sender has here for a place, or for one before it,
// so that it will be told to try this one; or nil.
func (p *Partition) comesFor(place ps.Offset, id ps.ConnectionID) *Ticket {
	for _, t := range p.tickets {
		if t.Connection == id && t.phase == waiting && t.Expected <= place && !t.free() {
			return t
		}
	}
	return nil
}

// tally notes who has lost and who has won in this event so far.
func (p *Partition) tally(now ps.Now) {
	for ; p.tallied < len(p.effects); p.tallied++ {
		e := &p.effects[p.tallied]
		if e.Kind != Decide || e.Ticket.Connection == 0 || e.Ticket.detached {
			continue
		}
		switch e.Verdict.Kind {
		case Won:
			p.senders.forget(e.Ticket.Connection)
		case Taken:
			p.senders.lost(now.Instant, e.Ticket.Connection, e.Verdict.Next)
		}
	}
}
