package e2e

import (
	"strings"
	"testing"
)

// TestTopicsThatCanLoseRecordsAreNamed once each, with the setting to change.
func TestTopicsThatCanLoseRecordsAreNamed(t *testing.T) {
	requireKafka(t)
	needsProgram(t)
	besideOthers(t)
	const line = "can lose acknowledged records"
	p := startProxy(t, "--require", "weak-*")
	admin := adminAt(t, p.bootstrap)
	for topic, tc := range map[string]struct {
		configs map[string]*string
		want    string // none: it cannot
	}{
		"weak-not":     {nil, ""},
		"weak-in-sync": {map[string]*string{"min.insync.replicas": new("1")}, "min.insync.replicas=1"},
		"weak-unclean": {map[string]*string{"unclean.leader.election.enable": new("true")}, "unclean.leader.election.enable=true"},
	} {
		createConfiguredTopic(t, admin, topic, 1, tc.configs)
		conn := dialLeader(t, p, topic)
		conn.mustTell(t, topic, encodeBatch(conditional(0, "a")), wonAt(0))
		conn.mustTell(t, topic, encodeBatch(conditional(1, "b")), wonAt(1))
		if tc.want == "" {
			continue
		}
		awaitLogged(t, p, tc.want)
		lines, _ := p.output.lines(0)
		count := 0
		for _, l := range lines {
			if strings.Contains(l, line) && strings.Contains(l, "topic="+topic) && strings.Contains(l, "level=WARN") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s: got %d warnings, want 1", topic, count)
		}
	}
	p.stop(t)
	lines, _ := p.output.lines(0)
	for _, l := range lines {
		if strings.Contains(l, line) && strings.Contains(l, "weak-not") {
			t.Errorf("got a warning of a topic that cannot: %s", l)
		}
	}
}
