package proxy

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// All judgement goes by these readings; time.Now is for deadlines of sockets and
// the like. The proof build can have them jump.

// instant reads the clock that runs through suspend.
func instant() ps.Instant {
	boot, _ := clockShift()
	return bootTime().Add(boot)
}

// wall reads the clock that timestamps of records go by, which may jump.
func wall() time.Time {
	_, wall := clockShift()
	return time.Now().Add(wall)
}

func now() ps.Now { return ps.Now{Instant: instant(), Wall: ps.Timestamp(wall().UnixMilli())} }
