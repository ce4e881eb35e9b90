//go:build linux && !race

package proxy

import (
	"syscall"
	"unsafe"
)

// readSocket reads into b as much as there is. b is not empty.
func readSocket(fd uintptr, b []byte) (int, syscall.Errno) { return call(syscall.SYS_READ, fd, b) }

// writeSocket writes of b as much as there is room for. b is not empty.
func writeSocket(fd uintptr, b []byte) (int, syscall.Errno) { return call(syscall.SYS_WRITE, fd, b) }

// call is one that the kernel was not interrupted in. The scheduler is not told of it;
// see socket.
func call(number, fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch err {
		case syscall.EINTR:
			continue
		case 0:
			return int(n), 0
		}
		return 0, err
	}
}
