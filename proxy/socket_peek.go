//go:build linux || darwin || freebsd

package proxy

import (
	"net"
	"syscall"
)

// peerClosed reports whether the peer has closed its side and everything it
// sent was read, or the connection was reset. It neither reads nor blocks;
// false if the connection has no socket to ask.
func peerClosed(conn net.Conn) bool {
	raw := rawConn(conn)
	if raw == nil {
		return false
	}
	closed := false
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		for {
			n, err := peek(fd, b[:])
			switch err {
			case syscall.EINTR:
				continue
			case nil:
				closed = n == 0
			case syscall.EAGAIN:
			default:
				closed = true
			}
			return
		}
	})
	return closed || err != nil
}

// writeNow writes as much as the socket takes without waiting, and returns
// how much; 0 if the connection has no socket to ask. An error is left to the
// blocking write that follows.
func writeNow(conn net.Conn, buf []byte) int {
	raw := rawConn(conn)
	if raw == nil {
		return 0
	}
	written := 0
	_ = raw.Write(func(fd uintptr) bool {
		for {
			n, err := syscall.Write(int(fd), buf)
			if err == syscall.EINTR {
				continue
			}
			written = max(0, n)
			return true
		}
	})
	return written
}

// rawConn gives the socket of a plain TCP or Unix connection. Bytes of a
// wrapped connection (TLS) mean something else than its socket's.
func rawConn(conn net.Conn) syscall.RawConn {
	switch conn := conn.(type) {
	case *net.TCPConn:
		raw, err := conn.SyscallConn()
		if err != nil {
			return nil
		}
		return raw
	case *net.UnixConn:
		raw, err := conn.SyscallConn()
		if err != nil {
			return nil
		}
		return raw
	}
	return nil
}
