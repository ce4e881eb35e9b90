//go:build !linux

package proxy

import (
	"io"
	"net"
)

// fast gives the connection itself: nothing is known to cost less here.
func fast(conn net.Conn) io.ReadWriter { return conn }
