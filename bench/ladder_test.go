package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestLadderOnSeveralBrokers: writers send to the leader of each partition.
func TestLadderOnSeveralBrokers(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(ladderBrokers), kfake.SeedTopics(1, "seed"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	direct := &target{name: "direct", address: c.ListenAddrs()[0], everywhere: true}
	r := &run{targets: []*target{direct, {name: "fenced", address: direct.address, everywhere: true, conditional: true}},
		seconds: 20 * time.Millisecond, prefix: "bench", log: t.Logf}
	rungs := []rung{{writers: 2, partitions: 1, records: 3}, {writers: 2, partitions: 7, records: 3}}
	var taken []measured
	for _, g := range rungs {
		m, err := take(t.Context(), r, g.measure(), 1)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, m)
	}
	var table strings.Builder
	writeLadder(&table, rungs, taken)
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[3], "| 2 | 7 | 3 | ") || strings.Count(lines[3], "|") != strings.Count(lines[0], "|") {
		t.Errorf("got the table\n%s", table.String())
	}
}

func TestRungsOfTheLadder(t *testing.T) {
	c := &ladderCmd{Writers: []int{1, 4}, Partitions: []int32{1, 100}, Records: []int{1, 10, 100}, Rounds: 1, Seconds: 1}
	rungs, err := c.rungs()
	if err != nil || len(rungs) != 12 {
		t.Errorf("got %d rungs, %v, want 12", len(rungs), err)
	}
	for _, g := range rungs {
		if got, want := g.habit() == ending, g.partitions == 1 && g.writers > 1; got != want {
			t.Errorf("%s: writers say end: %t, want %t", g.name(), got, want)
		}
	}
	c.Writers = []int{0}
	if _, err := c.rungs(); err == nil {
		t.Error("0 writers are no error")
	}
}

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 7.4: "7", 999: "999", 1234: "1,230", 98765: "98,800", 1234567: "1,230,000"} {
		if got := thousands(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}
