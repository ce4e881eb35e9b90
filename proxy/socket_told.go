//go:build linux && race

package proxy

import "syscall"

// readSocket reads into b as much as there is. b is not empty. The race detector has to
// know of the calls, which then cost what they always do.
func readSocket(fd uintptr, b []byte) (int, syscall.Errno) { return told(syscall.Read, fd, b) }

// writeSocket writes of b as much as there is room for. b is not empty.
func writeSocket(fd uintptr, b []byte) (int, syscall.Errno) { return told(syscall.Write, fd, b) }

func told(call func(int, []byte) (int, error), fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, err := call(int(fd), b)
		switch errno := err.(type) {
		case nil:
			return n, 0
		case syscall.Errno:
			if errno != syscall.EINTR {
				return 0, errno
			}
		default:
			return 0, syscall.EIO // no call gives another
		}
	}
}
