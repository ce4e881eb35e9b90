package proxy

import (
	"golang.org/x/sys/unix"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// bootTime reads CLOCK_BOOTTIME: a view must not look young because the
// machine was suspended since it was read, and Go's own monotonic clock stands
// still meanwhile.
func bootTime() ps.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("proxy: CLOCK_BOOTTIME: " + err.Error()) // exists since Linux 2.6.39
	}
	return ps.Instant(ts.Nano())
}
