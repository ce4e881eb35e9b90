package fence

import (
	"testing"
	"time"
)

// searched is how many schedules are run to find one that needs a guard. The search
// begins at a seed that is known to show it soon, and goes on from there should the
// model have changed.
const searched = 100_000

// breaksWithout takes a guard away: a schedule must then break the promise.
func breaksWithout(t *testing.T, world string, g guard, first uint64, want breach) {
	t.Helper()
	seed, found := find(first, searched, func(seed uint64) bool {
		w := modelWorlds[world](seed, g)
		w.run()
		return w.breach == want
	})
	if !found {
		t.Errorf("without %v nothing is %s", g, want)
		return
	}
	if !testing.Verbose() {
		return
	}
	s, _ := record(world, seed, g)
	all := len(s.steps)
	s = minimise(s, time.Now().Add(time.Second))
	t.Logf("without %v, seed %d: %s\n%d of %d steps are enough:\n%s\n%s", g, seed, s.breach, len(s.steps), all, s.trace(), s.String())
}

// TestGuardsAreNeeded takes away one guard at a time: the model must then see
// a promise broken. Guards that random schedules do not need have their twins in
// testdata (broken=…).
func TestGuardsAreNeeded(t *testing.T) {
	for _, g := range []struct {
		name  string
		guard guard
		world string
		seed  uint64
		want  breach
	}{
		{"append time", guardAppendTime, "plain", 16, falseSuccess},
		{"view age", guardViewAge, "plain", 6203, misplaced},
		{"witness", guardWitness, "plain", 13539, misplaced},
		{"witness life", guardWitnessLife, "plain", 1_300_195_339, misplaced},
		{"drift", guardDrift, "plain", 11375, misplaced},
		{"arming", guardArming, "plain", 22055, misplaced},
		{"uncommitted", guardUncommitted, "plain", 1149, nextAhead},
		{"identity", guardIdentity, "plain", 4, refusedInVain},
		{"weak", guardWeak, "plain", 6, refusedUpstream},
		{"type bit", guardTypeBit, "any", 4101, anothersSuccess},
		{"read back", guardReadBack, "plain", 7, falseSuccess},
		{"high watermark", guardHighWatermark, "reading", 418, falseSuccess},
		{"per record", guardPerRecord, "plain", 4, refusedInVain},
		{"second look", guardSecondLook, "plain", 477, refusedInVain},
		{"abandon", guardAbandon, "late", 4, decidedTwice},
	} {
		t.Run(g.name, func(t *testing.T) { breaksWithout(t, g.world, g.guard, g.seed, g.want) })
	}
}
