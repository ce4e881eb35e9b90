package partitionstate

// Counts is what has happened in a partition for as long as its State is kept, to be
// shown to people.
type Counts struct {
	// Attempts are transmissions of batches to a broker.
	Attempts uint64
	// LostRaces are those that the broker refused because of their sequence:
	// somebody else was faster.
	LostRaces uint64
	// Appended are batches that were said to be appended as promised, those among them
	// that had been so already.
	Appended uint64
	// Refused are batches that were refused for their offset, or because one before
	// them was.
	Refused uint64
}

// All is how much has happened.
func (c *Counts) All() uint64 { return c.Attempts + c.Appended + c.Refused }

// Counts is what has happened. The holder of the State counts in it.
func (s *State) Counts() *Counts { return &s.counts }
