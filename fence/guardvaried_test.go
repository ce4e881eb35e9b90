package fence

import "testing"

// TestVariedGuardsAreNeeded is TestGuardsAreNeeded for what only varied worlds need.
func TestVariedGuardsAreNeeded(t *testing.T) {
	for _, g := range []struct {
		name  string
		guard guard
		world string
		seed  uint64
		want  breach
	}{
		{"gone", guardGone, "varied", 10_847, twice},
		{"gone behind a refused one", guardGone, "varied idempotent", 697, stored},
		{"drift in a raised epoch", guardDrift, "varied scarce", 3306, misplaced},
	} {
		t.Run(g.name, func(t *testing.T) { breaksWithout(t, g.world, g.guard, g.seed, g.want) })
	}
}
