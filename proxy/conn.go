package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

const (
	// inboxBytes is the first read buffer of either direction.
	inboxBytes = 8 << 10
	// lingerTimeout bounds how long a connection that takes no more requests
	// waits for the answers of those it took.
	lingerTimeout = 60 * time.Second
	// closeTimeout bounds how long a closed write side waits for the peer to
	// close too, so that neither side sees a reset.
	closeTimeout = time.Second
	// upstreamCloseTimeout is the same for a broker, which may be busy: a
	// reset would cost it what it has not read yet.
	upstreamCloseTimeout = 5 * time.Second
	// idleTicks is into how many parts IdleTimeout is divided for checking.
	idleTicks = 4
)

// unknownNode is the node id of a connection that is not to a known broker.
const unknownNode int32 = -1

// longAgo is a deadline that ends a blocked read at once.
var longAgo = time.Unix(1, 0)

// conn is one client connection and the upstream connection that belongs to
// it. Its clientLoop runs in serve; the upstreamLoop is started with the first
// request that needs an answer from upstream.
type conn struct {
	p        *Proxy
	entrance *entrance
	id       ps.ConnectionID
	// Set before serve reads the first request, then constant: the client's socket,
	// or TLS over it; reader and writer of it; and the broker that it wants,
	// unknownNode to bootstrap. client is replaced under mu.
	client net.Conn
	down   io.ReadWriter
	target int32
	// from is the client's address, if it is not that of client; address is what it
	// is counted by.
	from    net.Addr
	address netip.Prefix

	// ctx ends, with a cause, when upstream is lost or the connection is
	// aborted; not on a drain, during which pending requests are finished.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // upstreamLoop and flushers

	// Set by the clientLoop before the upstreamLoop starts, then constant.
	upstream net.Conn
	up       io.ReadWriter // reads and writes upstream
	node     int32         // broker that upstream goes to; unknownNode before
	openedAt ps.Instant    // upstream was open by then
	// term is of the proxy's login there for the client; the clientLoop's own.
	term loginTerm

	// The clientLoop's own, or while that waits of whoever drives its exchange; see
	// parked.
	in       *wire.Inbox
	frame    []byte   // frame being handled, with its length bytes: whole, or see coming
	done     int      // bytes at the front of in that were handled
	out      [][]byte // to be written upstream, in order
	outStart int      // where the last of out begins in in
	outEnd   int      // where it ends; −1 if it is not in in
	writeErr error    // of a write upstream that failed, after which there is none
	nextID   int32
	first    bool // no whole request was read yet
	guest    bool // users log in here, and the client has not yet
	visitor  visitor
	idle     int // idle ticks in a row
	lastSeen uint64
	// produceView and rules are scratch for the Produce request in frame.
	produceView wire.Produce
	rules       []*rule
	rights      writeRights
	// watching are the batches in frame whose answer is to be looked at.
	watching *watch
	// taken is what the Produce in frame is judged by, until somebody has taken it
	// over, and rulesFrom when that came into force which the first one was judged by.
	taken     *ruleBook
	rulesFrom ps.Instant
	// oldReads is what it may spend on batches for old offsets.
	oldReads allowance
	// waited: something was waited for since the clock was read for the Produce in
	// frame; see exchange.clock.
	waited bool
	// changed is the signal of its exchanges, of which one at a time waits.
	changed chan struct{}
	// admitted are the lanes that the Produce in frame has named.
	admitted map[*lane]struct{}
	// lookupUntil ends the readings that the request in frame waits for; zero:
	// it has not waited for any.
	lookupUntil time.Time
	coming      coming
	// arriving is of the request in frame, if that came in parts.
	arriving wire.Arriving
	// requestBytes is the memory that takeRequest took for it; 0: none.
	requestBytes int64

	// answer is scratch of the upstreamLoop's.
	answer wire.ProduceAnswer
	// resume is the upstreamLoop's own: what it has driven and not given back.
	resume *exchange

	activity atomic.Uint64 // grows with all that moves
	stopping atomic.Bool   // stopCause is set

	pending
	gathered []byte // scratch of whoever set flushing
}

func newConn(p *Proxy, client net.Conn, e *entrance, target int32) *conn {
	c := &conn{p: p, entrance: e, client: client, id: ps.ConnectionID(p.lastConn.Add(1)), target: target, node: unknownNode, first: true, guest: e.Login != nil, outEnd: -1}
	c.down = c.wayTo(client)
	c.moved.L = &c.mu
	c.changed = make(chan struct{}, 1)
	c.oldReads.perSecond = p.cfg.OldReadsPerSecond
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.in = wire.NewInbox(c.down, inboxBytes, p.cfg.MaxFrameBytes+4)
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	c.setReadDeadline(c.p.cfg.HandshakeTimeout)
	err := c.welcome()
	if err == nil {
		err = c.clientLoop()
	}
	c.report(err)
	c.finish(err)
}

