package fence

import "testing"

// TestProducerGuardsAreNeeded is TestGuardsAreNeeded for idempotent clients.
func TestProducerGuardsAreNeeded(t *testing.T) {
	for _, g := range []struct {
		name  string
		guard guard
		seed  uint64
		want  breach
	}{
		{"told", guardTold, 28, twice},
		{"tried", guardTried, 28, twice},
		{"follow", guardFollow, 28, twice},
		{"sequence", guardSequence, 64, disordered},
		{"elsewhere", guardElsewhere | guardOvertaking, 7821, disordered},
		{"chain hold", guardChainHold, 11, behindRefused},
		{"chain gap", guardChainGap, 3, behindRefused},
		{"chain identity", guardChainIdentity, 48, stored},
		{"chain unknown", guardChainUnknown, 282, unfounded},
		{"chain newest", guardChainNewest, 3343, unfounded},
		{"chain epoch", guardChainEpoch, 3032, behindRefused},
	} {
		t.Run(g.name, func(t *testing.T) { breaksWithout(t, "idempotent", g.guard, g.seed, g.want) })
	}
}
