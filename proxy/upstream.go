package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/offsetproxy/offsetproxy/wire"
)

// streamBytes is how wide reads are while an answer longer than the buffer is
// streamed.
const streamBytes = 128 << 10

// How the rest of a long answer is moved within the kernel, where it can.
const (
	// spliceMin is the least that must be still to come. Below it the read and the
	// write that would be saved do not pay for the pipe.
	spliceMin = 64 << 10
	// spliceBytes bounds what is moved at once, and with it what waits in the kernel
	// for a client that does not read.
	spliceBytes = 1 << 20
)

// downlink is the upstreamLoop's state: answers on their way to the client.
type downlink struct {
	c  *conn
	in *wire.Inbox
	// ready bytes at the front of in are answers in claimed slots, with the
	// clients' correlation ids, waiting for one write.
	ready int
	// splicer is nil where the two connections cannot be spliced.
	splicer *splicer
	// spliced counts what was moved to the client; made once, for the splicer.
	spliced func(n int)
	// taken is the memory that the answer at hand has; see takeWhole.
	taken int64
}

// upstreamLoop reads answers until the upstream connection ends.
func (c *conn) upstreamLoop() {
	d := &downlink{c: c, in: wire.NewInbox(c.up, inboxBytes, c.p.cfg.MaxRewrittenBytes+4)}
	d.splicer = newSplicer(&c.p.pipes, c.client, c.upstream)
	d.spliced = c.answered
	if d.splicer != nil {
		d.splicer.boundWrites(writeBound{conn: c.client, patience: c.p.cfg.WriteTimeout})
	}
	err := d.relay()
	d.giveWhole()
	d.flush()
	if errors.Is(err, errAnswer) || errors.Is(err, errAnswerTooLarge) {
		c.p.cfg.Logger.Error("upstream answer not understood, closing",
			"node", c.node, "remote", c.remote(), "err", err)
	}
	closeNow(c.upstream)
	if !errors.Is(err, errUpstreamLost) {
		err = fmt.Errorf("%w: %w", errUpstreamLost, err)
	}
	c.upstreamEnded(err)
	d.in.Release()
}

func (d *downlink) relay() error {
	for {
		b := d.in.Bytes()[d.ready:]
		if len(b) < 8 {
			d.flush()
			if err := d.in.Fill(8); err != nil {
				return err
			}
			continue
		}
		size := int(int32(binary.BigEndian.Uint32(b)))
		if size < 4 {
			return fmt.Errorf("%w: length %d", errAnswer, size)
		}
		a, err := d.c.takeAnswer(wire.CorrelationID(b[4:]))
		if err != nil {
			return err
		}
		total := 4 + size
		if a.watch != nil {
			if err := d.show(a, total); err != nil {
				d.lose(a)
				return err
			}
		}
		switch {
		case a.onAnswer != nil:
			err = d.hand(a, total)
		case bearsAddresses(a.key, a.version):
			err = d.rewrite(a, total)
		default:
			err = d.pass(a, total)
		}
		if err != nil {
			return err
		}
		d.giveWhole()
	}
}

// whole makes the next answer contiguous.
func (d *downlink) whole(total int) ([]byte, error) {
	if total-4 > d.c.p.cfg.MaxRewrittenBytes {
		d.c.p.metrics.limit(limitRewritten, "remote", d.c.remote(), "bytes", total)
		return nil, fmt.Errorf("%w: %d bytes", errAnswerTooLarge, total)
	}
	if len(d.in.Bytes())-d.ready < total {
		d.flush()
		if err := d.takeWhole(total, 1); err != nil {
			return nil, err
		}
		if err := d.fillWhole(total); err != nil {
			return nil, err
		}
	}
	return d.in.Bytes()[d.ready : d.ready+total], nil
}

// hand gives an answer to whoever asked for it.
func (d *downlink) hand(a answer, total int) error {
	frame, err := d.whole(total)
	if err != nil {
		// Off the queue already, so upstreamEnded does not know of it.
		a.onAnswer(nil, fmt.Errorf("%w: %w", errUpstreamLost, err))
		d.c.settle()
		return err
	}
	d.c.mu.Lock()
	d.c.loopWillFlush = true
	d.c.mu.Unlock()
	a.onAnswer(frame[8:], nil)
	d.c.settle()
	d.skip(total)
	return nil
}

// show lets who watches an answer see it; it goes its way all the same. One too
// long to be whole is only streamed.
func (d *downlink) show(a answer, total int) error {
	if total-4 > d.c.p.cfg.MaxRewrittenBytes {
		a.watch.lost()
		return nil
	}
	frame, err := d.whole(total)
	if err != nil {
		a.watch.lost()
		return err
	}
	a.watch.answered(frame[8:])
	return nil
}