// welcome does what comes before the first request.
func (c *conn) welcome() error {
	if c.entrance.ProxyProtocol != nil {
		if err := c.introduce(); err != nil {
			return err
		}
	}
	if c.entrance.TLS == nil {
		return nil
	}
	// Reads are bounded already. Who takes nothing must not hold up the handshake either.
	_ = c.client.SetWriteDeadline(time.Now().Add(c.p.cfg.HandshakeTimeout)) // an error: it is closed
	client, target, err := c.entrance.secure(c.ctx, c.client, c.target)
	_ = c.client.SetWriteDeadline(time.Time{})
	c.mu.Lock()
	c.client, c.target = client, target
	stopped := c.stopCause
	c.mu.Unlock()
	switch {
	case stopped != nil:
		return stopped
	case err != nil:
		return err
	}
	c.down = c.wayTo(client)
	c.in = wire.NewInbox(c.down, inboxBytes, c.p.cfg.MaxFrameBytes+4)
	return nil
}

// clientLoop reads requests until there is a reason to stop.
func (c *conn) clientLoop() error {
	for {
		if err := c.readFrame(); err != nil {
			return err
		}
		if err := c.handle(); err != nil {
			return err
		}
		c.done += len(c.frame)
		c.frame = nil
		c.produceView.Forget() // or it would hold the memory of a large one for as long as nothing comes
		if c.requestBytes > 0 {
			if err := c.flushUpstream(); err != nil {
				return err
			}
			c.giveRequest()
		}
		if c.coming.left > 0 {
			if err := c.passRest(); err != nil {
				return err
			}
		}
	}
}

// readFrame makes c.frame the next request, or the front of a long one that passes.
// What is queued for upstream is written before it blocks.
func (c *conn) readFrame() error {
	need, whole := 4, false
	c.arriving.Reset()
	for {
		if c.stopping.Load() {
			// Requests that are buffered already count as not read.
			return c.stopReason()
		}
		b := c.in.Bytes()[c.done:]
		if len(b) >= 4 {
			size, err := c.frameSize(b)
			if err != nil {
				return err
			}
			need = 4 + size
		}
		if whole {
			c.arriving.Look(b[4:min(need, len(b))])
		}
		if len(b) >= need && need > 4 {
			c.frame = b[:need:need]
			c.requestArrived()
			c.received(need)
			c.requestRead()
			return nil
		}
		fill, want := c.in.Fill, need
		switch {
		case whole:
			fill = c.in.FillSome
		case need > longRequest && len(b) < headBytes:
			want = headBytes
		case need > longRequest:
			if c.passes(b[4:]) {
				c.frame = b
				c.coming.left, c.coming.size = need-len(b), need
				c.received(len(b))
				return nil
			}
			if err := c.takeRequest(need); err != nil {
				return err
			}
			whole = true
			continue // to look at what is there
		}
		if err := c.flushUpstream(); err != nil {
			return err
		}
		if err := fill(want); err != nil {
			if err = c.readError(err); err != nil {
				return err
			}
		}
	}
}

// received counts bytes of requests.
func (c *conn) received(n int) {
	c.activity.Add(1)
	c.p.metrics.received(n)
}

// requestRead ends the handshake, if the request that was just read is the first.
func (c *conn) requestRead() {
	if !c.first {
		return
	}
	c.first = false
	if !c.guest {
		c.setReadDeadline(c.p.cfg.IdleTimeout / idleTicks)
	}
}

// readError turns the error of a read into the reason why the connection
// ends, or nil if it was only a tick of the idle check.
func (c *conn) readError(err error) error {
	switch {
	case c.stopping.Load():
		return c.stopReason()
	case errors.Is(err, os.ErrDeadlineExceeded) && c.first:
		return malformed(reasonHandshake, "no whole request within %s", c.p.cfg.HandshakeTimeout)
	case errors.Is(err, os.ErrDeadlineExceeded) && c.guest:
		return malformed(reasonHandshake, "no login within %s", c.p.cfg.HandshakeTimeout)
	case errors.Is(err, os.ErrDeadlineExceeded):
		if now := c.activity.Load() + uint64(len(c.in.Bytes())); now != c.lastSeen {
			c.lastSeen, c.idle = now, 0
		}
		if c.idle++; c.idle > idleTicks {
			return errIdle
		}
		c.setReadDeadline(c.p.cfg.IdleTimeout / idleTicks)
		return nil
	case c.first && (errors.Is(err, io.ErrUnexpectedEOF) || c.coming.left > 0 && errors.Is(err, io.EOF)):
		return malformed(reasonTruncated, "closed within the first request")
	}
	return errClientClosed
}

