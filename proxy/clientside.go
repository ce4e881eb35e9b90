package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// remote is where the client is, for logs.
func (c *conn) remote() string { return c.remoteAddr().String() }

func (c *conn) remoteAddr() net.Addr {
	if c.from != nil {
		return c.from
	}
	return c.client.RemoteAddr()
}

// writeBound ends a write to a client that takes nothing for as long as its patience,
// which begins anew whenever something was taken.
type writeBound struct {
	conn     net.Conn
	patience time.Duration
	set      bool
}

// waits is called whenever no more can be written now.
func (b *writeBound) waits() {
	if b.patience > 0 {
		b.set = true
		_ = b.conn.SetWriteDeadline(time.Now().Add(b.patience)) // an error: it is closed
	}
}

// done is called when the write has ended.
func (b *writeBound) done() {
	if b.set {
		b.set = false
		_ = b.conn.SetWriteDeadline(time.Time{})
	}
}

// wayTo gives reader and writer of a client. Writes end with os.ErrDeadlineExceeded
// when it takes nothing for WriteTimeout.
func (c *conn) wayTo(client net.Conn) io.ReadWriter {
	way, bound := fast(client), writeBound{conn: client, patience: c.p.cfg.WriteTimeout}
	if s, ok := way.(interface{ boundWrites(writeBound) }); ok {
		s.boundWrites(bound)
		return way
	}
	return patient(client, &boundedConn{client, bound})
}

// boundedChunk is what a client may take at least of within its patience, where
// progress within a write is not seen.
const boundedChunk = 64 << 10

// boundedConn bounds writes to a connection that cannot tell of its progress, such as
// one in TLS.
type boundedConn struct {
	net.Conn
	bound writeBound
}

func (b *boundedConn) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		b.bound.waits()
		var written int
		written, err = b.Conn.Write(p[n:min(len(p), n+boundedChunk)])
		n += written
	}
	b.bound.done()
	return n, err
}

// writeClient writes to the client, blocking. Only the owner of the slot at
// the front may call it.
func (c *conn) writeClient(buf []byte) {
	c.mu.Lock()
	dead := c.clientDead
	c.mu.Unlock()
	if dead {
		return
	}
	if _, err := c.down.Write(buf); err != nil {
		c.writeFailed(err)
		return
	}
	c.answered(len(buf))
}

// answered counts what was written to the client.
func (c *conn) answered(n int) {
	c.activity.Add(1)
	c.p.metrics.answered(n)
}

// gone reports whether nothing is written to the client any more.
func (c *conn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientDead
}

// writeClientNow writes what the socket takes without blocking.
func (c *conn) writeClientNow(buf []byte) int {
	c.mu.Lock()
	dead := c.clientDead
	c.mu.Unlock()
	if dead {
		return len(buf)
	}
	n := writeWithoutWaiting(c.down, c.client, buf)
	c.p.metrics.answered(n)
	return n
}

// writeFailed notes that the client cannot be written to, and says so if it is
// because it takes nothing.
func (c *conn) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.p.metrics.limit(limitWrite, "remote", c.remote())
	}
	c.clientLost()
}

// clientLost notes that the client cannot be written to. Answers still owed
// upstream are awaited, so that their fate is known, and dropped.
func (c *conn) clientLost() {
	c.mu.Lock()
	c.clientDead = true
	c.moved.Broadcast()
	c.mu.Unlock()
	c.closeAfter(errClientClosed)
}

// clientGone reports whether the client has closed its side, without reading
// or blocking; false where the socket cannot be asked (TLS, pipes). It may be
// called from any goroutine.
func (c *conn) clientGone() bool {
	c.mu.Lock()
	dead := c.clientDead
	c.mu.Unlock()
	return dead || peerClosed(c.client)
}
