package partitionstate

import (
	"maps"
	"math/bits"
	"time"
)

// ProducerID is an idempotent client's own producer id (KIP-98). Brokers do not
// see it in fenced partitions, where every batch carries the fence's.
type ProducerID int64

// ConnectionID tells client connections of one proxy apart; later ones have
// larger ids.
type ConnectionID int64

// BatchDigest stands for all records of a batch, in their order. Equal digests
// mean equal batches.
type BatchDigest uint64

// DigestOf combines the digests of a batch's records. Whether they have append-ids
// does not count: it follows from their headers, and from the names that a rule
// gives them, which may change.
func DigestOf(records []Record) BatchDigest {
	h := uint64(len(records))
	for _, r := range records {
		h = (bits.RotateLeft64(h, 29) ^ r.Digest) * 0x9e3779b97f4a7c15
	}
	return BatchDigest(h)
}

// Outcome is what became of a client's batch, as far as it is remembered.
type Outcome uint8

const (
	// Appended: it is in the log, at the offset where it was to be.
	Appended Outcome = iota + 1
	// Misplaced: it is in the log, at another offset.
	Misplaced
	// Superseded: other records have its place, for ever.
	Superseded
	// Undecided: it may be in the log.
	Undecided
)

// Told is what a client was told of one of its batches.
type Told struct {
	Sequence Sequence // the client's own, of the first record
	Count    int32    // records
	Digest   BatchDigest
	Outcome  Outcome
	Anywhere bool // it may lie at any offset
	// Offset is where the batch lies (Appended, Misplaced), the committed end
	// (Superseded), or where it was tried last (Undecided; NoOffset: nowhere).
	Offset Offset
	// LogStart as the client was told it (Superseded), or NoOffset.
	LogStart Offset
}

// InLog reports whether the batch is in the log.
func (t Told) InLog() bool { return t.Outcome == Appended || t.Outcome == Misplaced }

// toldKept is how many batches of a producer id are remembered, as brokers do:
// clients have no more in flight.
const toldKept = 5

// Break says why what follows a client's batch k cannot be appended.
type Break uint8

const (
	// Unbroken: nothing is in the way.
	Unbroken Break = iota
	// BehindRefused: k was definitely refused.
	BehindRefused
	// BehindRefusedAtEnd: the same, and k had no condition.
	BehindRefusedAtEnd
	// BehindUnknown: the fate of k is unknown.
	BehindUnknown
	// BehindRetriable: k was given back to be sent again.
	BehindRetriable
	// Overtaking: k is to be sent again, and this has come first.
	Overtaking
)

// Producer is the virtual state of one client producer id in one partition: what
// a broker would know of it, were its batches not stamped with the fence's id.
// It belongs to its State.
type Producer struct {
	id    ProducerID
	epoch ProducerEpoch
	// next is the sequence behind the last batch that is in the log.
	next Sequence
	// connection is the newest one that brought a batch of this epoch.
	connection ConnectionID

	told      [toldKept]Told // oldest first
	toldCount uint8

	// broken says that the batch with the sequence brokenAt, which brokenOn
	// brought, left a gap before all that follow it there; late is how many of
	// those that come late may still have been sent before their client knew.
	broken   Break
	late     uint8
	brokenAt Sequence
	brokenOn ConnectionID

	// inFlight counts its batches that are not decided. While there are none, it
	// stands in the order of last use.
	inFlight int32
	// resumed is the sequence that may come next on the newest connection besides
	// next; −1: none.
	resumed      Sequence
	lastUsed     Instant
	older, newer *Producer
}

// Begin starts anew: nothing is known of the producer in this epoch, and the
// batch with this sequence, brought by this connection, comes next.
func (p *Producer) Begin(epoch ProducerEpoch, next Sequence, on ConnectionID) {
	p.epoch, p.next, p.connection = epoch, next, on
	p.toldCount, p.broken, p.resumed = 0, Unbroken, -1
}

// Resume lets the batch with this sequence come next on the newest connection
// although some before it were never seen: they may have gone through another proxy.
// Should they come here after all before it is in the log, they are in time.
func (p *Producer) Resume(next Sequence) {
	p.resumed = next
	if p.Waited(p.connection) {
		p.broken = Unbroken
	}
}

