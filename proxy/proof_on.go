//go:build proof

package proxy

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
)

// ErrNoGuard: docs/semantics.md lists no guard by this name.
var ErrNoGuard = errors.New("no guard of this name")

// proof is what the proof build can do to the proxies of this process.
var proof struct {
	missing []string // guards
	clocks  atomic.Pointer[shiftFile]
	boot    atomic.Int64 // the most that the clock that never goes back was shifted by
}

// shiftFile holds by how much the clocks are ahead, in nanoseconds: two numbers of
// 8 bytes, big-endian, first that of the clock that runs through suspend.
type shiftFile struct{ *os.File }

// JumpClocksBy has the clocks of this process's proxies be ahead by what a file
// says at the time of each reading: 8 bytes for the clock that runs through suspend
// and 8 for the wall clock, nanoseconds, big-endian. So they can jump while the
// process is frozen, as they do in a suspend. The first clock never goes back,
// whatever the file says. Go's timers do not jump. The file is open from then on.
func JumpClocksBy(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	proof.clocks.Store(&shiftFile{file})
	return nil
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
	file := proof.clocks.Load()
	if file == nil {
		return 0, 0
	}
	var shift [16]byte
	if _, err := file.ReadAt(shift[:], 0); err != nil {
		panic("proxy: how far clocks are ahead: " + err.Error())
	}
	ahead := int64(binary.BigEndian.Uint64(shift[:]))
	for most := proof.boot.Load(); most < ahead && !proof.boot.CompareAndSwap(most, ahead); {
		most = proof.boot.Load()
	}
	return time.Duration(proof.boot.Load()), time.Duration(binary.BigEndian.Uint64(shift[8:]))
}

func takeAway(c *fence.Config) {
	for _, name := range proof.missing {
		c.TakeAway(name)
	}
}
