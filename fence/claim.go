package fence

import (
	"slices"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// claim: the batch t, which may lie anywhere, is told that it lies at an offset.
// Nothing else does, however equal its records are: other batches that may lie
// anywhere and were tried there have lost, whatever is known of their
// transmissions. They carry the sequence that t, or its equal, has used up.
func (p *Partition) claim(t *Ticket, at ps.Offset) {
	if !p.cfg.keeps(guardClaim) {
		return
	}
	end := at + ps.Offset(len(t.Records))
	for _, o := range p.tickets {
		if o == t || !o.AtEnd || o.Expected == ps.NoOffset || o.Expected >= end || o.end() <= at || o.isCopyOf(t) {
			continue
		}
		switch o.phase {
		case sent, done: // it is to be answered, or to be remembered
			o.beaten = true
		case waiting, typing, unsettled:
			p.lostPlace(o)
		}
	}
	p.state.Claimed(at, end)
}

// awaitsRival reports whether an equal batch of another writer is on its way to
// where the ticket's was tried, both of the kind that may lie anywhere: if its
// answer is that it was appended there, the ticket's was not.
func (p *Partition) awaitsRival(t *Ticket) bool {
	return t.AtEnd && p.cfg.keeps(guardClaim) && p.twinUpstream(t)
}

// isCopyOf reports whether both are transmissions of one batch, as far as anybody
// can know of batches that may lie anywhere: they carry the same append-ids, or
// stand at the same place among their client's batches.
func (t *Ticket) isCopyOf(o *Ticket) bool {
	a, b := t.Producer, o.Producer
	switch {
	case t.Records[0].AppendID && o.Records[0].AppendID:
		return slices.ContainsFunc(t.Records, func(r ps.Record) bool { return slices.Contains(o.Records, r) })
	case a == nil || b == nil:
		return false
	}
	return a.ID == b.ID && a.Epoch == b.Epoch && a.Sequence == b.Sequence && t.digest == o.digest
}

// lostPlace: another batch lies where the ticket's was tried.
func (p *Partition) lostPlace(t *Ticket) {
	p.leaveRead(t)
	if t.open != nil {
		p.state.Forget(t.open)
	}
	p.freeAgain(t)
}
