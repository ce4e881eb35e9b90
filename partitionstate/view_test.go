package partitionstate

import "testing"

func TestAligned(t *testing.T) {
	for _, c := range []struct {
		name string
		view View
		want bool
	}{
		{"no state", View{Next: 7}, true},
		{"in step", View{Next: 7, HasState: true, Sequence: 7}, true},
		{"drifted", View{Next: 7, HasState: true, Sequence: 6}, false},
		{"past 2³¹", View{Next: 1<<31 + 7, HasState: true, Sequence: 7}, true},
		{"raised epoch", View{Next: 7, HasState: true, Sequence: 7, Epoch: 1}, true},
		{"sequence 0 in a raised epoch", View{Next: 1 << 31, HasState: true, Epoch: 1}, false},
		{"the same, armed at 0", View{Next: 7, HasState: true, Epoch: 1, ArmAtZero: true}, false},
		{"armed at 0", View{Next: 7, HasState: true, Sequence: 7, ArmAtZero: true}, false},
	} {
		if got := c.view.Aligned(); got != c.want {
			t.Errorf("%s: got aligned %v, want %v", c.name, got, c.want)
		}
	}
}
