package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// TurnHolder says whose turn it is to append, as far as this proxy has noticed.
type TurnHolder int

const (
	// TurnFree: no other writer beside this proxy's clients was noticed of late.
	TurnFree TurnHolder = iota
	// TurnOurs: others are there, and this proxy has the turn.
	TurnOurs
	// TurnPausing: this proxy leaves the next place to others for a moment.
	TurnPausing
	// TurnOthers: others are there, and this proxy has lost the turn to them.
	TurnOthers
)

// Standing is how a partition stands at an instant, to be shown to people. Nothing
// is decided by it.
type Standing struct {
	// View is the newest view, if HasView.
	View    ps.View
	HasView bool
	// CommittedEnd is the largest committed end ever seen; 0: none was.
	CommittedEnd ps.Offset
	// Undecided is how many batches are not decided, and Upstream how many of them
	// are on their way to a broker.
	Undecided, Upstream int
	// Unknown is how many transmissions of unknown fate are remembered, and
	// UnknownSince when the first of them was sent.
	Unknown      int
	UnknownSince ps.Instant
	// Full: there are as many transmissions upstream and of unknown fate as there
	// may be, so that others are given back.
	Full bool
	// ReadingView and ReadingRecords: such a reading is under way.
	ReadingView, ReadingRecords bool
	// Turn is whose turn it is, and Losing how many connections have lost the race
	// for the last place that they came for.
	Turn   TurnHolder
	Losing int
}

// Standing is how the partition stands. It costs the same however many batches there
// are.
func (p *Partition) Standing(now ps.Instant) Standing {
	s := Standing{
		CommittedEnd: p.state.LowerBound(),
		Undecided:    len(p.tickets), Upstream: len(p.upstream),
		ReadingView: len(p.viewReads) > 0, ReadingRecords: len(p.recordReads) > 0,
		Turn: p.turnHolder(now), Losing: len(p.senders.losing),
	}
	s.View, s.HasView = p.state.View()
	if open := p.state.Unsettled(); len(open) > 0 {
		s.Unknown, s.UnknownSince = len(open), open[0].SentAt
	}
	s.Full = p.cfg.MaxUnsettled > 0 && s.Unknown+s.Upstream >= p.cfg.MaxUnsettled
	return s
}

func (p *Partition) turnHolder(now ps.Instant) TurnHolder {
	u, f := &p.turn, &p.cfg.Fairness
	switch contended := f.ContendedFor > 0 && u.contended(f, now, u.pause(p.ackTime, u.stretch)); {
	case u.pauseEnd != 0 && now < u.pauseEnd:
		return TurnPausing
	case !contended:
		return TurnFree
	case u.since != 0:
		return TurnOurs
	}
	return TurnOthers
}

// count counts a verdict.
func (p *Partition) count(k Kind) {
	switch c := p.state.Counts(); k {
	case Won:
		c.Appended++
	case Taken, NotReached, PredecessorRefused:
		c.Refused++
	}
}
