package prober

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange is a group of requests that stand together on the wire, and their
// answers.
type exchange struct {
	requests []kmsg.Request
	// answers are frames without length and correlation id, one for each
	// request; written by the read loop before done is closed.
	answers [][]byte
	// done is closed by the read loop with the last answer. It stays open if
	// the connection dies first.
	done chan struct{}
	// abandoned is set by the caller when it no longer waits.
	abandoned atomic.Bool
	// tooLarge is set by the read loop before it ends the connection because of
	// the size of an answer to one of the requests.
	tooLarge atomic.Bool
}

// pendingAnswer is a request on the wire.
type pendingAnswer struct {
	exchange    *exchange
	index       int
	correlation int32
}

// conn is one control connection: a loop that writes exchanges, a loop that
// reads answers. It dies of the first error and is not used again.
type conn struct {
	node     int32
	nc       net.Conn
	format   *kmsg.RequestFormatter
	log      *slog.Logger
	maxFrame int
	timeout  time.Duration
	frame    []byte // the write loop's, reused
	// versions has the range of each API key; set by negotiate, then constant.
	versions map[int16]versionRange
	// session is its number in the Pool, from 1 on.
	session Session
	// assumed is how the broker deals with producer ids; nil: not known.
	assumed atomic.Pointer[assumption]
	// useUntil is when it stops taking calls; zero: never.
	useUntil time.Time

	maxWaiting int64
	waiting    atomic.Int64
	// tokens holds one element for each exchange from its entry into queue
	// until its last answer. Callers send; the loops receive.
	tokens chan struct{}
	// queue takes exchanges from callers to the write loop. As long as tokens
	// (its capacity), so that a caller with a token never blocks. Never closed.
	queue chan *exchange
	// dead is closed by fail, after err is set.
	dead chan struct{}

	mu              sync.Mutex
	err             error
	nextCorrelation int32
	pending         []pendingAnswer // in the order of the wire
}

func newConn(node int32, nc net.Conn, session Session, cfg Config) *conn {
	var useUntil time.Time
	if lasting, ok := nc.(interface{ UseUntil() time.Time }); ok {
		useUntil = lasting.UseUntil()
	}
	return &conn{
		session:    session,
		useUntil:   useUntil,
		node:       node,
		nc:         nc,
		format:     kmsg.NewRequestFormatter(kmsg.FormatterClientID(cfg.ClientID)),
		log:        cfg.Logger,
		maxFrame:   cfg.MaxFrame,
		timeout:    cfg.RequestTimeout,
		maxWaiting: int64(cfg.MaxWaiting),
		tokens:     make(chan struct{}, cfg.MaxInFlight),
		queue:      make(chan *exchange, cfg.MaxInFlight),
		dead:       make(chan struct{}),
	}
}

// roundTrip writes the requests contiguously and waits for all their answers.
// The versions of the requests must be set. When ctx ends it returns at once;
// requests that are not written yet then never are, those that are have their
// answers dropped, and the connection goes on.
func (c *conn) roundTrip(ctx context.Context, requests ...kmsg.Request) ([][]byte, error) {
	if c.waiting.Add(1) > c.maxWaiting {
		c.waiting.Add(-1)
		return nil, ErrBusy
	}
	defer c.waiting.Add(-1)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case c.tokens <- struct{}{}:
	case <-c.dead:
		return nil, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	x := &exchange{requests: requests, answers: make([][]byte, len(requests)), done: make(chan struct{})}
	c.queue <- x
	select {
	case <-x.done:
		return x.answers, nil
	case <-c.dead:
		select {
		case <-x.done: // the answers came before the end
			return x.answers, nil
		default:
		}
		if x.tooLarge.Load() {
			return nil, fmt.Errorf("%w: %w", ErrAnswerTooLarge, c.err)
		}
		return nil, c.err
	case <-ctx.Done():
		x.abandoned.Store(true)
		return nil, context.Cause(ctx)
	}
}

// fail closes the connection; err is what every call on it gets from now on.
// Only the first error counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.dead)
	}
	c.mu.Unlock()
	if first {
		_ = c.nc.Close() // nothing is to be flushed
		if !errors.Is(err, ErrClosed) {
			c.log.Debug("control connection closed", "node", c.node, "err", err)
		}
	}
}

// broken fails the connection with a cause below ErrUnreachable and returns
// the error it died of.
func (c *conn) broken(op string, cause error) error {
	c.fail(fmt.Errorf("%s broker %d: %w: %w", op, c.node, ErrUnreachable, cause))
	<-c.dead
	return c.err
}

