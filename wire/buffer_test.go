package wire

import (
	"runtime"
	"testing"
)

func TestLargeBuffersServeWhateverTheyAreLargeEnoughFor(t *testing.T) {
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
	var s spares
	var all []*buffer // which keeps them from being collected
	give := func(n int) {
		all = append(all, &buffer{make([]byte, n)})
		s.give(all[len(all)-1])
	}
	for range 2 * spareBytes / (8 << 20) {
		give(8 << 20)
		give(1 << 20)
	}
	if s.bytes > spareBytes {
		t.Errorf("%d bytes are kept, want at most %d", s.bytes, spareBytes)
	}
	give(spareBytes + 1)
	if got := s.take(spareBytes + 1); got != nil {
		t.Error("one was kept that is above the bound by itself")
	}
	give(spareBytes)
	if got := len(s.kept); got != 1 {
		t.Errorf("%d are kept besides one of all bytes, want none", got-1)
	}
	if got := s.take(1); got != all[len(all)-1] || s.bytes != 0 {
		t.Errorf("did not get the last; %d bytes are counted, want 0", s.bytes)
	}
}

func TestSparesAreLeftToTheCollector(t *testing.T) {
	var s spares
	for range 4 {
		s.give(&buffer{make([]byte, 4<<20)})
	}
	runtime.GC()
	if got := s.take(1); got != nil {
		t.Error("one that nobody used has outlived a collection")
	}
	if s.bytes != 0 {
		t.Errorf("%d bytes are counted, want 0", s.bytes)
	}
}

// What is taken for a frame is little more than it needs.
func TestLargeBuffersFit(t *testing.T) {
	runtime.GC() // there are no spares
	for _, n := range []int{keepBytes + 1, 150_000, 1 << 18, 1<<18 + 1, 1_000_000, 5 << 20, 16_000_500, 100 << 20} {
		b := takeBuffer(n)
		if got := len(b.bytes); got < n || got > n+n/sizeSteps {
			t.Errorf("for %d bytes: got %d", n, got)
		}
		runtime.KeepAlive(b)
	}
}