// rewrite replaces addresses in an answer; one without any passes.
func (d *downlink) rewrite(a answer, total int) error {
	if total-4 <= d.c.p.cfg.MaxRewrittenBytes {
		if err := d.takeWhole(total, 2); err != nil { // and the one in its place
			d.lose(a)
			return err
		}
	}
	frame, err := d.whole(total)
	if err != nil {
		d.lose(a)
		return err
	}
	rewritten, err := d.c.p.rewriteAnswer(d.c.entrance, a.key, a.version, frame)
	if err != nil {
		d.lose(a)
		return fmt.Errorf("%w: api key %d version %d: %w", errAnswer, a.key, a.version, err)
	}
	if rewritten == nil {
		return d.pass(a, total)
	}
	d.c.p.metrics.rewrote(a.key)
	d.skip(total)
	return d.hold(a, rewritten)
}

// lose marks the slot of an answer that was taken off the queue and is not to
// be had.
func (d *downlink) lose(a answer) {
	d.c.mu.Lock()
	a.slot.state = slotBroken
	d.c.mu.Unlock()
}

// pass relays an answer unchanged: in place if it is its turn, else from a
// copy that waits for it.
func (d *downlink) pass(a answer, total int) error {
	c := d.c
	claimed, aside := c.claim(a.slot, total)
	if !claimed && !aside {
		// Done slots before it may only need to be written.
		d.flush()
		claimed, _ = c.claim(a.slot, total)
	}
	if claimed {
		return d.claimed(a, total)
	}
	if !c.mayHold(total) {
		c.p.metrics.limit(limitHeld, "remote", c.remote(), "bytes", total)
		d.flush()
		if err := c.awaitClaim(a.slot); err != nil {
			d.lose(a)
			return err
		}
		return d.claimed(a, total)
	}
	frame, err := d.whole(total)
	if err != nil {
		d.lose(a)
		return err
	}
	owned := append([]byte(nil), frame...)
	d.skip(total)
	return d.hold(a, owned)
}

// hold completes a slot with a frame of its own; the next flush writes it if
// it is its turn. Beyond MaxHeldBytes it waits for the turn.
func (d *downlink) hold(a answer, frame []byte) error {
	c := d.c
	if !c.mayHold(len(frame)) {
		d.flush()
		if err := c.awaitTurn(a.slot, len(frame)); err != nil {
			d.lose(a)
			return err
		}
	}
	if err := d.takeHeld(len(frame)); err != nil {
		d.lose(a)
		return err
	}
	c.mu.Lock()
	a.slot.completeLocked(frame)
	c.loopWillFlush = true
	c.mu.Unlock()
	return nil
}

// claimed restores the client's correlation id in an answer whose slot was
// claimed, and adds it to the run, streaming it if it is not whole.
func (d *downlink) claimed(a answer, total int) error {
	wire.SetAnswerCorrelationID(d.in.Bytes()[d.ready+4:], a.slot.correlationID)
	for {
		n := min(total, len(d.in.Bytes())-d.ready)
		d.ready += n
		total -= n
		if total == 0 {
			return nil
		}
		d.writeReady(1)
		if total >= spliceMin && d.splicer != nil {
			left, err := d.splice(total)
			if err != nil {
				return err
			}
			if total = left; total == 0 {
				return nil
			}
		}
		d.in.Reserve(min(total, streamBytes))
		if err := d.in.Fill(1); err != nil {
			return err
		}
	}
}

// splice moves the rest of an answer, of which everything before is written, without
// reading it. What it leaves is to be streamed, or dropped if the client has gone.
func (d *downlink) splice(total int) (left int, err error) {
	defer d.splicer.rest()
	for total > 0 && !d.c.gone() {
		n, err := d.splicer.take(min(total, spliceBytes))
		if errors.Is(err, errNoSplice) {
			if d.splicer.refused() {
				d.splicer = nil
			}
			return total, nil
		}
		if err != nil {
			return total, err
		}
		total -= n
		if err := d.splicer.give(total > 0, d.spliced); err != nil {
			d.c.writeFailed(err)
		}
	}
	if total == 0 {
		d.c.popClaimed(0)
		// The next answer is likely to be as long, and what the buffer takes in
		// of it is copied.
		d.in.Narrow()
	}
	return total, nil
}

// writeReady writes the run. keep is 1 while its last answer is incomplete.
func (d *downlink) writeReady(keep int) {
	if d.write() {
		d.c.popClaimed(keep)
	}
}

// write is writeReady without an end of the slots that it has written.
func (d *downlink) write() bool {
	if d.ready == 0 {
		return false
	}
	d.handBack()
	d.c.writeClient(d.in.Bytes()[:d.ready])
	d.in.Advance(d.ready)
	d.ready = 0
	return true
}

// skip drops the answer behind the run from the buffer.
func (d *downlink) skip(total int) {
	d.writeReady(0)
	d.in.Advance(total)
}

// handBack has the clientLoop go on whose exchange was driven, if there is one. The
// loop calls it before it waits for anything, but as late as that: the clientLoop is
// to run where the loop has run, and not to be taken away by another thread while the
// client's answer is written.
func (d *downlink) handBack() bool {
	x := d.c.resume
	if x == nil {
		return false
	}
	d.c.resume = nil
	x.handBack()
	return true
}

// flush writes all that can be written, before the loop blocks.
func (d *downlink) flush() {
	d.c.flush(d.write())
	if d.handBack() {
		// It has the next batch ready before the next answer, which may have come.
		runtime.Gosched()
	}
}
