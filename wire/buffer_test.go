package wire

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// collectOnlyOnDemand has no garbage collected by itself, which lets spares go, until
// the test ends.
func collectOnlyOnDemand(t *testing.T) {
	before := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

func TestLargeBuffersServeWhateverTheyAreLargeEnoughFor(t *testing.T) {
	collectOnlyOnDemand(t)
	var s spares
	small, large := &buffer{make([]byte, 200<<10)}, &buffer{make([]byte, 2<<20)}
	s.give(large)
	s.give(small)
	if got := s.take(100 << 10); got != small {
		t.Error("did not get the smallest that is large enough")
	}
	if got := s.take(100 << 10); got != large {
		t.Error("did not get what is large enough")
	}
	if got := s.take(1); got != nil {
		t.Errorf("got a buffer of %d bytes where there is none", len(got.bytes))
	}
	s.give(large)
	if got := s.take(len(large.bytes) + 1); got != nil {
		t.Errorf("got a buffer of %d bytes, which is too small", len(got.bytes))
	}
	runtime.KeepAlive(small)
}

func TestSparesAreBoundedInBytes(t *testing.T) {
	collectOnlyOnDemand(t)
	var s spares
	var last *buffer
	give := func(n int) {
		last = &buffer{make([]byte, n)}
		s.give(last)
	}
	bytes := func() int { return s.stockLocked().bytes }
	for range 2 * spareBytes / (8 << 20) {
		give(8 << 20)
		give(1 << 20)
	}
	if got := bytes(); got > spareBytes || got < spareBytes/2 {
		t.Errorf("%d bytes are kept, want at most %d", got, spareBytes)
	}
	give(spareBytes + 1)
	if got := s.take(spareBytes + 1); got != nil {
		t.Error("one was kept that is above the bound by itself")
	}
	give(spareBytes)
	if got := len(s.stockLocked().free); got != 1 {
		t.Errorf("%d are kept besides one of all bytes, want none", got-1)
	}
	if got := s.take(1); got != last || bytes() != 0 {
		t.Errorf("did not get the last; %d bytes are counted, want 0", bytes())
	}
}

// What is used again and again outlives collections; what nobody uses does not, whether
// others are used meanwhile or none.
func TestSparesThatNobodyUsesAreLetGo(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	collectOnlyOnDemand(t)
	const small, large = 1 << 20, 4 << 20
	var s spares
	s.give(&buffer{make([]byte, small)})
	s.give(&buffer{make([]byte, large)})
	for round := range 6 {
		runtime.GC()
		b := s.take(small + 1)
		if b == nil {
			t.Fatalf("after %d collections one that is used is gone", round+1)
		}
		s.give(b)
	}
	if got := s.take(1); got == nil || len(got.bytes) != large {
		t.Error("one that is not used is still there")
	}
	s.give(&buffer{make([]byte, small)})
	for range 3 {
		runtime.GC()
	}
	if got := s.take(1); got != nil {
		t.Error("something is still there though nothing was used")
	}
}

// What is taken for a frame is little more than it needs.
func TestLargeBuffersFit(t *testing.T) {
	collectOnlyOnDemand(t)
	for range 3 {
		runtime.GC() // until there are no spares
	}
	for _, n := range []int{keepBytes + 1, 150_000, 1 << 18, 1<<18 + 1, 1_000_000, 5 << 20, 16_000_500, 100 << 20} {
		b := takeBuffer(n)
		if got := len(b.bytes); got < n || got > n+n/sizeSteps {
			t.Errorf("for %d bytes: got %d", n, got)
		}
		runtime.KeepAlive(b)
	}
}
