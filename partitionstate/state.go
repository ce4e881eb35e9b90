package partitionstate

import "time"

// State is what is known of one partition. The zero value knows nothing.
// Not for concurrent use.
type State struct {
	view    View
	hasView bool
	// newestEpoch is the newest leader epoch in which a view was ever read;
	// what an older leader says later is stale.
	newestEpoch LeaderEpoch
	epochKnown  bool

	// committed is a lower bound of the committed end, last confirmed at
	// committedAt. It never goes back: committed offsets are never reused
	// without unclean election.
	committed   Offset
	committedAt Instant
	hasEnd      bool
	// learntAt is when this proxy heard of it.
	learntAt Instant

	// witnessedAt is when committed fence state was last seen, and
	// witnessedTimestamp the max timestamp from which its expiry counts.
	witnessedAt        Instant
	witnessedTimestamp Timestamp
	witnessed          bool
	// tentative is a log end whose fence state was seen before it was
	// committed, in tentativeEpoch; once the high watermark reaches it in the
	// same leader epoch, the state is witnessed.
	tentative          Offset
	tentativeEpoch     LeaderEpoch
	tentativeTimestamp Timestamp
	hasTentative       bool

	recent recent

	// unsettled are the transmissions of unknown fate, oldest first, and index
	// the same in order of the offset they begin at; longest is the most
	// records that one of them has, or had. openAt counts the records that are
	// not settled, by placeHash.
	unsettled []*Unsettled
	index     []place
	longest   Offset
	openAt    map[uint64]int32

	refusals *refusals // nil: none since the last success
	counts   Counts

	producers producers
	// triedUpTo is behind the last offset at which a batch of unknown fate that may
	// lie anywhere was tried, as its client's state knows.
	triedUpTo Offset
}

// View is the newest view, and whether there is one.
func (s *State) View() (View, bool) { return s.view, s.hasView }

// CommittedEnd is a lower bound of the committed end that was confirmed not
// longer than maxAge ago.
func (s *State) CommittedEnd(now Instant, maxAge time.Duration) (Offset, bool) {
	if !s.hasEnd || now.Sub(s.committedAt) >= maxAge {
		return NoOffset, false
	}
	return s.committed, true
}

// LowerBound is the largest committed end ever seen, however long ago; 0 when
// none was.
func (s *State) LowerBound() Offset { return s.committed }

// Witnessed reports whether committed fence state was seen not longer than
// maxAge ago, and the timestamp from which its expiry counts; −1 unknown.
func (s *State) Witnessed(now Instant, maxAge time.Duration) (Timestamp, bool) {
	return s.witnessedTimestamp, s.witnessed && now.Sub(s.witnessedAt) < maxAge
}

// ReadView takes in a view that was read from a broker and arrived now. False
// means that it is stale and changed nothing of the view: an older leader
// epoch, or a smaller log end than is known already. Its high watermark counts
// in either case; it was read after the log end and may lie behind it.
func (s *State) ReadView(now Instant, v View) bool {
	short := s.hasEnd && v.Next < s.committed && v.At > s.learntAt
	if v.HighWatermark != NoOffset {
		s.SeeCommitted(now, v.HighWatermark, v.At)
	}
	if s.epochKnown && v.LeaderEpoch < s.newestEpoch {
		return false
	}
	if short && s.epochKnown && v.LeaderEpoch > s.newestEpoch {
		s.truncated(now, v)
	}
	s.witness(v)
	if s.hasEnd && v.Next < s.committed {
		return false
	}
	s.newestEpoch, s.epochKnown = v.LeaderEpoch, true
	if s.hasView && s.view.LeaderEpoch == v.LeaderEpoch {
		if v.Next < s.view.Next || v.Next == s.view.Next && v.At < s.view.At {
			return false
		}
	}
	s.view, s.hasView = v, true
	return true
}

// Contradicts reports whether a view ends below what was known to be committed
// when it was begun, in the very leader epoch of the newest view. In an epoch
// the log's end never goes back: the topic was created anew under its name and
// another topic has the same epoch, or the leader is a deposed one and the
// committed end was learnt from its successor. To be asked before ReadView.
func (s *State) Contradicts(v View) bool {
	return s.hasEnd && v.Next < s.committed && v.At > s.learntAt && s.epochKnown && v.LeaderEpoch == s.newestEpoch
}

// Deposed reports whether a view of a newer leader epoch was read already.
func (s *State) Deposed(e LeaderEpoch) bool { return s.epochKnown && e < s.newestEpoch }

// truncated: a new leader's log ended before an offset of which it was known
// already that it is committed. Only an unclean election does that. No promise
// holds across one (see ARCHITECTURE.md), but what follows must go on from
// what is there now.
func (s *State) truncated(now Instant, v View) {
	s.committed, s.hasEnd = 0, false
	s.witnessed, s.hasTentative = false, false
	s.recent = recent{most: s.recent.most}
	s.producers.forgetResults()
	if v.HighWatermark != NoOffset {
		s.SeeCommitted(now, v.HighWatermark, v.At)
	}
}

