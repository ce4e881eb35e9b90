package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// memNet is a network in memory, for virtual time: whoever waits on it is idle
// to testing/synctest, as no one is who waits for a socket.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	lastPort  int
}

func newMemNet() *memNet { return &memNet{listeners: map[string]*memListener{}, lastPort: 50000} }

// listen is a Config.ListenFunc.
func (n *memNet) listen(_, address string) (net.Listener, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		n.lastPort++
		port = n.lastPort
	}
	at := memAddr(net.JoinHostPort(host, strconv.Itoa(port)))
	if n.listeners[string(at)] != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, syscall.EADDRINUSE)
	}
	// Dialling never waits for whoever accepts, as with a backlog.
	l := &memListener{n: n, at: at, accepted: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[string(at)] = l
	return l, nil
}

// dial is a Config.Dial.
func (n *memNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil {
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	there, back := newMemPipe(), newMemPipe()
	select {
	case l.accepted <- &memConn{in: there, out: back, local: l.at, remote: "client:1"}:
		return &memConn{in: back, out: there, local: "client:1", remote: l.at}, nil
	default:
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
}

type memListener struct {
	n        *memNet
	at       memAddr
	accepted chan net.Conn // dial sends under memNet.mu; never closed
	closed   chan struct{} // closed by Close
	once     sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close resets what was dialled and not accepted.
func (l *memListener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		delete(l.n.listeners, string(l.at))
		close(l.closed)
		for {
			select {
			case c := <-l.accepted:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.at }

type memAddr string

func (a memAddr) Network() string { return "mem" }
func (a memAddr) String() string  { return string(a) }

// memConn is one end of a connection.
type memConn struct {
	in, out       *memPipe
	local, remote memAddr
}

func (c *memConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *memConn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *memConn) LocalAddr() net.Addr         { return c.local }
func (c *memConn) RemoteAddr() net.Addr        { return c.remote }

// Close ends both directions: the peer reads what is on its way, and what it
// writes fails.
func (c *memConn) Close() error {
	c.in.end(&c.in.readerGone)
	c.out.end(&c.out.writerGone)
	return nil
}

func (c *memConn) CloseWrite() error {
	c.out.end(&c.out.writerGone)
	return nil
}

func (c *memConn) SetDeadline(at time.Time) error {
	c.in.deadline(&c.in.readBy, at)
	c.out.deadline(&c.out.writeBy, at)
	return nil
}

func (c *memConn) SetReadDeadline(at time.Time) error {
	c.in.deadline(&c.in.readBy, at)
	return nil
}

func (c *memConn) SetWriteDeadline(at time.Time) error {
	c.out.deadline(&c.out.writeBy, at)
	return nil
}

// memPipeBytes is how much a direction holds before whoever writes waits.
const memPipeBytes = 64 << 10

// memPipe is one direction of a connection.
type memPipe struct {
	mu    sync.Mutex
	moved sync.Cond // broadcast on every change
	bytes []byte

	writerGone, readerGone bool
	readBy, writeBy        memDeadline
}

// memDeadline is zero without one.
type memDeadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *memDeadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newMemPipe() *memPipe {
	p := &memPipe{}
	p.moved.L = &p.mu
	return p
}

func (p *memPipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readerGone:
			return 0, net.ErrClosed
		case p.readBy.over():
			return 0, os.ErrDeadlineExceeded
		case len(p.bytes) > 0:
			n := copy(b, p.bytes)
			p.bytes = p.bytes[n:]
			p.moved.Broadcast()
			return n, nil
		case p.writerGone:
			return 0, io.EOF
		}
		p.moved.Wait()
	}
}

func (p *memPipe) write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writerGone:
			return written, net.ErrClosed
		case p.readerGone:
			return written, syscall.EPIPE
		case p.writeBy.over():
			return written, os.ErrDeadlineExceeded
		case written == len(b):
			return written, nil
		}
		if n := min(memPipeBytes-len(p.bytes), len(b)-written); n > 0 {
			p.bytes = append(p.bytes, b[written:written+n]...)
			written += n
			p.moved.Broadcast()
			continue
		}
		p.moved.Wait()
	}
}

func (p *memPipe) end(gone *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*gone = true
	if p.readerGone {
		p.bytes = nil
	}
	for _, d := range []*memDeadline{&p.readBy, &p.writeBy} {
		if d.timer != nil && p.readerGone && p.writerGone {
			d.timer.Stop()
		}
	}
	p.moved.Broadcast()
}

func (p *memPipe) deadline(d *memDeadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.at = at
	if d.timer != nil {
		d.timer.Stop()
	}
	if !at.IsZero() {
		d.timer = time.AfterFunc(max(time.Until(at), 0), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.moved.Broadcast()
		})
	}
	p.moved.Broadcast()
}