// retire closes a connection that takes no calls any more, once what it has on
// the wire must have been answered.
func (c *conn) retire(ctx context.Context) {
	timer := time.NewTimer(2 * c.timeout) // a call may wait for its turn first
	defer timer.Stop()
	select {
	case <-timer.C:
		if c.waiting.Load() == 0 {
			c.fail(ErrClosed) // nobody is told
		} else {
			_ = c.broken("read from", errExpired)
		}
	case <-ctx.Done():
		c.fail(ErrClosed)
	case <-c.dead:
	}
}

// assumption is what views of a broker are made by.
type assumption struct {
	source    StateSource
	armAtZero bool
}

func (c *conn) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// maxWrite is where writeLoop stops gathering exchanges into one write, in
// bytes.
const maxWrite = 32 << 10

// writeLoop writes exchanges until the connection dies. Whatever waits in the
// queue goes out in one write.
func (c *conn) writeLoop() {
	var buf []byte
	for {
		select {
		case <-c.dead:
			return
		case x := <-c.queue:
			buf = c.register(buf[:0], x)
		}
	gather:
		for len(buf) < maxWrite {
			select {
			case x := <-c.queue:
				buf = c.register(buf, x)
			default:
				break gather
			}
		}
		if len(buf) == 0 {
			continue
		}
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			_ = c.broken("write to", err)
			return
		}
		if _, err := c.nc.Write(buf); err != nil {
			_ = c.broken("write to", err)
			return
		}
	}
}

// register appends an exchange's frames and expects their answers. An
// exchange that its caller has given up is passed over.
func (c *conn) register(buf []byte, x *exchange) []byte {
	if x.abandoned.Load() {
		<-c.tokens
		return buf
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range x.requests {
		// AppendRequest writes the length to the start of what it is given.
		c.frame = c.format.AppendRequest(c.frame[:0], r, c.nextCorrelation)
		buf = append(buf, c.frame...)
		c.pending = append(c.pending, pendingAnswer{x, i, c.nextCorrelation})
		c.nextCorrelation++
	}
	if len(c.pending) == len(x.requests) { // the read loop had nothing to wait for
		c.setReadDeadlineLocked()
	}
	return buf
}

// setReadDeadlineLocked lets the read loop wait for the oldest pending answer as
// long as that may take from now on, or for ever if none is pending: what a
// broker has not come to yet is not late.
func (c *conn) setReadDeadlineLocked() {
	var deadline time.Time
	if len(c.pending) > 0 {
		deadline = time.Now().Add(c.timeout)
	}
	// It fails only on a closed connection, where the next Read fails too.
	_ = c.nc.SetReadDeadline(deadline)
}

// readLoop hands answers to their exchanges until the connection dies.
func (c *conn) readLoop() {
	r := bufio.NewReaderSize(c.nc, 8<<10)
	for {
		frame, err := readFrame(r, c.maxFrame)
		if errors.Is(err, errFrameTooLarge) {
			c.blame()
		}
		if err != nil {
			_ = c.broken("read from", err)
			return
		}
		if err := c.deliver(frame); err != nil {
			_ = c.broken("read from", err)
			return
		}
	}
}

// blame marks the exchange whose answer is too large to be read.
func (c *conn) blame() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 {
		c.pending[0].exchange.tooLarge.Store(true)
	}
}

// deliver gives a frame to the oldest pending request, whose it must be:
// brokers answer in order.
func (c *conn) deliver(frame []byte) error {
	correlation := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	if len(c.pending) == 0 || c.pending[0].correlation != correlation {
		c.mu.Unlock()
		return fmt.Errorf("%w: unexpected correlation id %d", errMalformed, correlation)
	}
	p := c.pending[0]
	c.pending[0] = pendingAnswer{} // let go of the exchange
	c.pending = c.pending[1:]
	c.setReadDeadlineLocked()
	c.mu.Unlock()
	p.exchange.answers[p.index] = frame[4:]
	if p.index == len(p.exchange.answers)-1 {
		close(p.exchange.done)
		<-c.tokens
	}
	return nil
}

// readFrame reads one length-prefixed answer of 4 to max bytes. Memory grows
// with what arrives, not with the length that is announced.
func readFrame(r io.Reader, max int) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(prefix[:])))
	switch {
	case size > int64(max):
		return nil, fmt.Errorf("%w: %d bytes, at most %d are taken", errFrameTooLarge, size, max)
	case size < 4:
		return nil, fmt.Errorf("%w: frame of %d bytes", errMalformed, size)
	}
	var frame bytes.Buffer
	frame.Grow(int(min(size, 4<<10)))
	if _, err := io.CopyN(&frame, r, size); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return frame.Bytes(), nil
}