func (s *State) witness(v View) {
	if !v.HasState {
		// Whatever was seen before is gone.
		s.hasTentative = false
		s.witnessed = s.witnessed && s.witnessedAt >= v.At
		return
	}
	if v.HighWatermark == NoOffset {
		return
	}
	reached := s.hasTentative && s.tentativeEpoch == v.LeaderEpoch && v.HighWatermark >= s.tentative
	switch {
	case v.HighWatermark >= v.Next:
		s.sawState(v.At, v.StateTimestamp)
		s.hasTentative = false
	case reached:
		s.sawState(v.At, s.tentativeTimestamp)
		s.hasTentative = false
	case !s.hasTentative || s.tentativeEpoch != v.LeaderEpoch:
		s.tentative, s.tentativeEpoch, s.hasTentative = v.Next, v.LeaderEpoch, true
		s.tentativeTimestamp = v.StateTimestamp
	}
}

func (s *State) sawState(at Instant, timestamp Timestamp) {
	if !s.witnessed || at > s.witnessedAt {
		s.witnessed, s.witnessedAt, s.witnessedTimestamp = true, at, timestamp
	}
}

// SeeCommitted notes that the committed end was at least end at some time
// between at and now. A view that ends before it is of the past.
func (s *State) SeeCommitted(now Instant, end Offset, at Instant) {
	if s.hasView && s.view.Next < end {
		s.DropView()
	}
	switch {
	case !s.hasEnd || end > s.committed:
		s.committed, s.hasEnd, s.learntAt = end, true, now
		if at > s.committedAt {
			s.committedAt = at
		}
	case end == s.committed && at > s.committedAt:
		s.committedAt = at
	}
}

// Append is one stamped batch that the leader acknowledged as appended now,
// behind the high watermark.
type Append struct {
	At           Offset // of its first record
	Records      []Record
	Epoch        ProducerEpoch
	BaseSequence Sequence
	MaxTimestamp Timestamp
	Leader       NodeID
	LeaderEpoch  LeaderEpoch
	ArmAtZero    bool    // as in the View that it was stamped from
	SentAt       Instant // before its bytes were given to the connection
}

// Acknowledged takes in an append: the log ended behind it, all of it is
// committed, and the fence's state with it. More may be known to be committed
// by now; then it is no view of the end.
func (s *State) Acknowledged(now Instant, a Append) {
	n := len(a.Records)
	next := a.At + Offset(n)
	s.Accepted()
	s.SeeCommitted(now, next, a.SentAt)
	s.sawState(a.SentAt, a.MaxTimestamp)
	s.recent.add(a.At, a.Records)
	if s.epochKnown && a.LeaderEpoch < s.newestEpoch || next < s.committed {
		return
	}
	if s.hasView && s.view.LeaderEpoch == a.LeaderEpoch && s.view.Next >= next {
		return
	}
	s.view = View{
		Leader: a.Leader, LeaderEpoch: a.LeaderEpoch,
		Next: next, HasState: true, Sequence: a.BaseSequence.Plus(n), Epoch: a.Epoch,
		StateTimestamp: a.MaxTimestamp, HighWatermark: next, ArmAtZero: a.ArmAtZero, At: a.SentAt,
	}
	s.hasView = true
	s.newestEpoch, s.epochKnown = a.LeaderEpoch, true
}

// AppendedElsewhere notes that n records were appended at another offset than
// the one promised: the view was wrong and the end is known to be further on.
func (s *State) AppendedElsewhere(now Instant, at Offset, n int, sent Instant) {
	s.DropView()
	s.SeeCommitted(now, at+Offset(n), sent)
}

// DropView forgets the view: something contradicted it.
func (s *State) DropView() { s.hasView = false }

// Known returns the records known to lie at offsets from … upTo−1, or false
// if one of them is not known. The slice is valid until the next transition.
func (s *State) Known(from, upTo Offset) ([]Record, bool) { return s.recent.get(from, upTo) }

// Recall is where these records, not empty, lie one after the other among those
// remembered, and whether they do. Equal records of others are found as well,
// unless they carry append-ids.
func (s *State) Recall(records []Record) (Offset, bool) { return s.recent.find(records) }

// Old reports whether an offset lies further back than records are remembered:
// whoever wants the record there has it read from the log, and it is not kept.
func (s *State) Old(o Offset) bool {
	return len(s.recent.records) > 0 && o < s.recent.base || s.hasEnd && s.committed-o > Offset(s.recent.bound())
}

// KeepRecent bounds the recent records remembered while the partition is in use; 0: a
// default. Up to twice as many are kept before the oldest are forgotten.
func (s *State) KeepRecent(most int) { s.recent.most = most }

// Learned notes committed records that were read from the log.
func (s *State) Learned(from Offset, records []Record) { s.recent.add(from, records) }

// Idle shrinks what is kept to what an idle partition may cost.
func (s *State) Idle(now Instant) {
	s.recent.trim(min(recentIdle, s.recent.bound()))
	s.producers.shrink(now)
	if len(s.unsettled) == 0 {
		s.unsettled, s.index = nil, nil
	}
}
