package fence

import (
	"slices"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// modelChain is the naive model of what clients may rely on who pipeline: it looks
// at nothing but what they send, what they are told and what is in the log.
type modelChain struct {
	w *modelWorld
	// gaps are, by proxy and producer, where a refusal has left one.
	gaps map[modelLine]*modelGap
	// appended are the places of unconditional records, by owner; sent are the
	// ways by which they went.
	appended map[int]int
	sent     map[int]map[modelWay]bool
	// last is the newest unconditional batch in the log, by producer and epoch.
	last map[modelWay]ps.Sequence
}

// breach is which promise a failure breaks.
type breach string

const (
	// misplaced: a record is in the log at another offset than it was promised.
	misplaced breach = "misplaced"
	// refusedInVain: a batch was refused, and is in the log or comes to be there.
	refusedInVain breach = "refused in vain"
	// refusedUpstream: the same, while a transmission of it by the same proxy was open.
	refusedUpstream breach = "refused while upstream"
	// falseSuccess: a batch is told of a success and is not in the log.
	falseSuccess breach = "false success"
	// anothersSuccess: a batch is told of a success that is another's.
	anothersSuccess breach = "another's success"
	// nextAhead: an offset to try next lies behind the committed end.
	nextAhead breach = "next ahead"
	// decidedTwice: a batch gets two verdicts.
	decidedTwice breach = "decided twice"
	// falseViolation and falseAlarm: nobody bypasses the proxies, and it is said.
	falseViolation breach = "false violation"
	falseAlarm     breach = "false alarm"
	// stuck: when all faults have ended, batches get no verdict, or nothing wins.
	stuck breach = "stuck"

	// These are found by idempotent clients.

	// twice: an unconditional record is in the log twice.
	twice breach = "twice"
	// disordered: an unconditional record is behind one that was sent later.
	disordered breach = "disordered"
	// behindRefused: a batch is in a log although one before it was refused.
	behindRefused breach = "behind a refused one"
	// unfounded: a batch is told that its predecessor was refused, and none was.
	unfounded breach = "unfounded"
	// stored: a batch is told that its predecessor was refused, and is in the log.
	stored breach = "refused and stored"
	// unlike: a batch is told something else than the one it was behind.
	unlike breach = "unlike"
)

func (c *modelChain) fail(b breach, format string, args ...any) {
	if !c.forgiven(b) {
		c.w.breaks(b, format, args...)
	}
}

type modelLine struct {
	proxy *modelProxy
	id    ps.ProducerID
}

type modelGap struct {
	epoch    ps.ProducerEpoch // newest seen
	newest   map[ps.Sequence]*modelTicket
	newestOn ps.ConnectionID // that brought one
	open     bool
	conn     ps.ConnectionID
	sequence ps.Sequence
}

type modelWay struct {
	proxy    *modelProxy
	id       ps.ProducerID
	epoch    ps.ProducerEpoch
	sequence ps.Sequence
}

// wayOf is the way that one of a ticket's records goes.
func wayOf(t *modelTicket, place int) modelWay {
	c := t.Producer
	return modelWay{t.proxy, c.ID, c.Epoch, c.Sequence.Plus(place)}
}

func (c *modelChain) gap(t *modelTicket) *modelGap {
	k := modelLine{t.proxy, t.Producer.ID}
	if c.gaps[k] == nil {
		c.gaps[k] = &modelGap{epoch: t.Producer.Epoch, newest: map[ps.Sequence]*modelTicket{}}
	}
	return c.gaps[k]
}

// admitted notes a batch of an idempotent client that a proxy takes in.
func (c *modelChain) admitted(t *modelTicket) {
	g, b := c.gap(t), t.Producer
	if b.Epoch > g.epoch && (b.Sequence == 0 || b.Connection > g.newestOn) {
		*g = modelGap{epoch: b.Epoch, newest: map[ps.Sequence]*modelTicket{}}
	}
	g.newestOn = max(g.newestOn, b.Connection)
	if b.Epoch != g.epoch {
		return
	}
	if g.open && b.Connection >= g.conn && !g.sequence.Before(b.Sequence) {
		g.open = false
	}
	t.behindGap = g.open && b.Connection == g.conn
	t.before, g.newest[b.Sequence] = g.newest[b.Sequence], t
	for i := range t.owners {
		if t.AtEnd {
			if c.sent[t.owners[i]] == nil {
				c.sent[t.owners[i]] = map[modelWay]bool{}
			}
			c.sent[t.owners[i]][wayOf(t, i)] = true
		}
	}
}

// definite reports whether a verdict refuses a batch for good, by its own merits:
// not for its place in its client's sequence.
func definite(v Verdict) bool {
	switch v.Kind {
	case Taken, NotReached, Failed:
		return true
	case BrokerError:
		return !retriable[v.Code] && !outOfPlace(v)
	}
	return false
}

func outOfPlace(v Verdict) bool {
	return v.Kind == BrokerError && (v.Code == codeOutOfOrderSequenceNumber || v.Code == codeInvalidProducerEpoch)
}

// told checks a verdict, and notes what follows from it.
func (c *modelChain) told(t *modelTicket, v Verdict) {
	b := t.Producer
	if g := c.gap(t); outOfPlace(v) && b.Epoch == g.epoch && g.newest[b.Sequence] == t {
		g.newest[b.Sequence] = t.before // it was none of the sequence's
	}
	if t.doomedBy != nil {
		c.checkDoomed(t, v)
	}
	if v.Kind == PredecessorRefused && !t.behindGap {
		c.fail(unfounded, "%s told %v, and nothing before it was refused", t, v)
	}
	if v.Kind == Won || v.Kind == Violation || outOfPlace(v) || t.behindGap || t.doomedBy != nil || t.Replay == ReplayOff && v.Kind == Unknown {
		return
	}
	c.doom(t, v)
	g := c.gap(t)
	if definite(v) && b.Epoch == g.epoch && g.newest[b.Sequence] == t &&
		(!g.open || b.Connection > g.conn || b.Connection == g.conn && !g.sequence.Before(b.Sequence)) {
		g.open, g.conn, g.sequence = true, b.Connection, b.Sequence
	}
}

// withdrawn: nobody waits for the ticket, which was not sent.
func (c *modelChain) withdrawn(t *modelTicket) {
	if !t.behindGap && t.doomedBy == nil {
		c.doom(t, Verdict{Kind: Retry, Reason: HoldExpired})
	}
}

// doom notes what a verdict means for what is behind its ticket in the proxy.
func (c *modelChain) doom(t *modelTicket, v Verdict) {
	b := t.Producer
	for _, o := range t.proxy.tickets {
		if o.frame == nil || o == t || o.Producer.ID != b.ID || o.Producer.Epoch != b.Epoch || o.Producer.Connection != b.Connection ||
			o.order < t.order || !b.Sequence.Before(o.Producer.Sequence) {
			continue
		}
		if o.doomedBy == nil && !(o.behindGap && c.w.has(refusedBefore)) {
			o.doomedBy = &v
		}
		o.behindGap = o.behindGap || definite(v)
		c.checkNowhere(o)
	}
}

// checkDoomed: the verdict of a batch that was behind one when that was decided.
func (c *modelChain) checkDoomed(t *modelTicket, v Verdict) {
	by := *t.doomedBy
	ok := v.Kind == Unknown
	switch {
	case definite(by):
		ok = ok || v.Kind == PredecessorRefused || v.Kind == Failed || v.Kind == Won && v.Replayed ||
			t.AtEnd && v.Kind == BrokerError && v.Code == codeOutOfOrderSequenceNumber
	case by.Kind == BrokerError:
		ok = ok || v.Kind == BrokerError && v.Code == by.Code
	case by.Kind == Retry:
		ok = ok || v.Kind == Retry && v.Reason == by.Reason
	}
	if !ok {
		c.fail(unlike, "%s told %v, though what its client sent before it was told %v", t, v, by)
	}
}

// checkNowhere: no transmission of the ticket is in a log.
func (c *modelChain) checkNowhere(t *modelTicket) {
	for i := range c.w.cluster.replicas {
		if slices.ContainsFunc(c.w.cluster.replicas[i].log, func(r modelRecord) bool { return r.tx != nil && r.tx.ticket == t }) {
			c.fail(behindRefused, "%s was written although what its client sent before it was refused", t)
		}
	}
}

// committed checks a record that gets behind the high watermark.
func (c *modelChain) committed(offset int, r *modelRecord) {
	t := r.tx.ticket
	if t.behindGap {
		c.fail(behindRefused, "record of %s committed at %d although what its client sent before it was refused", t, offset)
	}
	if !t.AtEnd {
		return
	}
	owner := t.owners[r.place]
	if before, ok := c.appended[owner]; ok && len(c.sent[owner]) == 1 {
		c.fail(twice, "record %d of %s committed at %d, and at %d before", owner, t, offset, before)
	}
	c.appended[owner] = offset
	epoch := wayOf(t, r.place)
	sequence := epoch.sequence
	epoch.sequence = 0
	if last, ok := c.last[epoch]; ok && len(c.sent[owner]) == 1 && sequence.Before(last) {
		c.fail(disordered, "record %d of %s, sequence %d, committed at %d, after sequence %d", owner, t, sequence, offset, last)
	}
	c.last[epoch] = sequence
}
