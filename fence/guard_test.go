package fence

import "testing"

// TestGuardsAreNeeded takes away one guard at a time: the model must then see
// a promise broken. The search begins at a seed that is known to show it
// soon, and goes on from there should the model have changed. Guards that
// random schedules do not need have their twins in testdata (broken=…).
func TestGuardsAreNeeded(t *testing.T) {
	const schedules = 100_000
	for _, g := range []struct {
		name  string
		guard guard
		seed  uint64
		// misplaces: what is seen must be a record at another offset than the
		// promised one, not just a wrong verdict.
		misplaces bool
	}{
		{"append time", guardAppendTime, 16, false},
		{"view age", guardViewAge, 6203, true},
		{"witness", guardWitness, 13539, true},
		{"witness life", guardWitnessLife, 1_300_195_339, true},
		{"drift", guardDrift, 11375, true},
		{"arming", guardArming, 22055, true},
		{"uncommitted", guardUncommitted, 1149, false},
		{"identity", guardIdentity, 4, false},
		{"weak", guardWeak, 6, false},
	} {
		t.Run(g.name, func(t *testing.T) {
			for seed := g.seed; seed < g.seed+schedules; seed++ {
				if w, _ := runModel(seed, g.guard, true); w.failure != "" && (w.misplaced || !g.misplaces) {
					t.Logf("seed %d: %s", seed, w.failure)
					return
				}
			}
			t.Error("nothing goes wrong without this guard")
		})
	}
}
