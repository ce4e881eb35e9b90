package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// newUnfencedWorld is one in which proxies compare with the end that they know, and
// forward what matches.
func newUnfencedWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.cfg.Unsafe = true
	return w
}

// newLateWorld is one in which answers come to what was abandoned. In others the
// proxy has closed the connection.
func newLateWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.late = true
	return w
}

// newReadingWorld is one in which the log is read beyond its committed end, as no
// consumer can.
func newReadingWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.cluster.readsAll = true
	w.trouble = 3
	return w
}

// newPredictingWorld is one in which clients expect what is in flight to win.
func newPredictingWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.predicts = true
	return w
}

// newTailsWorld is one in which many views are of the last committed batch, and what
// is appended is old, so that the fence's state expires early.
func newTailsWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.varied = &modelVaried{malformed: map[int]bool{}}
	w.varied.has[tailViews] = true
	w.old, w.tempo = true, 60*time.Millisecond
	return w
}

// predicted is where the log ends when what is in flight through a proxy has won.
func (p *modelProxy) predicted(end ps.Offset) ps.Offset {
	if t := p.part.inFlight(); t != nil {
		return t.end()
	}
	return end
}

// TestWithoutTheFenceTheModelFails: to compare and to forward is not enough.
func TestWithoutTheFenceTheModelFails(t *testing.T) {
	breaksWithout(t, "unfenced", 0, 1, misplaced)
}

// TestModelWhereGuardsAreTakenAway: what these worlds are for is to have guards taken away; with
// all in place nothing fails in them.
func TestModelWhereGuardsAreTakenAway(t *testing.T) {
	for _, world := range []string{"plain", "late", "reading", "predicting", "tails"} {
		sweep(t, world, schedulesOf(500, 60)).wants(t, Won, Taken, NotReached, Unknown, Retry)
	}
}
