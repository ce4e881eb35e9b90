package proxy

import (
	"testing"
	"time"
)

// Bounds are inclusive, what is beyond the last has a class of its own, and a clock that
// went back counts as no time.
func TestTimingClasses(t *testing.T) {
	last := len(timingBounds) - 1
	for _, c := range []struct {
		d     time.Duration
		class int
	}{
		{0, 0}, {timingBounds[0], 0}, {timingBounds[0] + 1, 1}, {time.Millisecond, 3}, {timingBounds[last], last}, {time.Hour, last + 1}, {-time.Second, 0},
	} {
		var counted timing
		counted.add(c.d)
		for i := range counted.counts {
			want := int64(0)
			if i == c.class {
				want = 1
			}
			if got := counted.counts[i].Load(); got != want {
				t.Errorf("%s: got %d in class %d, want %d", c.d, got, i, want)
			}
		}
		if got, want := time.Duration(counted.sum.Load()), max(c.d, 0); got != want {
			t.Errorf("%s: got the sum %s, want %s", c.d, got, want)
		}
	}
}

func TestTimingAllocatesNothing(t *testing.T) {
	var counted timing
	if got := testing.AllocsPerRun(100, func() { counted.add(time.Millisecond) }); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}

// TestTimingsComeInOrder: a histogram with bounds that do not ascend is none.
func TestTimingsComeInOrder(t *testing.T) {
	for i := 1; i < len(timingBounds); i++ {
		if timingBounds[i] <= timingBounds[i-1] {
			t.Errorf("bound %d is %s, after %s", i, timingBounds[i], timingBounds[i-1])
		}
	}
}
