package proxy

import (
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// pipeBytes is the room of a pipe. The kernel counts it in pages, and a
	// fragment of a packet takes one however short it is.
	pipeBytes = 1 << 20
	// keptPipes is how many pipes wait for the next long answer.
	keptPipes = 16
	// wakeBytes is how much of an answer is waited for at once, at most: a wake-up
	// for each few packets costs more than to move what they bring.
	wakeBytes = 128 << 10
	// mostPipes bounds how many are in use: each may hold pipeBytes for a reader who
	// stalls, and a user without privileges is not given many more of that size.
	mostPipes = 32
)

// splicer moves bytes from one TCP connection to another within the kernel, by
// splice(2) through a pipe. The standard library does so too (io.Copy), but does
// not tell how much it took in when the other side cannot be written to any more;
// here the place in the stream is always known.
//
// Only one goroutine may use it. It holds a pipe only between take and rest.
type splicer struct {
	pipes    *pipes
	from, to syscall.RawConn
	pipe     *pipe      // nil: none taken
	filled   int        // bytes in the pipe
	wakeAt   int        // SO_RCVLOWAT of from; 0: as it was, one byte
	bound    writeBound // of to; the zero value: writes wait for ever

	// Arguments and results of the steps, which are made once so that they
	// cost no allocation.
	takeStep, giveStep func(fd uintptr) bool
	most               int
	more               bool
	moved              func(n int)
	n                  int
	err                error
}

// newSplicer returns nil if the connections cannot be spliced.
func newSplicer(pipes *pipes, to, from net.Conn) *splicer {
	source, ok := from.(*net.TCPConn)
	if !ok {
		return nil
	}
	target, ok := to.(*net.TCPConn)
	if !ok {
		return nil
	}
	s := &splicer{pipes: pipes}
	var err error
	if s.from, err = source.SyscallConn(); err != nil {
		return nil
	}
	if s.to, err = target.SyscallConn(); err != nil {
		return nil
	}
	s.takeStep, s.giveStep = s.tryTake, s.tryGive
	return s
}

// boundWrites bounds what give waits for.
func (s *splicer) boundWrites(bound writeBound) { s.bound = bound }

// take waits until there is something to read and moves up to most bytes of it into
// the pipe, which must be empty. So many bytes or more are still to come, whatever
// happens, but for the end of the stream: several may be waited for. At the end of the stream the error is io.EOF;
// errNoSplice means that nothing was read and splicing is of no use here.
func (s *splicer) take(most int) (int, error) {
	if s.pipe == nil {
		if s.pipe = s.pipes.get(); s.pipe == nil {
			return 0, errNoSplice
		}
	}
	s.most = most
	if err := s.from.Read(s.takeStep); err != nil {
		return 0, err
	}
	switch {
	case s.err == unix.EINVAL, s.err == unix.ENOSYS, s.err == unix.EPERM:
		return 0, errNoSplice
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	s.filled = s.n
	return s.n, nil
}

// tryTake is called when the source may have something to read; false: it has not.
func (s *splicer) tryTake(fd uintptr) bool {
	s.n, s.err = s.pipes.move(int(fd), s.pipe.in, s.most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if s.err != unix.EAGAIN {
		return true
	}
	// Nothing was there, so all of most is still to come. An end, or a window that
	// is full, wakes whatever is waited for.
	s.wake(int(fd), min(s.most, wakeBytes))
	return false
}

// wake has the source tell of something to read from so many bytes on.
func (s *splicer) wake(fd, bytes int) {
	if bytes == s.wakeAt {
		return
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes); err == nil {
		s.wakeAt = bytes
	}
}

// refused reports, after errNoSplice, whether that will be so again; else no pipe was
// to be had.
func (s *splicer) refused() bool { return s.pipe != nil }

// give writes all that take has moved into the pipe, and tells moved of each part
// of it that was written. more says that more is about to follow, so that a packet
// that is not full may wait for it. After an error the rest is lost.
func (s *splicer) give(more bool, moved func(n int)) error {
	s.more, s.moved = more, moved
	err := s.to.Write(s.giveStep)
	s.bound.done()
	if err != nil {
		return err
	}
	return s.err
}

// tryGive is called when the target may take something; false: not all of it yet.
func (s *splicer) tryGive(fd uintptr) bool {
	flags := unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	if s.more {
		flags |= unix.SPLICE_F_MORE
	}
	for s.filled > 0 {
		var n int
		if n, s.err = s.pipes.move(s.pipe.out, int(fd), s.filled, flags); s.err != nil {
			if s.err == unix.EAGAIN {
				s.bound.waits()
				return false
			}
			return true
		}
		if n == 0 { // out of a pipe that is not empty: no kernel does so, and it might for ever
			s.err = unix.EIO
			return true
		}
		s.filled -= n
		s.moved(n)
	}
	return true
}

// rest gives the pipe back until the next take. What is still in it is lost. From then
// on a single byte is worth telling of again.
func (s *splicer) rest() {
	if s.wakeAt > 0 {
		_ = s.from.Control(func(fd uintptr) { s.wake(int(fd), 1) }) // an error: it is closed
		s.wakeAt = 0
	}
	if s.pipe == nil {
		return
	}
	s.pipes.put(s.pipe, s.filled == 0)
	s.pipe, s.filled = nil, 0
}

// splice is one call that the kernel was not interrupted in.
func splice(from, to, most, flags int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, flags)
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

// pipe is one of the kernel's, by its file descriptors.
type pipe struct{ out, in int }

// newPipe makes one with room for so many bytes; nil if that is not to be had: a user
// who has many large pipes gets small ones, which are slower than reading.
func newPipe(bytes int) *pipe {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	p := &pipe{out: ends[0], in: ends[1]}
	if size, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, bytes); err != nil || size < bytes {
		p.close()
		return nil
	}
	return p
}

func (p *pipe) close() {
	_ = unix.Close(p.out)
	_ = unix.Close(p.in)
}

// pipes are empty ones that wait to be used. The zero value is ready; its methods
// may be called concurrently.
type pipes struct {
	// splice is a test's; nil: the kernel's.
	splice func(from, to, most, flags int) (int, error)

	mu     sync.Mutex
	free   []*pipe
	inUse  int
	closed bool
}

// get returns nil if there is none of full size to be had now.
func (p *pipes) get() *pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.inUse >= mostPipes {
		return nil
	}
	if last := len(p.free) - 1; last >= 0 {
		got := p.free[last]
		p.free = p.free[:last]
		p.inUse++
		return got
	}
	got := newPipe(pipeBytes)
	if got != nil {
		p.inUse++
	}
	return got
}

// move is splice, or what a test has in its place.
func (p *pipes) move(from, to, most, flags int) (int, error) {
	if p.splice != nil {
		return p.splice(from, to, most, flags)
	}
	return splice(from, to, most, flags)
}

// put takes a pipe back, to be used again if it is empty.
func (p *pipes) put(done *pipe, empty bool) {
	p.mu.Lock()
	p.inUse--
	keep := empty && !p.closed && len(p.free) < keptPipes
	if keep {
		p.free = append(p.free, done)
	}
	p.mu.Unlock()
	if !keep {
		done.close()
	}
}

// close closes all that are kept, and whatever is put later.
func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, one := range p.free {
		one.close()
	}
	p.free = nil
}
