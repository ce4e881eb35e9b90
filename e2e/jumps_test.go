package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// jumpLoad is a race during which clocks jump.
var jumpLoad = load{
	name: "jumps", proxies: 2, partitions: 4, lasts: "10s",
	verify: []string{"--writers", "24"},
}

// clockJumps is what happened to clocks.
type clockJumps struct{ forwards, back, suspends int }

// jumpOn has a proxy's clocks jump until ctx ends: the wall clock to any time
// within a day and a half, the one that runs through suspend by up to a minute at a
// time, and by hours while the process is frozen for long enough for all that it
// has sent to arrive.
func jumpOn(ctx context.Context, clock clockControl, process *os.Process) (did clockJumps, err error) {
	rng := rand.New(rand.NewPCG(3, 4))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	wall := time.Duration(0)
	for n := 1; ; n++ {
		pause(ctx, between(time.Second/2, 3*time.Second/2))
		if ctx.Err() != nil {
			return did, nil
		}
		boot, to := between(time.Second, time.Minute), between(-2*time.Hour, 2*time.Hour)
		if n%4 == 0 {
			to = between(-36*time.Hour, 36*time.Hour) // where the proxy takes batches for old
		}
		suspend := n%3 == 0
		if suspend {
			did.suspends++
			boot = between(time.Hour, 30*time.Hour)
			if err := process.Signal(syscall.SIGSTOP); err != nil {
				return did, err
			}
			pause(context.WithoutCancel(ctx), 2*time.Second)
		}
		if to > wall {
			did.forwards++
		} else {
			did.back++
		}
		err := clock.jump(boot, to-wall)
		wall = to
		if suspend {
			_ = process.Signal(syscall.SIGCONT)
		}
		if err != nil {
			return did, err
		}
	}
}

// TestClocksThatJump: a proxy whose clocks jump by minutes and hours promises no
// more than it can keep. What becomes of one that does not notice a jump shows
// TestProxyThatWasSuspended.
func TestClocksThatJump(t *testing.T) {
	requireKafka(t)
	besideOthers(t)
	clock, l := newClockControl(t), jumpLoad
	l.last = []string{"--clock-control", string(clock)}
	r := l.start(t, proofProgram(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // one value
	var did clockJumps
	go func() {
		var err error
		did, err = jumpOn(ctx, clock, r.proxies[1].cmd.Process)
		ended <- err
	}()
	v := r.verify(t, "twin-none-jumps")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; %+v", v, did)
	if !v.Verified {
		t.Errorf("%d violations: %+v", v.ViolationsTotal, v.Violations[:min(5, len(v.Violations))])
	}
	if did.forwards == 0 || did.back == 0 || did.suspends == 0 {
		t.Errorf("not all jumps were made: %+v", did)
	}
	if won := r.wonThrough(t, 1); won == 0 {
		t.Error("nothing was won through the proxy whose clocks jumped, so that the run shows nothing")
	}
}

// wonThrough counts the successes that a proxy told.
func (r *twinRun) wonThrough(t *testing.T, proxy int) int {
	t.Helper()
	file, err := os.Open(r.history)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	won := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var try struct {
			Type    string `json:"type"`
			Proxy   int    `json:"proxy"`
			Outcome string `json:"outcome"`
		}
		if json.Unmarshal(lines.Bytes(), &try) == nil && try.Type == "try" && try.Proxy == proxy && try.Outcome == "ok" {
			won++
		}
	}
	return won
}
