package fence

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	modelSteps    = flag.Int("model.steps", 0, "random steps with faults of each model check; 0: a default by mode")
	modelSeed     = flag.Uint64("model.seed", 1, "first seed of the model checks")
	modelMinimise = flag.Bool("model.minimise", false, "have TestModel run just the schedule of model.seed and tell it in few steps")
	modelWithout  = flag.String("model.without", "", "guards to take away from what model.minimise runs, joined by +")
	modelRefind   = flag.Bool("model.refind", false, "have TestSchedules look for others in place of those that fail no more")
	modelKind     = flag.String("model.world", "any", "the world of model.minimise; see modelWorlds")
)

// modelRun is the steps with faults in one schedule.
const modelRun = 400

// sum is what a sweep comes to.
type sum struct {
	schedules, steps                  int
	faulty                            int // steps in which faults happen, of all
	kinds                             [PredecessorRefused + 1]int
	misplacements, violations, alarms int
	happened                          [varieties]int
	took                              time.Duration
}

func (s *sum) add(w *modelWorld) {
	w.countVaried(&s.happened)
	s.schedules++
	s.steps += w.steps
	if s.faulty += w.steps; w.calmAt > 0 {
		s.faulty -= w.steps - w.calmAt
	}
	for k, n := range w.kinds {
		s.kinds[k] += n
	}
	s.misplacements, s.violations, s.alarms = s.misplacements+w.misplacements, s.violations+w.violations, s.alarms+w.alarms
}

func (s *sum) String() string {
	var all []string
	for k := Won; k <= PredecessorRefused; k++ {
		all = append(all, fmt.Sprintf("%v %d", k, s.kinds[k]))
	}
	return fmt.Sprintf("%d schedules, %d steps, %d faulty; %.0f a second; verdicts: %s",
		s.schedules, s.steps, s.faulty, float64(s.steps)/s.took.Seconds(), strings.Join(all, ", "))
}

// wants fails the test if there was no verdict of some of these kinds.
func (s *sum) wants(t *testing.T, kinds ...Kind) {
	t.Helper()
	for _, k := range kinds {
		if s.kinds[k] == 0 {
			t.Errorf("no verdict %v in the whole run", k)
		}
	}
}

// schedulesOf is how many schedules a check runs: n, or a few where they are slow,
// or as many as the flag says.
func schedulesOf(n, few int) int {
	switch {
	case *modelSteps > 0:
		return max(1, *modelSteps/modelRun)
	case raceEnabled || testing.Short():
		return few
	}
	return n
}

// sweep runs so many schedules of a world, one seed after the other, on all cores.
// Of those that fail, the one with the least seed is reported.
func sweep(t *testing.T, world string, schedules int) *sum {
	t.Helper()
	s := &sum{}
	begun := time.Now()
	var mu sync.Mutex
	if seed, failed := find(*modelSeed, schedules, func(seed uint64) bool {
		w := modelWorlds[world](seed, 0)
		w.run()
		mu.Lock()
		defer mu.Unlock()
		s.add(w)
		return w.failure != ""
	}); failed {
		fails(t, world, seed, 0)
	}
	s.took = time.Since(begun)
	t.Logf("world %s: %v", world, s)
	return s
}

// find is the least of n seeds, from first on, that hits, asked on all cores.
func find(first uint64, n int, hits func(seed uint64) bool) (seed uint64, found bool) {
	var next, least atomic.Uint64
	end := first + uint64(n)
	next.Store(first)
	least.Store(end)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= least.Load() {
					return
				}
				if !hits(seed) {
					continue
				}
				for old := least.Load(); seed < old && !least.CompareAndSwap(old, seed); old = least.Load() {
				}
			}
		})
	}
	all.Wait()
	return least.Load(), least.Load() < end
}
