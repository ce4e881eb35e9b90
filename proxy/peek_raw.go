//go:build linux && !race && (amd64 || arm64)

package proxy

import (
	"syscall"
	"unsafe"
)

// peek is a read that leaves what it reads and does not block. The scheduler is not
// told of it, as with socket: batches that wait for others look at their client each
// time.
func peek(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
