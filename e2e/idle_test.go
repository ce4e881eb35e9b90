package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// idleBytes is what a client that does nothing may cost a proxy, its connection
	// upstream included.
	idleBytes = 48 << 10
	// openersOfIdle is how many connections are opened at once.
	openersOfIdle = 32
)

// TestIdleConnectionsCostLittle opens many connections, each of which has asked for
// something once.
func TestIdleConnectionsCostLittle(t *testing.T) {
	needsProgram(t)
	count := 1_000
	if longRuns {
		count = 10_000
	}
	// Each takes two descriptors of the proxy.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := (int(limit.Max) - 500) / 2; most < count {
		t.Logf("%d connections in the place of %d, for want of descriptors", most, count)
		count = most
	}
	p := startProgram(t, withoutRace(t), "--require", otherRule, "--log-level", "warn")
	addresses := []string{p.bootstrap}
	for _, address := range p.brokerAddresses(t) {
		addresses = append(addresses, address)
	}
	before, err := p.memory()
	if errors.Is(err, errNoMemoryFigures) {
		t.Skip(err)
	}
	conns := make([]*rawConn, count)
	var group sync.WaitGroup
	for opener := range openersOfIdle {
		group.Go(func() {
			for i := opener; i < count; i += openersOfIdle {
				conn, err := dialRaw(addresses[i%len(addresses)])
				if err == nil {
					conns[i] = conn
					_, err = conn.metadata()
				}
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	after, err := p.memory()
	if err != nil {
		t.Fatal(err)
	}
	each := (after.now - before.now) / int64(count)
	t.Logf("%d connections take %d KiB each of the proxy's memory: %d MiB in all, %d MiB at most, %d MiB before", count, each>>10, after.now>>20, after.peak>>20, before.now>>20)
	if each > idleBytes {
		t.Errorf("an idle connection takes %d bytes, want %d at most", each, idleBytes)
	}
	// They are served all the same.
	for i := 0; i < count; i += count / 20 {
		if _, err := conns[i].metadata(); err != nil {
			t.Errorf("connection %d, later: %v", i, err)
		}
	}
	for _, conn := range conns {
		if conn != nil {
			conn.close()
		}
	}
}

// withoutRace gives the program as it is used: the race detector takes memory of its
// own.
func withoutRace(t *testing.T) string {
	t.Helper()
	if !raceDetector {
		return program
	}
	path := filepath.Join(t.TempDir(), "offsetproxy")
	build := exec.Command("go", "build", "-o", path, "./cmd/offsetproxy")
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("build the program: %w\n%s", err, output))
	}
	return path
}
