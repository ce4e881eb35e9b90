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

	// NextLook and Looks pace the reading of the log for it.
	NextLook Instant
	Looks    int
	// Alarmed: an alarm was raised for it already.
	Alarmed bool
}

// End is the offset behind its last record, had it been appended as promised.
func (u *Unsettled) End() Offset { return u.Expected + Offset(len(u.Records)) }

// SequenceAt is the sequence that the record for offset o got, or would have
// got, by the transmission's stamp.
func (u *Unsettled) SequenceAt(o Offset) Sequence {
	return Sequence((int64(u.BaseSequence) + int64(o-u.Expected)) & sequenceMask)
}

// Unsettle remembers a transmission whose fate is unknown, and returns the
// memory of it. A further copy, stamped alike, of one that is remembered only
// makes that one younger: a client that sends again and again costs no more.
func (s *State) Unsettle(u *Unsettled) *Unsettled {
	for _, o := range s.unsettled {
		if o.left == len(o.Records) && o.Expected == u.Expected && o.Epoch == u.Epoch &&
			o.BaseSequence == u.BaseSequence && slices.Equal(o.Records, u.Records) {
			o.SentAt, o.Node, o.NextLook = max(o.SentAt, u.SentAt), u.Node, max(o.NextLook, u.NextLook)
			return o
		}
	}
	u.gone = make([]bool, len(u.Records))
	u.left = len(u.Records)
	s.unsettled = append(s.unsettled, u)
	return u
}

// Unsettled lists what is unknown, oldest first. The caller does not keep it.
func (s *State) Unsettled() []*Unsettled { return s.unsettled }

// FindUnsettled finds a transmission of any of these records at these
// offsets: clients cut their batches anew when they retry, so one record in
// common makes it the same batch.
func (s *State) FindUnsettled(expected Offset, records []Record) *Unsettled {
	for _, u := range s.unsettled {
		if u.Overlaps(expected, records) {
			return u
		}
	}
	return nil
}

// Overlaps reports whether any of these records at these offsets is one of the
// transmission's that is not settled.
func (u *Unsettled) Overlaps(expected Offset, records []Record) bool {
	for i, r := range records {
		j := expected + Offset(i) - u.Expected
		if j >= 0 && j < Offset(len(u.Records)) && !u.gone[j] && u.Records[j] == r {
			return true
		}
	}
	return false
}

// Misplaces reports whether a record found at an offset is one of the
// transmission's, not settled, that was promised another offset.
func (u *Unsettled) Misplaces(r Record, at Offset) bool {
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
	kept := s.unsettled[:0]
	for _, u := range s.unsettled {
		for i, r := range records {
			j := expected + Offset(i) - u.Expected
			if j >= 0 && j < Offset(len(u.Records)) && !u.gone[j] && u.Records[j] == r {
				u.gone[j] = true
				u.left--
			}
		}
		if u.left > 0 {
			kept = append(kept, u)
		}
	}
	clear(s.unsettled[len(kept):])
	s.unsettled = kept
}

// Forget drops the transmission: no copy of it can be alive.
func (s *State) Forget(gone *Unsettled) {
	kept := s.unsettled[:0]
	for _, u := range s.unsettled {
		if u != gone {
			kept = append(kept, u)
		}
	}
	clear(s.unsettled[len(kept):])
	s.unsettled = kept
}
