package partitionstate

import "slices"

// Unsettled is a transmission whose fate is unknown: its bytes may lie in the
// log, or may still arrive. It is remembered until it is settled by reading
// the log, or until no copy can be alive any more.
type Unsettled struct {
	Expected Offset
	Records  []Record // at Expected, Expected+1, …
	gone     []bool   // settled records
	left     int

	// Epoch and BaseSequence are what it was stamped with.
	Epoch        ProducerEpoch
	BaseSequence Sequence
	SentAt       Instant
	// Node is the broker it was sent to.
	Node NodeID
	// Anywhere: its records may as well lie at other offsets, by other
	// transmissions of the batch.
	Anywhere bool

	// NextLook and Looks pace the reading of the log for it.
	NextLook Instant
	Looks    int
	// Alarmed: an alarm was raised for it already.
	Alarmed bool
	// Pass is the holder's: the last pass in which somebody waited for it.
	Pass uint64
}

// End is the offset behind its last record, had it been appended as promised.
func (u *Unsettled) End() Offset { return u.Expected + Offset(len(u.Records)) }

// SequenceAt is the sequence that the record for offset o got, or would have
// got, by the transmission's stamp.
func (u *Unsettled) SequenceAt(o Offset) Sequence { return u.BaseSequence.Plus(int(o - u.Expected)) }

// place is where an unsettled transmission's records would lie. It stands
// beside the pointer so that most are passed over without following it.
type place struct {
	from, end Offset
	u         *Unsettled
}

// Unsettle remembers a transmission whose fate is unknown, and returns the
// memory of it. A further copy, stamped alike, of one that is remembered only
// makes that one younger: a client that sends again and again costs no more. The
// records are copied: the caller's may lie in memory that is not to be kept for long.
func (s *State) Unsettle(u *Unsettled) *Unsettled {
	if o := s.Remembered(u.Expected, u.Records, u.Epoch, u.BaseSequence); o != nil {
		o.SentAt, o.Node, o.NextLook = max(o.SentAt, u.SentAt), u.Node, max(o.NextLook, u.NextLook)
		return o
	}
	u.Records = slices.Clone(u.Records)
	u.gone = make([]bool, len(u.Records))
	u.left = len(u.Records)
	s.unsettled = append(s.unsettled, u)
	s.index = slices.Insert(s.index, s.firstFrom(u.Expected), place{u.Expected, u.End(), u})
	s.longest = max(s.longest, Offset(len(u.Records)))
	if s.openAt == nil {
		s.openAt = make(map[uint64]int32, len(u.Records))
	}
	for i, r := range u.Records {
		s.openAt[placeHash(u.Expected+Offset(i), r)]++
	}
	return u
}

// Remembered is the memory of a transmission of just these records, stamped
// alike, of which nothing is settled; nil: there is none.
func (s *State) Remembered(expected Offset, records []Record, epoch ProducerEpoch, base Sequence) *Unsettled {
	for i := s.firstFrom(expected); i < len(s.index) && s.index[i].from == expected; i++ {
		o := s.index[i].u
		if o.left == len(o.Records) && o.Epoch == epoch && o.BaseSequence == base && slices.Equal(o.Records, records) {
			return o
		}
	}
	return nil
}

