package proxy

import (
	"time"

	"golang.org/x/sys/unix"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// instant reads CLOCK_BOOTTIME: a view must not look young because the
// machine was suspended since it was read, and Go's own monotonic clock stands
// still meanwhile.
func instant() ps.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("proxy: CLOCK_BOOTTIME: " + err.Error()) // exists since Linux 2.6.39
	}
	return ps.Instant(ts.Nano())
}

func now() ps.Now {
	return ps.Now{Instant: instant(), Wall: ps.Timestamp(time.Now().UnixMilli())}
}
