package proxy

import (
	"testing"
	"time"
)

// TestAppendsArePausedForOtherProxies: one that appends without a break leaves the
// partition to others from time to time, though it sees none. How often and for how
// long is tested in the fence.
func TestAppendsArePausedForOtherProxies(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	deadline := time.Now().Add(seamPatience)
	for at := int64(0); r.metrics.pauses.Load() < 2; at++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d pauses after %d appends", r.metrics.pauses.Load(), at)
		}
		wantResult(t, c.one(0, conditional(at, "x")), 0, at, "")
	}
}

// TestConnectionThatAlwaysLosesIsWaitedFor: it is as slow each time, so that
// another always comes first.
func TestConnectionThatAlwaysLosesIsWaitedFor(t *testing.T) {
	const rounds = 60
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	fast, slow := r.dial(), r.dial()
	wantResult(t, fast.one(0, conditional(0, "first")), 0, 0, "")
	for at := int64(1); at < rounds; at++ {
		first := fast.send(produceOf(9, -1, part{topic: "fenced", records: conditional(at, "fast")}))
		// As far away: what the fast one sent is admitted long before.
		time.Sleep(10 * time.Millisecond)
		second := slow.send(produceOf(9, -1, part{topic: "fenced", records: conditional(at, "slow")}))
		got := resultsOf(slow.expect(second, 9))[0]
		if got.Code == 0 {
			wantResult(t, resultsOf(fast.expect(first, 9))[0], 1, -1, takenMessage(at, at+1))
			return
		}
		wantResult(t, got, 1, -1, takenMessage(at, at+1))
		wantResult(t, resultsOf(fast.expect(first, 9))[0], 0, at, "")
	}
	t.Errorf("it lost %d places in a row", rounds-1)
}
