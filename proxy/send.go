package proxy

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/offsetproxy/offsetproxy/wire"
)

// newSlot appends a slot for a request whose answer will be composed; it
// waits while MaxPendingRequests are unanswered. Only the clientLoop calls it,
// in the order of the requests. An error means that the connection is ending.
func (c *conn) newSlot(correlationID int32) (*slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pushSlotLocked(correlationID, false)
}

// sendUpstream queues a request for the coalesced write and registers the
// answer that it will get. frame is whole, with its 4 length bytes; its
// correlation id is replaced. It is either the frame being handled, or memory
// that stays untouched until flushUpstream has returned.
//
// onAnswer is called exactly once: from the upstreamLoop with the answer's
// body (all that follows the correlation id: in a flexible version the
// header's tagged fields come first), valid during the call; or with nil and
// an error that wraps errUpstreamLost, and errNotSent if surely nothing was
// written. Calls come in the order of sending. It must not block, and may
// complete slots. A nil onAnswer means that the request gets no answer
// (acks=0).
//
// Only the clientLoop calls it, or while that waits whoever drives its exchange (see
// parked). The error is that of dialling upstream; then onAnswer is not called.
func (c *conn) sendUpstream(frame []byte, onAnswer func(answer []byte, err error)) error {
	return c.sendGathered([][]byte{frame}, onAnswer)
}

// sendGathered is sendUpstream for a frame in pieces, of which the first has its
// length and its header.
func (c *conn) sendGathered(pieces [][]byte, onAnswer func(answer []byte, err error)) error {
	if err := c.openUpstream(); err != nil {
		return err
	}
	c.mu.Lock()
	id, sent := c.numberLocked()
	if onAnswer != nil {
		if c.drained {
			err := c.lostLocked(sent)
			c.mu.Unlock()
			onAnswer(nil, err)
			return nil
		}
		c.owed++
		c.moved.Broadcast() // the upstreamLoop does not wait for memory while it owes one
		c.answers.push(answer{id: id, sent: sent, onAnswer: onAnswer})
	}
	c.mu.Unlock()
	wire.SetCorrelationID(pieces[0][4:], id)
	for _, piece := range pieces {
		c.queue(piece)
	}
	return nil
}

// forward queues the frame being handled for upstream, and a slot that its
// answer fills as it comes.
func (c *conn) forward(h wire.RequestHeader) error {
	if err := c.openUpstream(); err != nil {
		return err
	}
	if err := c.renewLogin(); err != nil {
		return err
	}
	c.mu.Lock()
	s, err := c.pushSlotLocked(h.CorrelationID, true)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	id, sent := c.numberLocked()
	c.answers.push(answer{id: id, sent: sent, slot: s, key: h.APIKey, version: h.APIVersion, watch: c.watching, book: c.takeOver()})
	c.mu.Unlock()
	c.watching = nil
	wire.SetCorrelationID(c.frame[4:], id)
	c.queue(c.frame)
	return nil
}

func (c *conn) numberLocked() (id int32, sent int64) {
	c.nextID++
	c.queued++
	return c.nextID, c.queued
}

// queue adds a frame to the next write. Frames that lie one behind the other
// in the inbox become one piece.
func (c *conn) queue(frame []byte) {
	inPlace := len(frame) == len(c.frame) && &frame[0] == &c.frame[0]
	switch {
	case !inPlace:
		c.out = append(c.out, frame)
		c.outEnd = -1
	case c.outEnd == c.done:
		c.outEnd += len(frame)
		c.out[len(c.out)-1] = c.in.Bytes()[c.outStart:c.outEnd]
	default:
		c.out = append(c.out, frame)
		c.outStart, c.outEnd = c.done, c.done+len(frame)
	}
}

// flushUpstream writes what is queued, in one write. Only the clientLoop
// calls it; it must be called before the clientLoop waits for anything.
func (c *conn) flushUpstream() error {
	err := c.writeOut()
	c.flushed()
	return err
}

// flushed lets go of what was queued, and of the bytes that were handled.
func (c *conn) flushed() {
	clear(c.out)
	c.out, c.outEnd = c.out[:0], -1
	c.in.Advance(c.done)
	c.done = 0
}

// flushUpstreamNow writes what is queued as far as it goes without waiting, and
// reports whether that was all. What is left, and an error, are left to flushUpstream.
// Whoever drives the exchange of a clientLoop that waits may call it.
func (c *conn) flushUpstreamNow() bool {
	if len(c.out) != 1 {
		return len(c.out) == 0 // several pieces are worth one write
	}
	c.mu.Lock()
	if c.writeErr != nil || c.upstreamErr != nil || c.aborted {
		c.mu.Unlock()
		return false
	}
	before := c.written
	c.written = c.queued
	c.mu.Unlock()
	switch n := writeWithoutWaiting(c.up, c.upstream, c.out[0]); n {
	case len(c.out[0]):
		c.flushed()
		return true
	case 0:
		c.mu.Lock()
		c.written = before
		c.mu.Unlock()
	default:
		c.out[0], c.outEnd = c.out[0][n:], -1
	}
	return false
}

// writeWithoutWaiting writes what goes at once, and returns how much; to is conn, or a
// faster way to it.
func writeWithoutWaiting(to io.Writer, conn net.Conn, buf []byte) int {
	if s, ok := to.(interface{ writeNow([]byte) int }); ok {
		return s.writeNow(buf)
	}
	return writeNow(conn, buf)
}

func (c *conn) writeOut() error {
	// A write that failed may have ended within a frame: what came behind it would be
	// taken for the rest.
	if c.writeErr != nil || len(c.out) == 0 {
		return c.writeErr
	}
	c.mu.Lock()
	if c.upstreamErr != nil || c.aborted {
		err := c.causeLocked()
		c.mu.Unlock()
		return err
	}
	c.written = c.queued
	c.mu.Unlock()
	if err := writePieces(c.upstream, c.up, c.out); err != nil {
		// The broker may have answered before it closed; reading ends soon.
		_ = c.upstream.SetReadDeadline(time.Now().Add(closeTimeout))
		c.writeErr = fmt.Errorf("%w: write: %w", errUpstreamLost, err)
	}
	return c.writeErr
}

// openUpstream dials, the first time it is called, and starts the upstreamLoop.
func (c *conn) openUpstream() error {
	if c.upstream != nil {
		return nil
	}
	to, err := c.p.dialFor(c.ctx, c.target)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.upstream, c.node, c.openedAt, c.term = to.conn, to.node, to.openedAt, to.term
	c.up = patient(to.conn, fast(to.conn))
	aborted := c.aborted
	c.mu.Unlock()
	if aborted {
		_ = to.conn.Close()
	}
	c.wg.Go(c.upstreamLoop)
	return nil
}
