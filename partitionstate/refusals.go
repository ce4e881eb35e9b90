package partitionstate

// refusals counts how often, in a row, a leader refused by its sequence what a
// view said that it must accept, and a view begun afterwards said so again.
type refusals struct {
	// on is the view that was refused at the instant at; compared: a later
	// view has been held against it.
	on       View
	at       Instant
	compared bool
	rounds   int
}

// Refused notes that a batch stamped from a view was refused because of its
// sequence: the view was wrong, or of the past.
func (s *State) Refused(now Instant, on View) {
	s.DropView()
	if s.refusals == nil {
		s.refusals = new(refusals)
	}
	s.refusals.on, s.refusals.at, s.refusals.compared = on, now, false
}

// Accepted notes that a stamped batch was appended: what was refused before has
// had its reasons.
func (s *State) Accepted() { s.refusals = nil }

// RefusedInVain reports whether a view of the same pair as v has been refused
// and confirmed for that many rounds in a row. Then the next round counts as
// the last one again, so that one batch in two is tried: it may be over.
func (s *State) RefusedInVain(v View, rounds int) bool {
	r := s.refusals
	if r == nil {
		return false
	}
	if !r.compared && v.At >= r.at {
		r.compared = true
		if v.SamePair(r.on) {
			r.rounds++
		} else {
			r.rounds = 0
		}
	}
	if r.rounds < rounds {
		return false
	}
	r.rounds = rounds - 1
	return true
}
