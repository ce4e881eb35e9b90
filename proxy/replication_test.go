package proxy

import (
	"strings"
	"testing"

	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

func TestWeakReplication(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas [][]int32
		inSync   string
		unclean  string
		want     []string // parts of the reason; none: not weak
	}{
		{"three of which two", [][]int32{{1, 2, 3}, {2, 3, 1}}, "2", "false", nil},
		{"three of which one", [][]int32{{1, 2, 3}}, "1", "false", []string{"min.insync.replicas=1"}},
		{"one, of which one", [][]int32{{1}}, "1", "false", []string{"one replica"}},
		{"one, whatever is asked", [][]int32{{1, 2, 3}, {1}}, "2", "false", []string{"one replica"}},
		{"unclean", [][]int32{{1, 2, 3}}, "2", "true", []string{"unclean.leader.election.enable=true"}},
		{"both", [][]int32{{1, 2}}, "1", "true", []string{"min.insync.replicas=1", "unclean"}},
		{"brokers that do not tell", [][]int32{nil}, "", "", nil},
	} {
		var info prober.TopicInfo
		for i, replicas := range tc.replicas {
			info.Partitions = append(info.Partitions, prober.PartitionInfo{Partition: int32(i), Replicas: replicas})
		}
		got := weakReplication(info, map[string]string{configMinInSync: tc.inSync, configUncleanElected: tc.unclean})
		if (got == "") != (tc.want == nil) {
			t.Errorf("%s: got %q", tc.name, got)
		}
		for _, part := range tc.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %q, want %q in it", tc.name, got, part)
			}
		}
	}
}

// TestWeakTopicIsToldOnce, however often it is looked up, and again when it is
// weak in another way.
func TestWeakTopicIsToldOnce(t *testing.T) {
	const line = "can lose acknowledged records"
	l := newLeader(t, "fenced", "fenced-strong")
	l.change(func() { l.topicConfigs = map[string]string{configMinInSync: "1"} })
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	for i := range int64(3) {
		wantResult(t, c.one(0, conditional(i, "x")), 0, i, "")
		r.fencing.topics.forget("fenced")
	}
	if n := r.log.count(line); n != 1 {
		t.Errorf("got %d warnings, want 1", n)
	}
	l.change(func() { l.topicConfigs[configUncleanElected] = "true" })
	wantResult(t, c.one(0, conditional(3, "x")), 0, 3, "")
	if n := r.log.count(line); n != 2 {
		t.Errorf("after another change: got %d warnings, want 2", n)
	}
	if n := r.metrics.weak.Load(); n != 1 {
		t.Errorf("got %d weak topics, want 1", n)
	}
	l.change(func() { l.topicConfigs = map[string]string{configMinInSync: "2", configUncleanElected: "false"} })
	r.fencing.topics.forget("fenced")
	wantResult(t, c.one(0, conditional(4, "x")), 0, 4, "")
	if n := r.log.count(line); n != 2 {
		t.Errorf("once it is strong: got %d warnings, want no more", n)
	}
	if n := r.metrics.weak.Load(); n != 0 {
		t.Errorf("once it is strong: got %d weak topics", n)
	}
}
