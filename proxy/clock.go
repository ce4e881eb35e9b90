package proxy

import (
	"sync/atomic"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// All judgement goes by these readings; time.Now is for deadlines of sockets and
// the like. The proof build can have them jump.

// goTime, if set, has instant go by Go's clock. It is for tests in virtual time,
// in which timers go by that one alone.
var goTime atomic.Bool

// instant reads the clock that runs through suspend.
func instant() ps.Instant {
	if goTime.Load() {
		return ps.Instant(time.Now().UnixNano())
	}
	boot, _ := clockShift()
	return bootTime().Add(boot)
}

// wall reads the clock that timestamps of records go by, which may jump.
func wall() time.Time {
	_, wall := clockShift()
	return time.Now().Add(wall)
}

func now() ps.Now { return ps.Now{Instant: instant(), Wall: ps.Timestamp(wall().UnixMilli())} }
