//go:build !linux

package proxy

import "net"

// splicer and pipes are for Linux only.
type splicer struct{}

func newSplicer(*pipes, net.Conn, net.Conn) *splicer { return nil }

func (*splicer) take(int) (int, error)      { return 0, errNoSplice }
func (*splicer) give(bool, func(int)) error { return errNoSplice }
func (*splicer) refused() bool              { return true }
func (*splicer) rest()                      {}
func (*splicer) boundWrites(writeBound)     {}

type pipes struct{}

func (*pipes) close() {}
