package resources

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Nobody here raises the soft limit: Go does when a process begins.
func TestGoRaisesTheSoftLimit(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < limit.Max-1 {
		t.Errorf("the soft limit is %d, the hard one %d", limit.Cur, limit.Max)
	}
	if got := descriptors(); got != limit.Cur {
		t.Errorf("got %d, want %d", got, limit.Cur)
	}
}
