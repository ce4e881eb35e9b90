//go:build (linux && (race || !(amd64 || arm64))) || darwin || freebsd

package proxy

import "syscall"

// peek is a read that leaves what it reads and does not block.
func peek(fd uintptr, b []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
