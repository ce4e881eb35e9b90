package proxy

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// suspendedFor makes this test binary tell the time and exit, as its own child.
const suspendedFor = "OFFSETPROXY_TEST_SUSPENDED"

// TestClockRunsThroughSuspend runs where CLOCK_BOOTTIME is a day ahead and
// CLOCK_MONOTONIC is not, as after a day of suspend: all ages must have grown by
// it.
func TestClockRunsThroughSuspend(t *testing.T) {
	const day = 24 * time.Hour
	if os.Getenv(suspendedFor) != "" {
		fmt.Printf("%d %d\n", instant(), monotonic(t))
		return
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("needs unshare of util-linux")
	}
	child := exec.CommandContext(t.Context(), unshare, "--time", "--boottime", strconv.Itoa(int(day.Seconds())),
		os.Args[0], "-test.run=^TestClockRunsThroughSuspend$", "-test.v")
	child.Env = append(os.Environ(), suspendedFor+"=1")
	output, err := child.CombinedOutput()
	if err != nil {
		t.Skipf("no clocks of one's own can be had here: %v: %s", err, output)
	}
	var after, afterMonotonic ps.Instant
	for line := range strings.Lines(string(output)) {
		if n, _ := fmt.Sscan(line, &after, &afterMonotonic); n == 2 {
			break
		}
	}
	const slack = time.Minute
	if got := after.Sub(instant()); got < day-slack || got > day+slack {
		t.Errorf("after a day of suspend the proxy's clock is %v ahead", got)
	}
	if got := afterMonotonic.Sub(monotonic(t)); got > slack {
		t.Errorf("Go's clock is %v ahead as well, so this shows nothing", got)
	}
}

// monotonic reads the clock that Go's timers and time.Since go by.
func monotonic(t *testing.T) ps.Instant {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ps.Instant(ts.Nano())
}

// What is known of a topic is as old as that clock says, and so are leader epochs
// (the prober's own test): Go's stands still in between.
func TestTopicsAgeByTheClockThatRunsThroughSuspend(t *testing.T) {
	u := newTouched(t, Config{})
	u.touch(1)
	if _, ok := u.topics.peek(touchedTopic(0)); !ok {
		t.Fatal("got nothing of a topic that was just looked up")
	}
	u.topics.now = func() ps.Instant { return instant().Add(topicAge + time.Second) }
	if _, ok := u.topics.peek(touchedTopic(0)); ok {
		t.Error("got what was known before a suspend")
	}
}
