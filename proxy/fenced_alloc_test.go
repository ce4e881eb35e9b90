package proxy

import (
	"fmt"
	"testing"

	"github.com/offsetproxy/offsetproxy/fence"
)

// What a fenced Produce allocates, all in all: of one partition the exchange with
// all that belongs to it, the slot and what waits for the broker's answer; of more,
// a share of slices that all of them have in common, and no more for more records
// than the slice of their digests. Without the race detector, which allocates too.
func TestFencedProduceAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	was := fairness
	fairness = fence.Fairness{} // a pause has a view be read
	defer func() { fairness = was }()
	for _, c := range []struct{ partitions, records, most int }{
		{1, 1, 3}, {1, 4, 3}, {1, 5, 4}, {1, 100, 4},
		// Memories of records, and buffers of long requests, grow all the while.
		{250, 1, 40}, {250, 2, 40}, {250, 10, 80},
	} {
		t.Run(fmt.Sprintf("%d partitions, %d records", c.partitions, c.records), func(t *testing.T) {
			q := newQuickLeader(t, c.partitions, "fenced")
			r := startFenced(t, Config{Bootstrap: []string{q.server.Addr()}})
			w := newQuickWriter(t, r.Addr(), "fenced", 0, c.partitions, c.records)
			for range 100 { // buffers and memories grow at first
				w.round()
			}
			got := testing.AllocsPerRun(200, w.round)
			t.Logf("%v allocations", got)
			if got > float64(c.most) {
				t.Errorf("got %v allocations, want at most %d", got, c.most)
			}
		})
	}
}