// firstFrom is the first place in the index that begins at o or behind it.
func (s *State) firstFrom(o Offset) int {
	lo, hi := 0, len(s.index)
	for lo < hi {
		if mid := (lo + hi) / 2; s.index[mid].from < o {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// placeHash stands for a record at an offset; others may have the same.
func placeHash(o Offset, r Record) uint64 { return r.Digest ^ uint64(o)*0x9e3779b97f4a7c15 }

// settle notes that nothing is open any more of the transmission's record j.
func (s *State) settle(u *Unsettled, j Offset) {
	if u.gone[j] {
		return
	}
	u.gone[j] = true
	u.left--
	h := placeHash(u.Expected+j, u.Records[j])
	if s.openAt[h]--; s.openAt[h] == 0 {
		delete(s.openAt, h)
	}
}

// candidates are places among which all transmissions are that any of these
// records at these offsets is open of.
func (s *State) candidates(expected Offset, records []Record) []place {
	first := s.firstFrom(expected - s.longest)
	if first == len(s.index) || s.index[first].from >= expected+Offset(len(records)) {
		return nil
	}
	// Many writers expect the same offset, so most candidates are others'.
	for i, r := range records {
		if s.openAt[placeHash(expected+Offset(i), r)] > 0 {
			return s.index[first:s.firstFrom(expected+Offset(len(records)))]
		}
	}
	return nil
}

// Unsettled lists what is unknown, oldest first. The caller does not keep it.
func (s *State) Unsettled() []*Unsettled { return s.unsettled }

// FindUnsettled finds a transmission of any of these records at these
// offsets: clients cut their batches anew when they retry, so one record in
// common makes it the same batch.
func (s *State) FindUnsettled(expected Offset, records []Record) *Unsettled {
	for _, p := range s.candidates(expected, records) {
		if p.end > expected && p.u.Overlaps(expected, records) {
			return p.u
		}
	}
	return nil
}

// AppendOverlapping appends to dst all transmissions of any of these records at
// these offsets. What it returns stays valid when some of them are forgotten.
func (s *State) AppendOverlapping(dst []*Unsettled, expected Offset, records []Record) []*Unsettled {
	for _, p := range s.candidates(expected, records) {
		if p.end > expected && p.u.Overlaps(expected, records) {
			dst = append(dst, p.u)
		}
	}
	return dst
}

// Overlaps reports whether any of these records at these offsets is one of the
// transmission's that is not settled.
func (u *Unsettled) Overlaps(expected Offset, records []Record) bool {
	for o := max(expected, u.Expected); o < min(expected+Offset(len(records)), u.End()); o++ {
		if j := o - u.Expected; !u.gone[j] && u.Records[j] == records[o-expected] {
			return true
		}
	}
	return false
}

// Tried is where a record was tried, if it is one of the transmission's that is not
// settled.
func (u *Unsettled) Tried(r Record) (at Offset, open bool) {
	for i, mine := range u.Records {
		if !u.gone[i] && mine == r {
			return u.Expected + Offset(i), true
		}
	}
	return NoOffset, false
}

// Misplaces reports whether a record found at an offset is one of the
// transmission's, not settled, that was promised another offset.
func (u *Unsettled) Misplaces(r Record, at Offset) bool {
	if u.Anywhere {
		return false
	}
	for i, mine := range u.Records {
		if !u.gone[i] && mine == r && u.Expected+Offset(i) != at {
			return true
		}
	}
	return false
}

// Settle clears the memory of just these records at these offsets; a
// transmission of which nothing is left is forgotten.
func (s *State) Settle(expected Offset, records []Record) {
	settled := false
	for _, u := range s.AppendOverlapping(nil, expected, records) {
		for o := max(expected, u.Expected); o < min(expected+Offset(len(records)), u.End()); o++ {
			if j := o - u.Expected; u.Records[j] == records[o-expected] {
				s.settle(u, j)
			}
		}
		settled = settled || u.left == 0
	}
	if settled {
		s.dropSettled()
	}
}

// Forget drops transmissions: no copy of them can be alive.
func (s *State) Forget(gone ...*Unsettled) {
	for _, u := range gone {
		for j := range u.gone {
			s.settle(u, Offset(j))
		}
	}
	if len(gone) > 0 {
		s.dropSettled()
	}
}

// dropSettled drops the transmissions of which nothing is left.
func (s *State) dropSettled() {
	gone := func(u *Unsettled) bool { return u.left == 0 }
	s.unsettled = slices.DeleteFunc(s.unsettled, gone)
	s.index = slices.DeleteFunc(s.index, func(p place) bool { return gone(p.u) })
	if len(s.index) == 0 {
		s.longest, s.openAt = 0, nil
	}
}