// Resumed reports whether the batch is one that Resume let come next.
func (p *Producer) Resumed(on ConnectionID, s Sequence) bool {
	return p.resumed == s && p.connection == on
}

// Epoch is the newest epoch seen.
func (p *Producer) Epoch() ProducerEpoch { return p.epoch }

// Next is the sequence that follows what is in the log, or that came first.
func (p *Producer) Next() Sequence { return p.next }

// Connection is the newest one that brought a batch of the epoch.
func (p *Producer) Connection() ConnectionID { return p.connection }

// Told is what was told of the batch that begins with this sequence.
func (p *Producer) Told(s Sequence) (Told, bool) {
	for _, t := range p.told[:p.toldCount] {
		if t.Sequence == s {
			return t, true
		}
	}
	return Told{}, false
}

// Tell remembers what a client is told of a batch, in place of what it was told
// before of one with this sequence. That one is in the log is not forgotten for
// one that is not. What is in the log moves the next sequence on, and leaves no
// gap although its client may have been told that it is unknown, or to send it
// again.
func (p *Producer) Tell(t Told) {
	if end := t.Sequence.Plus(int(t.Count)); t.InLog() && p.next.Before(end) {
		p.next = end
	}
	if t.InLog() && p.brokenAt == t.Sequence && (p.broken == BehindUnknown || p.broken == BehindRetriable) {
		p.broken = Unbroken
	}
	for i := range p.told[:p.toldCount] {
		if o := &p.told[i]; o.Sequence == t.Sequence {
			if t.InLog() || !o.InLog() {
				*o = t
			}
			return
		}
	}
	if p.toldCount == toldKept {
		copy(p.told[:], p.told[1:])
		p.toldCount--
	}
	p.told[p.toldCount] = t
	p.toldCount++
}

// Tried notes that a batch of unknown fate that may lie anywhere, of which a client
// was told so, was tried at offsets before end.
func (s *State) Tried(end Offset) { s.triedUpTo = max(s.triedUpTo, end) }

// Claimed notes that at the offsets from … end−1 lies another batch than those of
// unknown fate that were tried there: they are nowhere.
func (s *State) Claimed(from, end Offset) {
	if from >= s.triedUpTo {
		return
	}
	for _, p := range s.producers.byID {
		for i := range p.told[:p.toldCount] {
			t := &p.told[i]
			if t.Outcome == Undecided && t.Anywhere && t.Offset < end && from < t.Offset+Offset(t.Count) {
				t.Offset = NoOffset
			}
		}
	}
}

// Untell forgets what was told of the batch with this sequence, unless it is in
// the log.
func (p *Producer) Untell(s Sequence) {
	for i := range p.told[:p.toldCount] {
		if o := &p.told[i]; o.Sequence == s && !o.InLog() {
			copy(p.told[i:], p.told[i+1:p.toldCount])
			p.toldCount--
			return
		}
	}
}

// Came notes that a connection brought a batch of the epoch with this sequence.
// A client that is back at the gap, or before it, has gone back to fill it.
func (p *Producer) Came(on ConnectionID, s Sequence) {
	if on > p.connection {
		p.connection, p.resumed = on, -1
	}
	if p.broken != Unbroken && on >= p.brokenOn && !p.brokenAt.Before(s) {
		p.broken = Unbroken
	}
}

// Break notes that the batch with this sequence, brought by this connection,
// left a gap. The first gap of the newest connection counts.
func (p *Producer) Break(on ConnectionID, at Sequence, why Break) {
	if p.broken != Unbroken && (on < p.brokenOn || on == p.brokenOn && p.brokenAt.Before(at)) {
		return
	}
	p.broken, p.brokenAt, p.brokenOn, p.late = why, at, on, toldKept
}

// Late takes in a batch with this sequence that comes late on this connection,
// and says what gap is before it, if any. A client that has more of them than
// clients have in flight takes what left the gap for done: to it alone, an answer
// that has it begin anew is of use, and that is the one after BehindRetriable.
//
// On a newer connection a client may send what stands behind the gap before it
// sends again what left it (franz-go does, now and then): Overtaking. But it may
// also have done that elsewhere, and then goes on with this.
func (p *Producer) Late(on ConnectionID, s Sequence) Break {
	switch {
	case p.broken == Unbroken || !p.brokenAt.Before(s):
		return Unbroken
	case on > p.brokenOn && p.late > 0 && (p.broken == BehindUnknown || p.broken == BehindRetriable):
		p.late--
		return Overtaking
	case on != p.brokenOn:
		return Unbroken
	case p.late == 0:
		return BehindRetriable
	}
	p.late--
	return p.broken
}

