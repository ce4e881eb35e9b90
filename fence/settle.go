package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// StoredRecord is a committed record as it lies in the log.
type StoredRecord struct {
	Offset ps.Offset
	ps.Record
	// Control: a transaction marker; Record is empty.
	Control bool
	// ByFence: its batch carries the fence's producer id, in Epoch, and
	// Sequence is the record's own (base sequence + its place in the batch).
	ByFence  bool
	Epoch    ps.ProducerEpoch
	Sequence ps.Sequence
	// Timestamp is its writer's own, whatever AppendTime says.
	Timestamp ps.Timestamp
	// AppendTime: its batch's timestamps are the broker's (LogAppendTime).
	AppendTime bool
}

// Stored is what a reading of committed records brought.
type Stored struct {
	// Records in order of offset, from the asked range and perhaps beyond it.
	Records []StoredRecord
	// ReadTo is the offset up to which the log was read: what is missing
	// before it does not exist (compaction, deletion).
	ReadTo ps.Offset
	// LogStart and HighWatermark as the leader answered.
	LogStart      ps.Offset
	HighWatermark ps.Offset
	// At is before the request was written.
	At ps.Instant
}

// at finds the record stored at an offset.
func (s *Stored) at(o ps.Offset) (StoredRecord, bool) {
	lo, hi := 0, len(s.Records)
	for lo < hi {
		if mid := (lo + hi) / 2; s.Records[mid].Offset < o {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Records) && s.Records[lo].Offset == o {
		return s.Records[lo], true
	}
	return StoredRecord{}, false
}

// comparison of a batch's records with the log at their offsets below upTo.
type comparison struct {
	equal, other, missing int
	allAppendIDs          bool
}

func compare(expected ps.Offset, records []ps.Record, upTo ps.Offset, s *Stored) comparison {
	c := comparison{allAppendIDs: true}
	for i, r := range records {
		o := expected + ps.Offset(i)
		if o >= upTo {
			break
		}
		st, ok := s.at(o)
		switch {
		case !ok:
			c.missing++
			continue
		case !st.Control && st.Digest == r.Digest:
			c.equal++
			c.allAppendIDs = c.allAppendIDs && r.AppendID
		default:
			c.other++
		}
	}
	return c
}

// proves reports whether what lies at the batch's offsets passes for the batch.
// Of batches that may lie anywhere the log holds a copy only where the proxy
// tried one, so that an equal one there is taken for it.
func (t *Ticket) proves(c comparison) bool {
	switch {
	case c.equal < len(t.Records):
		return false
	case t.AtEnd:
		return true
	case t.Replay == ReplayOff:
		return false
	}
	return c.allAppendIDs || t.Replay == ReplayContent
}

// mayPass reports whether some of what lies at the batch's offsets may be the
// batch's. Conditional batches are cut anew by clients, others are not.
func (p *Partition) mayPass(t *Ticket, c comparison) bool {
	if !p.cfg.keeps(guardPerRecord) {
		return c.equal == len(t.Records)
	}
	return c.equal > 0 && !(t.AtEnd && c.other > 0)
}

// identify decides a batch whose expected offset is below the committed end:
// refused, if no record stored at any of its offsets is its own.
func (p *Partition) identify(now ps.Now, t *Ticket, end ps.Offset) {
	if p.cfg.Unsafe || !p.cfg.keeps(guardIdentity) {
		p.decide(t, Verdict{Kind: Taken, Next: end, LogStart: ps.NoOffset})
		return
	}
	if p.queues(now, t, end) {
		return
	}
	upTo := min(t.end(), end)
	if p.state.FindUnsettled(t.Expected, t.Records) == nil {
		if known, ok := p.state.Known(t.Expected, upTo); ok {
			c := comparison{allAppendIDs: true}
			for i, k := range known {
				if k.Digest == t.Records[i].Digest {
					c.equal++
					c.allAppendIDs = c.allAppendIDs && t.Records[i].AppendID
				} else {
					c.other++
				}
			}
			p.identified(t, c, end, ps.NoOffset)
			return
		}
	}
	p.readRecords(now, t, t.Expected, upTo)
}

// identified gives the verdict on a batch of which no transmission is open.
func (p *Partition) identified(t *Ticket, c comparison, next, logStart ps.Offset) {
	switch {
	case t.proves(c):
		p.decide(t, Verdict{Kind: Won, Offset: t.Expected, Replayed: true})
	case p.mayPass(t, c), c.missing > 0 && c.other > 0:
		p.unknown(t)
	case c.missing > 0 && t.AtEnd && p.cfg.keeps(guardGone):
		// What was tried here may have been appended and be gone again. Another
		// place would be the second one.
		p.unknown(t)
	case c.missing > 0:
		// Deleted or compacted away: nothing of it is in the log. That it was
		// there once cannot be told any more, and log_start says so.
		p.decide(t, Verdict{Kind: Taken, Next: next, LogStart: logStart})
	default:
		p.decide(t, Verdict{Kind: Taken, Next: next, LogStart: ps.NoOffset})
	}
}

// lookUnsettled reads the log for a transmission whose client waits to hear
// what became of it.
func (p *Partition) lookUnsettled(now ps.Now, t *Ticket) {
	if now.Instant >= t.HoldUntil {
		p.leaveRead(t)
		p.unknown(t)
		return
	}
	p.wakeAt(t.HoldUntil)
	if t.read != 0 || p.awaitsRival(t) {
		return
	}
	from := t.Expected
	if t.phase == typing {
		from = t.base
	}
	end := p.state.LowerBound()
	if from >= end {
		p.lookAt(now, t, ps.AnyNode)
		return
	}
	if now.Instant < t.nextLook {
		p.wakeAt(t.nextLook)
		return
	}
	p.readRecords(now, t, from, min(from+ps.Offset(len(t.Records)), end))
}

// readRecords has the ticket wait for the records from … upTo−1, sharing a
// reading that is under way.
func (p *Partition) readRecords(now ps.Now, t *Ticket, from, upTo ps.Offset) {
	if now.Instant < t.nextLook {
		p.wakeAt(t.nextLook)
		return
	}
	for _, r := range p.recordReads {
		if r.from == from && r.upTo >= upTo {
			r.tickets = append(r.tickets, t)
			t.read = r.id
			return
		}
	}
	r := p.startRead(from, upTo)
	r.tickets = append(r.tickets, t)
	t.read = r.id
}

func (p *Partition) startRead(from, upTo ps.Offset) *recordRead {
	p.lastRead++
	r := &recordRead{id: p.lastRead, from: from, upTo: upTo}
	p.recordReads = append(p.recordReads, r)
	p.effects = append(p.effects, Effect{Kind: ReadRecords, Node: ps.AnyNode, Read: r.id, From: from, UpTo: upTo})
	return r
}

// leaveRead has the ticket wait no longer for its reading.
func (p *Partition) leaveRead(t *Ticket) {
	for _, r := range p.recordReads {
		for i, o := range r.tickets {
			if o == t {
				r.tickets = append(r.tickets[:i], r.tickets[i+1:]...)
				break
			}
		}
	}
	t.read = 0
}

func (p *Partition) takeRead(id ReadID) *recordRead {
	for i, r := range p.recordReads {
		if r.id == id {
			p.recordReads = append(p.recordReads[:i], p.recordReads[i+1:]...)
			return r
		}
	}
	return nil
}

// RecordsFailed tells that a reading of records brought nothing. final means
// that asking again will not help: with a code, the broker's, the proxy may not
// read the topic; with 0, what is stored there cannot be read (a batch of an
// old format, say).
func (p *Partition) RecordsFailed(now ps.Now, id ReadID, code int16, final bool) []Effect {
	p.effects = p.effects[:0]
	if r := p.takeRead(id); r != nil {
		for _, t := range r.tickets {
			t.read = 0
			switch {
			case t.phase == done: // by something else meanwhile
			case final && (code != 0 || r.upTo <= t.end()):
				p.unreadable(t, code)
			default:
				// What another ticket asked for may lie behind its own records.
				t.lookedInVain(now, failurePause)
			}
		}
	}
	return p.resume(now)
}

// unreadable decides a ticket that waits for records which will never be read.
func (p *Partition) unreadable(t *Ticket, code int16) {
	if t.phase == waiting && code != 0 {
		p.decideUnsent(t, Verdict{Kind: Failed, Code: code})
		return
	}
	// Its own record may be the one that cannot be read.
	p.unknown(t)
}

// RecordsRead takes in what a reading of records brought.
func (p *Partition) RecordsRead(now ps.Now, id ReadID, s Stored) []Effect {
	p.effects = p.effects[:0]
	r := p.takeRead(id)
	if r == nil {
		return p.resume(now)
	}
	if !p.cfg.keeps(guardHighWatermark) {
		s.HighWatermark = max(s.HighWatermark, s.ReadTo)
	}
	p.state.SeeCommitted(now.Instant, s.HighWatermark, s.At)
	p.learn(r.from, min(r.upTo, s.ReadTo), &s)
	p.lookForMisplaced(&s)
	for _, t := range r.tickets {
		t.read = 0
		switch t.phase {
		case waiting:
			p.waitingRead(now, t, &s)
		case typing:
			p.typed(now, t, &s)
		case unsettled:
			p.settle(now, t, &s)
		}
	}
	if len(r.tickets) == 0 {
		p.settleAbandoned(r, &s)
	}
	return p.resume(now)
}

// notCovered reports whether the reading did not get as far as the ticket
// needs, so that it must be repeated.
func notCovered(now ps.Now, t *Ticket, upTo ps.Offset, s *Stored) bool {
	if s.ReadTo >= upTo && s.HighWatermark >= upTo && upTo > t.Expected {
		return false
	}
	t.lookedInVain(now, failurePause)
	return true
}

func (p *Partition) waitingRead(now ps.Now, t *Ticket, s *Stored) {
	if t.free() {
		return // what it was read for is decided
	}
	upTo := min(t.end(), s.HighWatermark)
	if notCovered(now, t, upTo, s) {
		return
	}
	if p.state.FindUnsettled(t.Expected, t.Records) != nil {
		p.settle(now, t, s)
		return
	}
	p.identified(t, compare(t.Expected, t.Records, upTo, s), p.nextAfter(t, s), s.LogStart)
}

// nextAfter is the next offset that a refusal after a reading may name: each
// of the batch's records that expected an offset below it was compared.
func (p *Partition) nextAfter(t *Ticket, s *Stored) ps.Offset {
	if t.end() > s.HighWatermark {
		return s.HighWatermark
	}
	return max(s.HighWatermark, p.state.LowerBound())
}

// typed: the answer carried an append time. On a CreateTime topic that marks
// a duplicate; on a LogAppendTime topic only the log tells an append from one.
func (p *Partition) typed(now ps.Now, t *Ticket, s *Stored) {
	upTo := t.base + ps.Offset(len(t.Records))
	if s.ReadTo < upTo || s.HighWatermark < upTo {
		t.lookedInVain(now, failurePause)
		return
	}
	st, ok := s.at(t.base)
	if !ok {
		t.phase = unsettled // gone again (compaction): what it was cannot be known
		return
	}
	c := compare(t.base, t.Records, upTo, s)
	marks := t.Marking == MarkLogAppendTime && !st.AppendTime && p.cfg.keeps(guardTypeBit)
	// Of equal records that may lie anywhere those of one moment are taken for one
	// another. Brokers whose ways are not known may change timestamps.
	anothers := t.AtEnd && t.Marking == MarkLogAppendTime && st.Timestamp != t.FirstTimestamp && p.cfg.keeps(guardMoment)
	if marks || anothers || c.equal == 0 {
		// A duplicate: this transmission left nothing in the log. What it
		// leaves open is only what was open before it.
		if t.again {
			t.phase = unsettled
			return
		}
		p.state.Forget(t.open)
		p.refusedBySequence(now, t)
		return
	}
	switch {
	case t.base != t.Expected && c.equal == len(t.Records):
		p.state.Forget(t.open)
		p.misplaced(now, t, t.base)
	case t.base == t.Expected && (t.proves(c) || c.equal == len(t.Records) && c.allAppendIDs):
		p.state.Settle(t.Expected, t.Records)
		p.state.Accepted()
		p.decide(t, Verdict{Kind: Won, Offset: t.base})
	default:
		p.unknown(t)
	}
}

// settle reads out of the log what became of a transmission.
func (p *Partition) settle(now ps.Now, t *Ticket, s *Stored) {
	upTo := min(t.end(), s.HighWatermark)
	if notCovered(now, t, upTo, s) {
		return
	}
	if p.awaitsRival(t) {
		return
	}
	c := compare(t.Expected, t.Records, upTo, s)
	switch {
	case t.proves(c), !p.cfg.keeps(guardReadBack):
		p.state.Settle(t.Expected, t.Records)
		p.decide(t, Verdict{Kind: Won, Offset: t.Expected, Replayed: true})
	case p.mayPass(t, c):
		// Mine, or an equal record of another writer: the log cannot tell.
		// What lies beyond the committed end stays open.
		p.state.Settle(t.Expected, t.Records[:upTo-t.Expected])
		p.unknown(t)
	case c.missing > 0:
		p.unknown(t)
	case p.usedUp(t, s):
		p.forgetOverlapping(t)
		p.decide(t, Verdict{Kind: Taken, Next: p.nextAfter(t, s), LogStart: ps.NoOffset})
	default:
		p.lookForBypass(t, s)
		p.unknown(t)
	}
}

// usedUp reports whether each open transmission of the ticket's records can
// never be appended any more: the fence has appended another batch with its
// sequence at its place.
func (p *Partition) usedUp(t *Ticket, s *Stored) bool {
	for _, u := range p.openFor(t) {
		if !lost(u, s) {
			return false
		}
	}
	return true
}

// forgetOverlapping forgets the open transmissions of the ticket's records,
// all lost. Equal records of one that was not lost stay open.
func (p *Partition) forgetOverlapping(t *Ticket) {
	p.state.Forget(p.openFor(t)...)
}

// lost: at the transmission's place lies a batch of the fence with the very
// sequence it carries.
func lost(u *ps.Unsettled, s *Stored) bool {
	st, ok := s.at(u.Expected)
	return ok && st.ByFence && st.Epoch == u.Epoch && st.Sequence == u.BaseSequence
}

// learn remembers the records read, as far as they have no gap.
func (p *Partition) learn(from, upTo ps.Offset, s *Stored) {
	var run []ps.Record
	for o := from; o < upTo; o++ {
		st, ok := s.at(o)
		if !ok || st.Control {
			break
		}
		run = append(run, st.Record)
	}
	p.state.Learned(from, run)
}
