package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

const (
	// shownPartitions bounds the partitions of a Status.
	shownPartitions = 100
	// keptResting bounds the idle partitions that are remembered to be shown, more
	// than are shown, since some of them are in use again.
	keptResting = 2 * shownPartitions
	// busyTries is how often a lane is tried whose lock is taken.
	busyTries = 3
)

// Names of the states of partitions.
const (
	partitionOpen    = "open"
	partitionHeld    = "held"
	partitionUnknown = "unknown"
	partitionClosed  = "closed"
	partitionIdle    = "idle"
	partitionBusy    = "busy"
)

var turnNames = map[fence.TurnHolder]string{
	fence.TurnFree: "free", fence.TurnOurs: "ours", fence.TurnPausing: "pausing", fence.TurnOthers: "others",
}

// resting is what is shown of a partition that is idle.
type resting struct {
	view      ps.View
	hasView   bool
	committed ps.Offset
	counts    ps.Counts
}

// restingBook remembers the partitions that became idle last, since the cache of
// their states does not tell them without listing all. Guarded by fencing.mu.
type restingBook = simplelru.LRU[ps.Key, resting]

func newRestingBook() *restingBook {
	book, err := simplelru.NewLRU[ps.Key, resting](keptResting, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return book
}

func restingOf(s *ps.State) resting {
	r := resting{committed: s.LowerBound(), counts: *s.Counts()}
	r.view, r.hasView = s.View()
	return r
}

// laneGlance is what is seen of a lane in one look.
type laneGlance struct {
	lane     *lane
	standing fence.Standing
	counts   ps.Counts
	activity uint64
	busy     bool
	last     ps.Instant
}

// before orders lanes as Status.Partitions does.
func (g *laneGlance) before(o *laneGlance) int {
	return cmp.Or(
		cmp.Compare(min(o.standing.Unknown, 1), min(g.standing.Unknown, 1)),
		cmp.Compare(o.activity, g.activity),
		cmp.Compare(o.last, g.last),
		cmp.Compare(g.lane.key.Topic, o.lane.key.Topic),
		cmp.Compare(g.lane.key.Partition, o.lane.key.Partition),
	)
}

// glance looks at the lane, if its lock is free; false: it was not. Of a lane that was
// put away it sees nothing, and leaves g as it is: the partition's state has another
// lane by now, under another lock, or is in the cache.
func (l *lane) glance(g *laneGlance, at ps.Instant) bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	g.lane, g.last, g.counts = l, l.last, *l.part.State().Counts()
	g.standing = l.part.Standing(max(l.last, at))
	g.activity = g.counts.All() - l.shown
	l.shown = g.counts.All()
	return true
}

// partitions fills in what is fenced. Only one at a time may call it.
func (f *fencing) partitions(s *Status, problems map[string]TopicStatus, at ps.Instant) {
	lanes := f.allLanes()
	s.PartitionsInUse = len(lanes)
	best := make([]laneGlance, 0, 2*shownPartitions)
	sorted := func() []laneGlance {
		slices.SortFunc(best, func(a, b laneGlance) int { return a.before(&b) })
		return best[:min(len(best), shownPartitions)]
	}
	last := laneGlance{} // of the best, once there are more than are shown
	take := func(g *laneGlance) {
		if last.lane != nil && last.before(g) < 0 {
			return
		}
		if best = append(best, *g); len(best) == cap(best) {
			best = sorted()
			last = best[shownPartitions-1]
		}
	}
	look := func(l *lane) bool {
		var g laneGlance
		if !l.glance(&g, at) {
			return false
		}
		if g.lane == nil { // put away since the lanes were listed
			s.PartitionsInUse--
			return true
		}
		s.Appends.Unknown += int64(g.standing.Unknown)
		s.Appends.Upstream += int64(g.standing.Upstream)
		s.Appends.Waiting += int64(g.standing.Undecided - g.standing.Upstream)
		take(&g)
		return true
	}
	for try := 0; try < busyTries && len(lanes) > 0; try++ {
		lanes = slices.DeleteFunc(lanes, look)
	}
	for _, l := range lanes {
		// Whoever is busy each time is active.
		take(&laneGlance{lane: l, busy: true, activity: 1})
	}
	s.PartitionsBusy = len(lanes)
	best = sorted()
	for i := range best {
		s.Partitions = append(s.Partitions, best[i].status(problems, at))
	}
	f.appendResting(s, at)
	s.PartitionsLeftOut = max(s.PartitionsInUse+s.PartitionsIdle-len(s.Partitions), 0)
}

