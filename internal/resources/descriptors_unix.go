//go:build unix

package resources

import (
	"math"

	"golang.org/x/sys/unix"
)

// descriptors is the limit of descriptors; 0: it is not known, or there is none.
func descriptors() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt64 {
		return 0
	}
	return uint64(limit.Cur)
}
