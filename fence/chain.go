package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// gapAfter says what a verdict means for what comes behind.
func (p *Partition) gapAfter(t *Ticket, v Verdict) ps.Break {
	switch v.Kind {
	case Won, Violation:
		return ps.Unbroken
	case Unknown:
		if p.cfg.keeps(guardChainUnknown) {
			return ps.BehindUnknown
		}
	case Retry:
		return ps.BehindRetriable
	case BrokerError:
		if retriable[v.Code] {
			return ps.BehindRetriable
		}
	}
	if t.AtEnd {
		return ps.BehindRefusedAtEnd
	}
	return ps.BehindRefused
}

// retriable are those of the refusals after which clients send a batch again as
// it is.
var retriable = map[int16]bool{2: true, 3: true, 6: true, 19: true, 51: true, 100: true}

// doomBehind decides what the client has sent behind t, on t's connection.
func (p *Partition) doomBehind(l *line, t *Ticket, v Verdict, why ps.Break) {
	for _, o := range l.tickets {
		if !o.inLine(t.Producer.Epoch) || o.Producer.Connection != t.Producer.Connection ||
			!t.Producer.Sequence.Before(o.Producer.Sequence) || o.phase != waiting {
			continue
		}
		o.doom, o.following = why, nil
		for _, f := range l.tickets {
			if f.following == o {
				f.following = nil // the gap is not before it, or its turn comes
			}
		}
		switch why {
		case ps.BehindUnknown:
			p.unknown(o)
		case ps.BehindRetriable:
			p.decideUnsent(o, v)
		}
	}
}

// lookDoomed refuses a batch whose predecessor was refused, once it is known that
// no earlier transmission of it is in the log.
func (p *Partition) lookDoomed(now ps.Now, t *Ticket) {
	if !p.cfg.keeps(guardChainIdentity) {
		p.decide(t, t.sentence(p.state.LowerBound()))
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
		p.decideUnsent(t, t.sentence(p.state.LowerBound()))
		return
	}
	if p.twinUpstream(t) {
		return
	}
	p.forgetDead(now, t)
	end, ok := p.state.CommittedEnd(now.Instant, p.cfg.ViewMaxAge)
	if ok && t.Expected < end {
		p.identify(now, t, end)
		return
	}
	v, has := p.viewFor(now, t, max(t.admittedAt, t.needAfter))
	if !ok || !has || t.Expected < v.Next {
		p.lookAt(now, t, t.Node)
		return
	}
	p.decideUnsent(t, t.sentence(end))
}

// sentence is the verdict of a doomed batch that is not in the log below next.
func (t *Ticket) sentence(next ps.Offset) Verdict {
	if t.doom == ps.BehindRefusedAtEnd && t.AtEnd {
		// Neither has a condition: brokers say so, and clients know what to do.
		return Verdict{Kind: BrokerError, Code: codeOutOfOrderSequenceNumber}
	}
	return Verdict{Kind: PredecessorRefused, Next: next}
}

// sentenced is v for a ticket behind a refused one: neither is it judged by its
// own condition, nor may it be sent again.
func (p *Partition) sentenced(t *Ticket, v Verdict) Verdict {
	if t.doom != ps.BehindRefused && t.doom != ps.BehindRefusedAtEnd {
		return v
	}
	switch v.Kind {
	case Taken, NotReached:
		if v.Kind == Taken && v.LogStart != ps.NoOffset && p.cfg.keeps(guardGone) {
			// A copy of it may have been where there is nothing any more.
			return Verdict{Kind: Unknown, Next: p.state.LowerBound()}
		}
		return t.sentence(v.Next)
	case Retry:
		if t.sentence(0).Kind == PredecessorRefused {
			return Verdict{Kind: Unknown, Next: p.state.LowerBound()}
		}
	}
	return v
}