// allLanes lists the lanes, without keeping others waiting for long.
func (f *fencing) allLanes() []*lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	lanes := make([]*lane, 0, len(f.lanes))
	for _, l := range f.lanes {
		if lanes = append(lanes, l); len(lanes)%sweepStep == 0 {
			f.mu.Unlock()
			f.mu.Lock()
		}
	}
	return lanes
}

// appendResting adds idle partitions while there is room.
func (f *fencing) appendResting(s *Status, at ps.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.PartitionsIdle = f.idle.Len()
	for _, key := range slices.Backward(f.rested.Keys()) {
		if len(s.Partitions) >= shownPartitions {
			return
		}
		if _, inUse := f.lanes[key]; inUse {
			continue
		}
		r, _ := f.rested.Peek(key)
		shown := PartitionStatus{Topic: key.Topic, Partition: key.Partition, State: partitionIdle, Turn: turnNames[fence.TurnFree]}
		shown.end(r.view, r.hasView, r.committed, at)
		shown.count(&r.counts)
		s.Partitions = append(s.Partitions, shown)
	}
}

// end fills in where the log ends.
func (p *PartitionStatus) end(v ps.View, known bool, committed ps.Offset, at ps.Instant) {
	p.NextOffset, p.CommittedEnd = int64(committed), int64(committed)
	p.ViewAgeMillis, p.Leader, p.LeaderEpoch = -1, unknownNode, -1
	if known {
		p.NextKnown, p.NextOffset = true, int64(v.Next)
		p.Leader, p.LeaderEpoch = int32(v.Leader), int32(v.LeaderEpoch)
		p.ViewAgeMillis = max(at.Sub(v.At), 0).Milliseconds()
	}
}

func (p *PartitionStatus) count(c *ps.Counts) {
	p.Attempts, p.LostRaces, p.Appended, p.Refused = c.Attempts, c.LostRaces, c.Appended, c.Refused
}

func (g *laneGlance) status(problems map[string]TopicStatus, at ps.Instant) PartitionStatus {
	key := g.lane.key
	p := PartitionStatus{Topic: key.Topic, Partition: key.Partition, Turn: turnNames[g.standing.Turn]}
	if g.busy {
		p.State, p.ViewAgeMillis, p.Leader, p.LeaderEpoch = partitionBusy, -1, unknownNode, -1
		return p
	}
	n := &g.standing
	at = max(at, g.last)
	p.end(n.View, n.HasView, n.CommittedEnd, at)
	p.Waiting, p.Upstream, p.Unknown, p.Losing = n.Undecided-n.Upstream, n.Upstream, n.Unknown, n.Losing
	p.count(&g.counts)
	p.State, p.Why = partitionOpen, ""
	switch topic := problems[key.Topic]; {
	case topic.Refusal != "" && !topic.Observed:
		p.State, p.Why = partitionClosed, shortened(topic.Refusal)
	case n.Full:
		p.State, p.Why = partitionClosed, fmt.Sprintf("%d batches are upstream or of unknown fate, as many as limits.max_unknown allows: new ones are given back", n.Upstream+n.Unknown)
	case n.Unknown > 0:
		p.State = partitionUnknown
		p.Why = fmt.Sprintf("nobody has told what became of %d transmissions, the first of them sent %s ago: the log is being read for them", n.Unknown, at.Sub(n.UnknownSince).Round(time.Millisecond))
	case p.Waiting > 0 && n.Upstream == 0:
		p.State, p.Why = partitionHeld, waitsFor(n)
	}
	return p
}

// waitsFor says what batches wait for while none is upstream.
func waitsFor(n *fence.Standing) string {
	switch {
	case n.Turn == fence.TurnPausing:
		return "the next place is left to other proxies for a moment"
	case n.Turn == fence.TurnOthers:
		return "it is another proxy's turn"
	case n.ReadingRecords:
		return "records are being read from the log"
	case n.ReadingView:
		return "the end of the log is being read"
	}
	return "batches wait for their turn"
}
