package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// ClientBatch is where a batch stands among those of its idempotent client, by
// the client's own header (KIP-98), and the connection that brought it.
type ClientBatch struct {
	ID    ps.ProducerID
	Epoch ps.ProducerEpoch
	// Sequence is that of the first record.
	Sequence   ps.Sequence
	Connection ps.ConnectionID
}

// screening is what becomes of a client's batch on admission, before its
// condition is looked at. The zero value: it is judged as any other.
type screening struct {
	verdict Verdict // Kind 0: none yet
	follow  *Ticket
	doom    ps.Break
}

// enter gives the ticket of an idempotent client its place among what its client
// has sent, or its verdict.
func (p *Partition) enter(now ps.Now, t *Ticket) {
	if p.cfg.Unsafe {
		return
	}
	s := p.screen(now, t)
	switch s.verdict.Kind {
	case 0:
		p.join(t, s)
	case Unknown:
		p.unknown(t)
	case BrokerError, Retry:
		p.decideUnsent(t, s.verdict)
	default: // what it was told before
		p.decide(t, s.verdict)
	}
}

// Refused tells of a client's batch that was refused before it came here, for
// good: what its client has sent behind it is refused as well. Of the ticket
// only Producer, Records and AtEnd matter; it gets no verdict.
func (p *Partition) Refused(now ps.Now, t *Ticket) []Effect {
	p.effects = p.effects[:0]
	t.phase = done
	if t.Producer != nil && !p.cfg.Unsafe {
		if s := p.screen(now, t); s == (screening{}) {
			p.join(t, s)
			p.ended(now, t, Verdict{Kind: Failed})
		}
	}
	return p.resume(now)
}

// screen holds a batch against what is known of its client.
func (p *Partition) screen(now ps.Now, t *Ticket) screening {
	c := t.Producer
	t.digest = ps.DigestOf(t.Records)
	state := p.state.Producer(c.ID)
	if state == nil {
		p.begin(now, c)
		return screening{}
	}
	p.state.TouchProducer(now.Instant, state)
	// By a newer connection may come what follows on something that went through
	// another proxy. What comes by an older one was written before its client went
	// on.
	newer := c.Connection > state.Connection() || c.Connection < state.Connection() && !p.cfg.keeps(guardElsewhere)
	switch {
	case c.Epoch < state.Epoch():
		return screening{verdict: Verdict{Kind: BrokerError, Code: codeInvalidProducerEpoch}}
	case c.Epoch > state.Epoch() && c.Sequence != 0 && !newer:
		return outOfOrder
	case c.Epoch > state.Epoch():
		state.Begin(c.Epoch, c.Sequence, c.Connection)
		return screening{}
	}
	state.Came(c.Connection, c.Sequence)
	if first := p.inFlightOf(c); first != nil {
		if first.digest != t.digest {
			return outOfOrder
		}
		return screening{follow: first}
	}
	if told, ok := state.Told(c.Sequence); ok {
		return p.again(t, told)
	}
	switch why := state.Late(c.Connection, c.Sequence); why {
	case ps.Unbroken:
	case ps.BehindUnknown:
		return screening{verdict: Verdict{Kind: Unknown}}
	case ps.BehindRetriable:
		// A retriable answer again and again would never end, nor would any other
		// to a client that takes what left the gap for done.
		return outOfOrder
	case ps.Overtaking:
		if p.cfg.keeps(guardOvertaking) {
			return overtook
		}
	default:
		if p.cfg.keeps(guardChainGap) {
			return screening{doom: why}
		}
		return screening{}
	}
	switch next := p.nextOf(state, c); {
	case c.Sequence == next, state.Resumed(c.Connection, c.Sequence), !p.cfg.keeps(guardSequence):
	case newer && next.Before(c.Sequence) && !state.Broken() && p.cfg.keeps(guardOvertaking):
		// What lies between may have gone through another proxy, or be on its way.
		state.Break(c.Connection-1, next, ps.BehindRetriable)
		return overtook
	case (newer || state.Waited(c.Connection)) && next.Before(c.Sequence):
		state.Resume(c.Sequence)
	default:
		return outOfOrder
	}
	return screening{}
}

var (
	outOfOrder = screening{verdict: Verdict{Kind: BrokerError, Code: codeOutOfOrderSequenceNumber}}
	overtook   = screening{verdict: Verdict{Kind: Retry, Reason: Overtook}}
)

// begin makes the state of a client that has none.
func (p *Partition) begin(now ps.Now, c *ClientBatch) {
	state, forgotten := p.state.AddProducer(now.Instant, c.ID, p.cfg.ProducerKeep, p.cfg.MaxProducers)
	for range forgotten {
		p.effects = append(p.effects, Effect{Kind: ForgotProducer})
	}
	state.Begin(c.Epoch, c.Sequence, c.Connection)
}

// again is for a batch whose sequence had a verdict already.
func (p *Partition) again(t *Ticket, told ps.Told) screening {
	same := told.Digest == t.digest && int(told.Count) == len(t.Records)
	switch {
	case same && !p.cfg.keeps(guardTold):
	case told.Outcome == ps.Appended && same:
		return screening{verdict: t.replayed(Verdict{Kind: Won, Offset: told.Offset, Replayed: true})}
	case told.Outcome == ps.Misplaced && same:
		return screening{verdict: Verdict{Kind: Violation, Offset: told.Offset, Replayed: true}}
	case told.Outcome == ps.Appended, told.Outcome == ps.Misplaced:
		return outOfOrder
	case told.Outcome == ps.Superseded && same && !p.othersOpen(t):
		return screening{verdict: Verdict{Kind: Taken, Next: told.Offset, LogStart: told.LogStart}}
	case told.Outcome == ps.Undecided && same && t.AtEnd && p.cfg.keeps(guardTried):
		t.tie(told.Offset)
	}
	return screening{}
}

// replayed is what a client is told of a batch whose success is known from
// another transmission.
func (t *Ticket) replayed(v Verdict) Verdict {
	if v.Kind == Won && t.Replay == ReplayOff && !t.AtEnd {
		return Verdict{Kind: Unknown}
	}
	return v
}

// tie has a batch that may lie anywhere looked for where it was tried.
func (t *Ticket) tie(tried ps.Offset) {
	t.Expected, t.tied = tried, tried != ps.NoOffset
}

// inFlightOf is the newest transmission in flight of a client's sequence.
func (p *Partition) inFlightOf(c *ClientBatch) *Ticket {
	l := p.lines[c.ID]
	if l == nil {
		return nil
	}
	for i := len(l.tickets) - 1; i >= 0; i-- {
		if o := l.tickets[i]; o.inLine(c.Epoch) && o.Producer.Sequence == c.Sequence {
			return o
		}
	}
	return nil
}

// inLine reports whether the ticket is one of this epoch that may still be sent.
func (t *Ticket) inLine(e ps.ProducerEpoch) bool {
	return t.Producer.Epoch == e && t.doom == ps.Unbroken
}

// nextOf is the sequence that follows on a client's connection: what is in
// flight counts.
func (p *Partition) nextOf(state *ps.Producer, c *ClientBatch) ps.Sequence {
	next := state.Next()
	if l := p.lines[c.ID]; l != nil {
		for _, o := range l.tickets {
			if end := o.sequenceEnd(); o.inLine(c.Epoch) && o.Producer.Connection == c.Connection && next.Before(end) {
				next = end
			}
		}
	}
	return next
}

func (t *Ticket) sequenceEnd() ps.Sequence { return t.Producer.Sequence.Plus(len(t.Records)) }
