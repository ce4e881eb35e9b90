//go:build proof

package proxy

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
)

// ErrNoGuard: docs/semantics.md lists no guard by this name.
var ErrNoGuard = errors.New("no guard of this name")

// proof is what the proof build can do to the proxies of this process.
var proof struct {
	boot, wall atomic.Int64 // by how much the clocks are ahead, in ns
	missing    []string     // guards
}

// JumpClocks has the clocks of this process's proxies jump: the one that runs
// through suspend forward only, since it never goes back, and the wall clock by
// wall. It gives by how much they are ahead by now. It may be called from any
// goroutine. Go's timers do not jump, as after a suspend.
func JumpClocks(boot, wall time.Duration) (bootAhead, wallAhead time.Duration) {
	return time.Duration(proof.boot.Add(int64(max(boot, 0)))), time.Duration(proof.wall.Add(int64(wall)))
}

// WithoutGuard takes away a guard from the proxies that New makes from now on.
// It is not to be called while New runs.
func WithoutGuard(name string) error {
	if !new(fence.Config).TakeAway(name) {
		return ErrNoGuard
	}
	proof.missing = append(proof.missing, name)
	return nil
}

func clockShift() (boot, wall time.Duration) {
	return time.Duration(proof.boot.Load()), time.Duration(proof.wall.Load())
}

func takeAway(c *fence.Config) {
	for _, name := range proof.missing {
		c.TakeAway(name)
	}
}
