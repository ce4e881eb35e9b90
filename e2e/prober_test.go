package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// TestProberOnKafka runs the prober's own checks against the real cluster:
// that views are pairs under load, what is listed, what survives a leader.
func TestProberOnKafka(t *testing.T) {
	requireKafka(t)
	besideOthers(t)
	check := exec.CommandContext(t.Context(), "go", "test", "-race", "-count=1", "-tags=realkafka", "-run=RealKafka", "./proxy/prober")
	check.Dir = ".."
	check.Env = append(os.Environ(), "OFFSETPROXY_KAFKA="+brokers.bootstrap)
	if output, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
