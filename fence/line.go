package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// line is what is in flight of one client producer id, in order of admission.
type line struct {
	state   *ps.Producer
	tickets []*Ticket
}

// place is where a ticket stands in its line.
type place struct {
	line   *line // nil: in none, or not any more
	digest ps.BatchDigest
	// following is the transmission of the same batch that came before, and is
	// not decided; its verdict is this one's, too.
	following *Ticket
	// followed: a newer transmission of the same sequence came. Nobody judges the
	// client's line by this one any more. Nor if nobody is told of its end.
	followed bool
	// doom, if set, is why it will not be sent any more.
	doom ps.Break
}

func (p *Partition) join(t *Ticket, s screening) {
	id := t.Producer.ID
	l := p.lines[id]
	if l == nil {
		l = &line{state: p.state.Producer(id)}
		if p.lines == nil {
			p.lines = map[ps.ProducerID]*line{}
		}
		p.lines[id] = l
	}
	p.state.HoldProducer(l.state)
	l.tickets = append(l.tickets, t)
	t.line, t.doom = l, s.doom
	if s.follow != nil {
		s.follow.followed = true
		if p.cfg.keeps(guardFollow) {
			t.following = s.follow
		}
	}
}

// leave takes the ticket out of its line.
func (p *Partition) leave(now ps.Now, t *Ticket) *line {
	l := t.line
	for i, o := range l.tickets {
		if o == t {
			l.tickets = append(l.tickets[:i], l.tickets[i+1:]...)
			break
		}
	}
	t.line = nil
	p.state.ReleaseProducer(now.Instant, l.state)
	if len(l.tickets) == 0 {
		delete(p.lines, t.Producer.ID)
	}
	return l
}

// withdrawn: nobody waits for the ticket, which was not sent.
func (p *Partition) withdrawn(now ps.Now, t *Ticket) {
	if t.line == nil {
		return
	}
	t.followed = true // it is no news to its client
	p.ended(now, t, Verdict{Kind: Retry, Reason: HoldExpired})
}

// conclude draws from the verdicts of this event what they mean for what else
// their clients have sent.
func (p *Partition) conclude(now ps.Now) {
	for ; p.concluded < len(p.effects); p.concluded++ {
		if e := p.effects[p.concluded]; e.Kind == Decide && e.Ticket.line != nil {
			p.ended(now, e.Ticket, e.Verdict)
		}
	}
}

// ended: the ticket has its verdict. What its client has sent behind it gets
// its own by it now, whatever the client sends next.
func (p *Partition) ended(now ps.Now, t *Ticket, v Verdict) {
	l := p.leave(now, t)
	why := p.gapAfter(t, v)
	current := l.state.Epoch() == t.Producer.Epoch
	if current && t.doom == ps.Unbroken {
		p.remember(l.state, t, v)
		if told, ok := l.state.Told(t.Producer.Sequence); ok && told.InLog() && told.Digest == t.digest {
			why = ps.Unbroken // by another transmission
		}
		if why != ps.Unbroken && (!t.followed || !p.cfg.keeps(guardChainNewest)) {
			l.state.Break(t.Producer.Connection, t.Producer.Sequence, why)
		}
	}
	if why != ps.Unbroken && t.doom == ps.Unbroken && (current || p.cfg.keeps(guardChainEpoch)) {
		p.doomBehind(l, t, v, why)
	}
	for _, o := range l.tickets {
		if o.following == t {
			p.inherit(o, t, v, why)
			break
		}
	}
}

// remember keeps what the client is told of a batch.
func (p *Partition) remember(state *ps.Producer, t *Ticket, v Verdict) {
	told := ps.Told{
		Sequence: t.Producer.Sequence, Count: int32(len(t.Records)), Digest: t.digest, LogStart: ps.NoOffset,
	}
	switch v.Kind {
	case Won:
		told.Outcome, told.Offset = ps.Appended, v.Offset
	case Violation:
		told.Outcome, told.Offset = ps.Misplaced, v.Offset
	case Taken:
		told.Outcome, told.Offset, told.LogStart = ps.Superseded, v.Next, v.LogStart
	case Unknown:
		f := t.first()
		told.Outcome, told.Offset, told.Anywhere = ps.Undecided, f.Expected, t.AtEnd
		if f.beaten {
			told.Offset = ps.NoOffset
		} else if t.AtEnd {
			p.state.Tried(f.end())
		}
	default:
		// What was unknown before stays so when the log was not asked.
		old, ok := state.Told(told.Sequence)
		if same := ok && old.Digest == told.Digest && v.Kind == Retry; !t.followed && !same {
			state.Untell(told.Sequence)
		}
		return
	}
	state.Tell(told)
}

// inherit: o is the same batch as t, which has ended.
func (p *Partition) inherit(o, t *Ticket, v Verdict, why ps.Break) {
	o.following = nil
	switch {
	case o.phase != waiting: // it has its verdict
	case t.following != nil: // it was withdrawn, and what it followed goes on
		o.following = t.following
	case why == ps.Unbroken && v.Kind == Won:
		v.Replayed = true
		if v = o.replayed(v); v.Kind == Unknown {
			p.unknown(o)
			return
		}
		p.decide(o, v)
	case why == ps.Unbroken:
		p.decide(o, v)
	case why == ps.BehindRefused || why == ps.BehindRefusedAtEnd:
		p.decideUnsent(o, v)
	case o.AtEnd && (v.Kind == Unknown || t.tied):
		o.tie(t.Expected)
	}
}

// lookInLine is for waiting tickets that must not be sent before, or unless, what
// their client has sent before them is decided. False: t is not one of them.
func (p *Partition) lookInLine(now ps.Now, t *Ticket) bool {
	if t.line == nil {
		return false
	}
	if t.doom != ps.Unbroken {
		p.lookDoomed(now, t)
		return true
	}
	behind, decided := t.behind()
	if t.following == nil && (!behind || !p.cfg.keeps(guardChainHold)) {
		return false
	}
	if !decided && t.first().phase != done {
		p.expire(now, t)
	}
	return true
}

// held reports whether the ticket's turn is when another's verdict has come.
func (t *Ticket) held() bool {
	if t.line == nil {
		return false
	}
	behind, _ := t.behind()
	return behind || t.following != nil || t.doom != ps.Unbroken
}

// first is the oldest transmission in flight that the ticket follows; itself, if
// none.
func (t *Ticket) first() *Ticket {
	for t.following != nil {
		t = t.following
	}
	return t
}

// followsOpen reports whether the batch may be in the log by a transmission that
// the ticket follows.
func (t *Ticket) followsOpen() bool {
	f := t.first()
	return f != t && (f.isUpstream() || f.phase == unsettled)
}

// behind reports whether the client has sent something before t, on its
// connection, that has no verdict, or one that is about to count for t: decided.
func (t *Ticket) behind() (behind, decided bool) {
	for _, o := range t.line.tickets {
		if o == t {
			break
		}
		if o.inLine(t.Producer.Epoch) && o.Producer.Connection == t.Producer.Connection &&
			o.Producer.Sequence.Before(t.Producer.Sequence) {
			behind, decided = true, decided || o.phase == done
		}
	}
	return behind, decided
}