// Broken reports whether a batch is known to have left a gap.
func (p *Producer) Broken() bool { return p.broken != Unbroken }

// Waited reports whether what left a gap was waited for long enough on this
// connection, which is newer than the gap.
func (p *Producer) Waited(on ConnectionID) bool {
	return (p.broken == BehindUnknown || p.broken == BehindRetriable) && on > p.brokenOn && p.late == 0
}

// producers are the virtual states of a partition's client producer ids.
type producers struct {
	byID map[ProducerID]*Producer
	// oldest … newest are those with nothing in flight, by last use.
	oldest, newest *Producer
	keep           time.Duration
	// most is how many byID has held: maps do not give memory back.
	most int
}

// Producer is the virtual state of a client's producer id; nil: there is none.
func (s *State) Producer(id ProducerID) *Producer { return s.producers.byID[id] }

// Producers is the number of virtual producer states.
func (s *State) Producers() int { return len(s.producers.byID) }

// AddProducer makes the virtual state of a producer id that has none. States
// that were not used for as long as keep make room (0: they stay), and if there
// are still as many as most (0: no bound), those that were not used for longest,
// which are counted; none that has a batch in flight does.
func (s *State) AddProducer(now Instant, id ProducerID, keep time.Duration, most int) (p *Producer, forgotten int) {
	s.producers.keep = keep
	s.producers.expire(now)
	for most > 0 && len(s.producers.byID) >= most && s.producers.oldest != nil {
		s.producers.forget(s.producers.oldest)
		forgotten++
	}
	if s.producers.byID == nil {
		s.producers.byID = map[ProducerID]*Producer{}
	}
	p = &Producer{id: id, lastUsed: now}
	s.producers.byID[id] = p
	s.producers.most = max(s.producers.most, len(s.producers.byID))
	s.producers.link(p)
	return p, forgotten
}

// TouchProducer notes that the state was used now.
func (s *State) TouchProducer(now Instant, p *Producer) {
	p.lastUsed = now
	if p.inFlight == 0 {
		s.producers.unlink(p)
		s.producers.link(p)
	}
}

// HoldProducer notes that one more batch of the producer is in flight; the state
// is kept until as many calls of ReleaseProducer.
func (s *State) HoldProducer(p *Producer) {
	if p.inFlight == 0 {
		s.producers.unlink(p)
	}
	p.inFlight++
}

// ReleaseProducer notes that a batch of the producer was decided now.
func (s *State) ReleaseProducer(now Instant, p *Producer) {
	p.lastUsed = now
	if p.inFlight--; p.inFlight == 0 {
		s.producers.link(p)
	}
}

// expire forgets the states that were not used for as long as they are kept.
func (s *producers) expire(now Instant) {
	for s.keep > 0 && s.oldest != nil && now.Sub(s.oldest.lastUsed) >= s.keep {
		s.forget(s.oldest)
	}
}

// shrink leaves no memory for more than is still to be kept.
func (s *producers) shrink(now Instant) {
	s.expire(now)
	if n := len(s.byID); 2*n < s.most {
		kept := make(map[ProducerID]*Producer, n)
		maps.Copy(kept, s.byID)
		s.byID, s.most = kept, n
	}
}

// forgetResults forgets what clients were told: the log it is about is gone.
func (s *producers) forgetResults() {
	for _, p := range s.byID {
		p.toldCount = 0
	}
}

func (s *producers) forget(p *Producer) {
	s.unlink(p)
	delete(s.byID, p.id)
}

func (s *producers) link(p *Producer) {
	p.older, p.newer = s.newest, nil
	if s.newest != nil {
		s.newest.newer = p
	} else {
		s.oldest = p
	}
	s.newest = p
}

func (s *producers) unlink(p *Producer) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		s.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		s.newest = p.older
	}
	p.older, p.newer = nil, nil
}
