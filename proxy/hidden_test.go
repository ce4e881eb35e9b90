package proxy

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// What hides a broker is told when it begins, when it changes, and of what somebody has
// to free once a minute.
func TestHiddenBrokersAreLoggedNowAndThen(t *testing.T) {
	all, way := hidings{}, doorway{node: 2}
	inUse := failedHiding("b:1", 9095, fmt.Errorf("listen: %w", syscall.EADDRINUSE))
	other := failedHiding("b:1", 9095, errors.New("no right"))
	noPort := hiding{reason: hiddenNoPort, upstream: "b:1"}
	for i, step := range []struct {
		of   hiding
		at   time.Duration
		want bool
	}{
		{inUse, 0, true}, {inUse, time.Second, false}, {inUse, 59 * time.Second, false}, {inUse, time.Minute, true}, {inUse, 61 * time.Second, false},
		{other, 62 * time.Second, true}, {noPort, 63 * time.Second, true}, {noPort, time.Hour, false},
	} {
		if got := all.note(way, step.of, ps.Instant(step.at)); got != step.want {
			t.Errorf("step %d: told the log %v, want %v", i, got, step.want)
		}
	}
	for of, want := range map[*hiding]string{
		&inUse:  "port 9095 is in use by another program: free the port, or choose other broker_ports",
		&other:  "port 9095 cannot be listened on (no right): choose other broker_ports",
		&noPort: "its node id has no port: widen broker_ports, or give the node a port in node_ports",
	} {
		if got := of.why(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