func (c *conn) stopReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopCause
}

// setReadDeadline bounds the next reads from the client; zero: no bound. A
// connection that was told to stop keeps its deadline in the past.
func (c *conn) setReadDeadline(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopCause != nil {
		return
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	// An error means that the connection is dead, which the read will say.
	_ = c.client.SetReadDeadline(at)
}

// closeAfter ends the connection in order: no further request is read; every
// request read before is answered, as far as it gets an answer; then it is
// closed. The first cause counts. It may be called from any goroutine.
func (c *conn) closeAfter(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopCause == nil {
		c.stopCause = cause
		c.stopping.Store(true)
		_ = c.client.SetReadDeadline(longAgo)
		c.moved.Broadcast()
	}
}

// abort ends the connection at once. It may be called from any goroutine.
func (c *conn) abort(cause error) {
	c.closeAfter(cause)
	c.mu.Lock()
	c.aborted = true
	c.moved.Broadcast()
	client, upstream := c.client, c.upstream
	c.mu.Unlock()
	c.cancel(cause)
	closeNow(client)
	if upstream != nil {
		closeNow(upstream)
	}
}

// abandonUpstream cuts the upstream connection, so that no late answer is
// ever taken for a timely one: every answer still owed is reported lost, what
// is complete is answered in order, and the client's connection closes. It
// may be called from any goroutine once a request was sent upstream.
func (c *conn) abandonUpstream() { closeNow(c.upstream) }

// finish ends the connection after the clientLoop. It returns when both
// sockets are closed and every goroutine of the connection is gone.
func (c *conn) finish(cause error) {
	// What was read before the end is still a request: acks=0 records sent
	// just before a client closes must not be lost.
	flushErr := c.flushUpstream()
	c.cutShort()
	c.in.Release()
	c.giveRequest()
	c.closeAfter(cause)
	gone := errors.Is(cause, errClientClosed)

	c.mu.Lock()
	if !gone {
		c.awaitLocked(lingerTimeout, c.answeredLocked)
	}
	c.awaitLocked(lingerTimeout, func() bool { return c.owed == 0 })
	aborted := c.aborted || c.timedOut
	c.mu.Unlock()

	if c.upstream != nil {
		c.endUpstream(aborted || flushErr != nil)
	}
	c.countDrained(gone)
	c.mu.Lock()
	c.closed = true
	c.clientDead = true
	c.moved.Broadcast()
	c.mu.Unlock()
	c.cancel(cause)
	switch {
	case gone || aborted:
		closeNow(c.client)
	case errors.Is(cause, errNoBroker) && !c.answeredAny():
		closeHard(c.client)
	default:
		closeGently(c.client)
	}
	c.wg.Wait()
	c.giveHeld()
}

// answeredLocked reports whether all that can be answered was answered and
// written.
func (c *conn) answeredLocked() bool {
	if c.clientDead {
		return true
	}
	return !c.flushing && (c.slots.len() == 0 || c.slots.at(0).state == slotBroken)
}

// endUpstream closes the upstream connection; gently, the broker first reads
// all that was sent.
func (c *conn) endUpstream(abort bool) {
	if abort {
		closeNow(c.upstream)
		return
	}
	if closeWrite(c.upstream) {
		c.mu.Lock()
		c.awaitLocked(upstreamCloseTimeout, func() bool { return c.upstreamErr != nil })
		c.mu.Unlock()
	}
	closeNow(c.upstream)
}

// closeNow closes a connection without a word: one in TLS would say goodbye first, and
// wait for seconds where the peer takes nothing.
func closeNow(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

// closeWrite half-closes; false if the connection cannot.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// closeHard resets a connection. It is for clients that were accepted for a
// broker that turned out to be down: to some libraries an orderly end before the
// first answer means that the broker wants TLS, which they do not retry.
func closeHard(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	closeNow(conn)
}

// closeGently closes a connection on which the peer may still be sending:
// what it sends is read and dropped for a moment, since closing over unread
// bytes resets the connection and takes the last answers with it.
func closeGently(conn net.Conn) {
	if closeWrite(conn) {
		_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 64<<20))
	}
	closeNow(conn)
}
