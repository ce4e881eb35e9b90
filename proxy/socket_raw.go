//go:build linux

package proxy

import (
	"io"
	"net"
	"os"
	"syscall"
)

// socket reads and writes a TCP connection as it does itself, through the poller and
// by its deadlines, but for this: the system calls, which never block, are made
// without telling the scheduler. Told of a system call, it wakes the thread that
// looks for calls which block, if that sleeps since all was idle; in a closed loop of
// small requests it does so each time.
//
// Measured on real Kafka: a request of 200 bytes alone takes 41 µs of the proxy's
// processor time in place of 66, and half the wake-ups; 16 clients at once 22 µs a
// request in place of 30.
//
// One goroutine may read and one may write at a time.
type socket struct {
	raw syscall.RawConn

	// Steps are made once, so that they cost no allocation. They work on what is
	// beside them.
	readStep, writeStep, nowStep func(fd uintptr) bool

	room              func() []byte // not nil: gives in when there is something to read,
	park              func()        // and this takes it back when there is not
	in, out           []byte
	read, written     int
	readErr, writeErr syscall.Errno
	bound             writeBound // the zero value: writes wait for ever
}

// fast gives a reader and writer of a connection that costs less than the connection
// itself, if there is one. Closing and deadlines remain the connection's.
func fast(conn net.Conn) io.ReadWriter {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	s := &socket{raw: raw}
	s.readStep, s.writeStep, s.nowStep = s.tryRead, s.tryWriteBounded, s.tryWriteNow
	return s
}

func (s *socket) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.in = b
	return s.await()
}

// ReadWhenReady reads as wire.PatientReader says.
func (s *socket) ReadWhenReady(room func() []byte, park func()) (int, error) {
	s.room, s.park = room, park
	n, err := s.await()
	s.room, s.park = nil, nil
	return n, err
}

func (s *socket) await() (int, error) {
	err := s.raw.Read(s.readStep)
	s.in = nil
	switch {
	case err != nil:
		return 0, err
	case s.readErr != 0:
		return 0, os.NewSyscallError("read", s.readErr)
	case s.read == 0:
		return 0, io.EOF
	}
	return s.read, nil
}

// tryRead is called when there may be something to read; false: there is not.
func (s *socket) tryRead(fd uintptr) bool {
	if s.in == nil {
		s.in = s.room()
	}
	s.read, s.readErr = readSocket(fd, s.in[:min(len(s.in), callBytes)])
	if s.readErr != syscall.EAGAIN {
		return true
	}
	if s.park != nil {
		s.in = nil
		s.park()
	}
	return false
}

func (s *socket) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.out, s.written = b, 0
	err := s.raw.Write(s.writeStep)
	s.out = nil
	s.bound.done()
	if err == nil && s.writeErr != 0 {
		err = os.NewSyscallError("write", s.writeErr)
	}
	return s.written, err
}

// boundWrites bounds the writes to come.
func (s *socket) boundWrites(bound writeBound) { s.bound = bound }

// tryWriteBounded is tryWrite, before a wait.
func (s *socket) tryWriteBounded(fd uintptr) bool {
	if s.tryWrite(fd) {
		return true
	}
	s.bound.waits()
	return false
}

// tryWrite is called when the peer may take something; false: not all of it yet.
func (s *socket) tryWrite(fd uintptr) bool {
	for s.written < len(s.out) {
		var n int
		rest := s.out[s.written:]
		if n, s.writeErr = writeSocket(fd, rest[:min(len(rest), callBytes)]); s.writeErr != 0 {
			return s.writeErr != syscall.EAGAIN
		}
		if n == 0 { // of something: no kernel does so, and it might for ever
			s.writeErr = syscall.EIO
			return true
		}
		s.written += n
	}
	return true
}

// writeNow is Write, of as much as goes without waiting. An error is left to the Write
// that follows.
func (s *socket) writeNow(b []byte) int {
	s.out, s.written = b, 0
	_ = s.raw.Write(s.nowStep)
	s.out = nil
	return s.written
}

func (s *socket) tryWriteNow(fd uintptr) bool {
	s.tryWrite(fd)
	return true
}

// callBytes bounds one call, for which all else on its processor waits.
const callBytes = 256 << 10
