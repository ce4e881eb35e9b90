//go:build !linux

package proxy

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

var processStart = time.Now()

// bootTime is the time since the process started. Where it stands still while
// the machine is suspended, a machine must not be suspended with a proxy on it
// (the wall clock, which runs on, may jump for other reasons).
func bootTime() ps.Instant { return ps.Instant(time.Since(processStart)) }
