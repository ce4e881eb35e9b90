package fence

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// variety is something besides the ordinary that happens in varied worlds.
type variety int

const (
	offsetsWrap    variety = iota // offsets pass 2³¹, and with them sequences that never drifted
	markers                       // transactions had ended in the log before the rule began
	bumps                         // the fence's epoch is raised
	deletes                       // the log's start moves
	deletesAll                    // … beyond the fence's last batch
	compacts                      // records vanish below the end
	compactsWhole                 // … all of a batch's, which stays while it is its producer's last
	replaces                      // a replica begins anew with what the log still has
	revives                       // truncation brings state back that had expired
	typeChanges                   // the topic's timestamp type changes
	crashes                       // a proxy dies and begins anew
	evicts                        // a proxy forgets an idle partition
	forgetsClients                // … or idempotent clients
	tailViews                     // a view is taken from the last committed batch
	seesCommitted                 // the committed end is heard of without a view
	shortMemory                   // few recent records are remembered
	recalls                       // what is remembered of recent records spares a reading
	contents                      // equal records are the batch's own
	replaysOff                    // nothing that is found in the log is
	connections                   // those who lose too often are waited for
	joins                         // a client puts two batches into one
	unsendables                   // a batch's bytes are gone
	refusedBefore                 // an idempotent client's batch is refused before the fence
	logStartMarks                 // duplicates are told by log_start_offset
	leaps                         // a proxy's clock goes on by more than time does
	wallJumps                     // a proxy's wall clock jumps, both ways
	futures                       // timestamps lie in the future
	reloads                       // a partition's configuration changes
	limits                        // few batches may be of unknown fate
	oldOffsets                    // readings of old offsets are noticed
	varieties
)

var varietyNames = [varieties]string{
	"offsets wrap", "markers", "epoch bumps", "deletes", "deletes all", "compacts", "compacts whole batches", "replaces replicas",
	"revives state", "type changes", "proxy crashes", "evictions", "forgotten clients", "tail views", "committed seen", "short memory", "recalls",
	"replay content", "replay off", "connections", "joins", "unsendable", "refused before", "marks by log start", "clock leaps",
	"wall clock jumps", "future timestamps", "reloads", "limits", "old offsets",
}

// modelVaried makes a world differ from an ordinary one. What a world is like is
// drawn from a source of its own; what happens in it, from the world's.
type modelVaried struct {
	has [varieties]bool
	// happened counts what did.
	happened [varieties]int
	configs  []*Config
	// malformed are the records, by owner, with which proxies refuse a batch.
	malformed map[int]bool
}

// modelClock is how far a proxy's clocks are from the true ones.
type modelClock struct {
	ahead time.Duration
	wall  time.Duration
}

// clockOf reads a proxy's clocks.
func (w *modelWorld) clockOf(p *modelProxy) ps.Now {
	now := w.clock()
	now.Instant = now.Instant.Add(p.clock.ahead)
	now.Wall += ps.Timestamp(p.clock.wall.Milliseconds())
	return now
}

// happens reports whether there is such a thing in this world, and counts it.
func (w *modelWorld) happens(v variety) bool {
	if w.varied == nil || !w.varied.has[v] {
		return false
	}
	w.varied.happened[v]++
	return true
}

// has reports whether there is such a thing in this world.
func (w *modelWorld) has(v variety) bool { return w.varied != nil && w.varied.has[v] }

// newVariedWorld is an ordinary world in which some of the varieties are, too.
func newVariedWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, false)
	w.vary(rand.New(rand.NewPCG(seed, 4)))
	return w
}

// newVariedIdempotentWorld is one with idempotent clients only.
func newVariedIdempotentWorld(seed uint64, broken guard) *modelWorld {
	w := newIdempotentWorld(seed, broken)
	w.vary(rand.New(rand.NewPCG(seed, 4)))
	return w
}

// newVariedScarceWorld is one in which brokers lack replicas and bytes do not live for
// long.
func newVariedScarceWorld(seed uint64, broken guard) *modelWorld {
	w := newScarceWorld(seed, broken)
	w.vary(rand.New(rand.NewPCG(seed, 4)))
	return w
}

// vary draws what there is in a world.
func (w *modelWorld) vary(rng *rand.Rand) {
	v := &modelVaried{malformed: map[int]bool{}}
	w.varied = v
	few := 3 + rng.IntN(3) // one of so many is there
	for k := range varieties {
		v.has[k] = rng.IntN(few) == 0
	}
	w.varyLog(rng)
	w.varyProxies(rng)
}

// step lets something happen now and then; false: nothing did.
func (v *modelVaried) step(w *modelWorld) bool {
	if w.rng.IntN(30) > 0 {
		return false
	}
	switch r := w.rng.IntN(16); {
	case r < 8:
		w.varyLogStep()
	default:
		w.varyProxyStep()
	}
	return true
}

// TestModelVaried is TestModel with all that happens besides the ordinary. Each
// variety must have happened.
func TestModelVaried(t *testing.T) {
	s := sweep(t, "varied", schedulesOf(10_000, 1500))
	s.wants(t, Won, Taken, NotReached, Unknown, BrokerError, Retry, PredecessorRefused)
	s.wantsVarieties(t)
}

// TestModelVariedIdempotent is TestModelIdempotent with the same.
func TestModelVariedIdempotent(t *testing.T) {
	sweep(t, "varied idempotent", schedulesOf(2000, 300))
}

// TestModelVariedScarce is TestModelScarce with the same.
func TestModelVariedScarce(t *testing.T) {
	sweep(t, "varied scarce", schedulesOf(4000, 300)).wants(t, BrokerError, Failed)
}

// wantsVarieties fails the test if one of them never happened.
func (s *sum) wantsVarieties(t *testing.T) {
	t.Helper()
	var all []string
	for k, n := range s.happened {
		all = append(all, fmt.Sprintf("%s %d", varietyNames[k], n))
		if n == 0 {
			t.Errorf("never: %s", varietyNames[k])
		}
	}
	t.Log(strings.Join(all, ", "))
}

// countVaried adds up what happened in a world.
func (w *modelWorld) countVaried(happened *[varieties]int) {
	if w.varied == nil {
		return
	}
	for k, n := range w.varied.happened {
		happened[k] += n
	}
	for i := range w.cluster.replicas {
		happened[revives] += w.cluster.replicas[i].revived
	}
}

// String lists what there is.
func (v *modelVaried) String() string {
	var all []string
	for k, name := range varietyNames {
		if v.has[k] {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}
