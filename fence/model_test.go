package fence

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	modelSteps = flag.Int("model.steps", 0, "random steps of each model check; 0: a default by mode")
	modelSeed  = flag.Uint64("model.seed", 1, "first seed of the model check")
)

const modelRun = 400 // steps with faults in one schedule

// runModel runs one schedule; what failed is in the world it returns.
func runModel(seed uint64, broken guard, plain bool) (w *modelWorld, steps int) {
	w = newModelWorld(seed, broken, plain)
	return w, w.run()
}

func (w *modelWorld) run() int {
	for i := range modelRun {
		if w.step(); w.failure != "" {
			return i
		}
	}
	w.settleDown()
	return modelRun
}

// explain runs a schedule again and keeps its last lines.
func (w *modelWorld) explain() string {
	var lines []string
	start := w.now
	w.traced = true
	w.trace = func(format string, args ...any) {
		if len(lines) >= 60 {
			lines = lines[1:]
		}
		lines = append(lines, fmt.Sprintf("%9.3f ", w.now.Sub(start).Seconds())+fmt.Sprintf(format, args...))
	}
	w.run()
	return strings.Join(lines, "\n") + "\n=> " + w.failure
}

// TestModel lets the partition machines of several proxies write to a model
// cluster under random faults and checks every verdict against the log.
func TestModel(t *testing.T) {
	steps := *modelSteps
	if steps == 0 {
		steps = 1_200_000
		if raceEnabled || testing.Short() {
			steps = 150_000
		}
	}
	begun := time.Now()
	done := 0
	var kinds [PredecessorRefused + 1]int
	for seed := *modelSeed; done < steps; seed++ {
		w, n := runModel(seed, 0, false)
		done += n + 1
		for k, c := range w.kinds {
			kinds[k] += c
		}
		if w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, newModelWorld(seed, 0, false).explain())
		}
	}
	var all []string
	for k := Won; k <= PredecessorRefused; k++ {
		all = append(all, fmt.Sprintf("%v %d", k, kinds[k]))
	}
	t.Logf("%d steps, %.0f a second; verdicts: %s", done, float64(done)/time.Since(begun).Seconds(), strings.Join(all, ", "))
	for _, k := range []Kind{Won, Taken, NotReached, Unknown, BrokerError, Retry, PredecessorRefused} {
		if kinds[k] == 0 {
			t.Errorf("no verdict %v in the whole run", k)
		}
	}
}

// TestModelScarce lets brokers refuse batches in so many words while other
// copies of them are open, and lets records be unreadable. Definite as such an
// answer is, it says nothing of the copies.
func TestModelScarce(t *testing.T) {
	schedules := uint64(3000)
	if raceEnabled || testing.Short() {
		schedules = 300
	}
	if *modelSteps > 0 {
		schedules = uint64(*modelSteps / modelRun)
	}
	refused, failed := 0, 0
	for seed := range schedules {
		w := newModelWorld(seed, 0, false)
		w.makeScarce(seed)
		if w.run(); w.failure != "" {
			t.Fatalf("seed %d: %s", seed, w.failure)
		}
		refused += w.kinds[BrokerError]
		failed += w.kinds[Failed]
	}
	if refused == 0 || failed == 0 {
		t.Errorf("got %d refused by brokers and %d failed, want some of each", refused, failed)
	}
}

// TestModelBypassed lets plain producers write too: records may then end up
// elsewhere than promised, but what clients are told stays true, everything
// ends, and it shows.
func TestModelBypassed(t *testing.T) {
	schedules := uint64(1000)
	if raceEnabled || testing.Short() {
		schedules = 200
	}
	var misplaced, violations, alarms int
	for seed := range schedules {
		w := newModelWorld(seed, 0, false)
		w.bypassed = true
		if w.run(); w.failure != "" {
			t.Fatalf("seed %d: %s", seed, w.failure)
		}
		misplaced, violations, alarms = misplaced+w.misplacements, violations+w.violations, alarms+w.alarms
	}
	t.Logf("%d records misplaced, %d violations told, %d alarms", misplaced, violations, alarms)
	if misplaced == 0 || violations == 0 || alarms == 0 {
		t.Error("nothing of the bypassing shows")
	}
}
