package fence

import "testing"

// TestVariedGuardsAreNeeded is TestGuardsAreNeeded for what only varied worlds need.
func TestVariedGuardsAreNeeded(t *testing.T) {
	for _, g := range []struct {
		name  string
		guard guard
		seed  uint64
		want  breach
	}{
		{"gone", guardGone, 10_847, twice},
	} {
		t.Run(g.name, func(t *testing.T) { breaksWithout(t, "varied", g.guard, g.seed, g.want) })
	}
}
