package proxy

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// slotState says who may act on a slot. It only moves down this list.
type slotState uint8

const (
	// slotWaiting has no answer yet.
	slotWaiting slotState = iota
	// slotClaimed is being written to the client by the upstreamLoop, which
	// thereby owns the client's write side.
	slotClaimed
	// slotDone has its whole answer in frame.
	slotDone
	// slotBroken gets no answer: the connection ends when it is reached.
	slotBroken
)

// slot is the place of one request's answer in the order of answers. Slots
// are appended by the clientLoop and leave at the front, once written.
type slot struct {
	c             *conn
	correlationID int32 // as the client sent it
	state         slotState
	pooled        bool // a plain relayed request; nobody else refers to it
	// frame is the whole answer, from its length bytes on, once done. It is
	// nil if answering failed; then the state is slotBroken.
	frame []byte
}

var slots = sync.Pool{New: func() any { return new(slot) }}

// complete gives the slot its answer: a whole frame, whose first 8 bytes
// (length and correlation id) are filled in here. The frame belongs to the
// connection from then on. A nil frame means that there can be no answer: the
// connection is closed when the slot's turn comes.
//
// It may be called from any goroutine, exactly once, also after the
// connection has died, and never blocks on a socket.
func (s *slot) complete(frame []byte) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.completeLocked(frame)
	c.kickLocked()
}

func (s *slot) completeLocked(frame []byte) {
	if s.state != slotWaiting {
		panic("proxy: slot completed twice")
	}
	if frame == nil {
		s.state = slotBroken
		s.c.moved.Broadcast()
		return
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(s.correlationID))
	s.frame = frame
	s.state = slotDone
	s.c.held += len(frame)
	s.c.moved.Broadcast()
}

// answer is what an upstream connection still owes, in the order of sending.
type answer struct {
	id   int32 // correlation id used upstream
	sent int64 // number of the request among all queued for upstream
	// slot is answered by it as it comes or with addresses replaced; nil if
	// the answer goes to onAnswer.
	slot     *slot
	onAnswer func(answer []byte, err error)
	key      int16
	version  int16
	watch    *watch    // not nil: wants to see the answer too
	book     *ruleBook // not nil: what the request was judged by
}

func (a *answer) leaveRules() {
	if a.book != nil {
		a.book.leave()
	}
}

// pending is the order of answers of one connection. All fields are guarded
// by mu, which is never held across I/O.
//
// Who writes to the client: whoever has the slot at the front. If it is
// claimed, that is the upstreamLoop; if it is done, the one goroutine that
// set flushing. Slots leave the front only after they were written, so there
// is never a second writer.
type pending struct {
	mu    sync.Mutex
	moved sync.Cond // broadcast on every change that someone may wait for

	slots   ring[*slot]
	answers ring[answer]
	claimed int // slots at the front that are slotClaimed
	held    int // bytes of frames in slots that are done
	// heldTaken is the memory that was taken for them.
	heldTaken int64
	spoken    bool // something was answered
	// popped counts answers that were written; drainedFrom is one more than it was when
	// a drain began, 0 before.
	popped, drainedFrom int64
	owed                int // answers that go to an onAnswer, until it has returned

	flushing      bool
	loopWillFlush bool // the upstreamLoop flushes before it next blocks
	clientDead    bool // nothing is written to the client any more
	upstreamErr   error
	drained       bool // upstream is lost and every answer owed was told so
	stopCause     error
	aborted       bool
	timedOut      bool
	closed        bool

	queued  int64 // requests queued for upstream
	written int64 // of these, how many were handed to a write
	cut     int64 // number of the one that was written in part and is not completed; 0: none
}

// pushSlotLocked appends a slot, after waiting while MaxPendingRequests are
// unanswered. Only the clientLoop calls it.
func (c *conn) pushSlotLocked(correlationID int32, pooled bool) (*slot, error) {
	if c.slots.len() >= c.p.cfg.MaxPendingRequests {
		c.waited = true
		c.p.metrics.limit(limitPending, "remote", c.remote())
		c.mu.Unlock()
		err := c.flushUpstream()
		c.mu.Lock()
		if err != nil {
			return nil, err
		}
		if err := c.awaitRoomLocked(); err != nil {
			return nil, err
		}
	}
	if c.overLocked() {
		return nil, c.causeLocked()
	}
	var s *slot
	if pooled {
		s = slots.Get().(*slot)
	} else {
		s = new(slot)
	}
	*s = slot{c: c, correlationID: correlationID, pooled: pooled}
	c.slots.push(s)
	return s, nil
}

// awaitRoomLocked waits until a slot more may be pending, or there is no use in
// it. The clientLoop reads nothing meanwhile, so the idle limit is kept here too:
// errIdle.
func (c *conn) awaitRoomLocked() error {
	idle, seen := false, c.activity.Load()
	if limit := c.p.cfg.IdleTimeout; limit > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(limit, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if now := c.activity.Load(); now != seen {
				seen = now
				timer.Reset(limit)
				return
			}
			idle = true
			c.moved.Broadcast()
		})
		defer timer.Stop()
	}
	for c.slots.len() >= c.p.cfg.MaxPendingRequests && !c.overLocked() {
		if idle {
			return errIdle
		}
		c.moved.Wait()
	}
	return nil
}

// overLocked reports whether no new slot can get an answer.
func (c *conn) overLocked() bool {
	return c.upstreamErr != nil || c.clientDead || c.aborted || c.timedOut || c.closed
}

func (c *conn) causeLocked() error {
	switch {
	case c.stopCause != nil:
		return c.stopCause
	case c.upstreamErr != nil:
		return c.upstreamErr
	case c.clientDead:
		return errClientClosed
	}
	return errAborted
}

// takeAnswer gives the next answer that upstream owes; id is the correlation
// id that arrived.
func (c *conn) takeAnswer(id int32) (answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers.len() == 0 {
		return answer{}, fmt.Errorf("%w: nothing was asked, correlation id %d", errAnswer, id)
	}
	first := c.answers.at(0)
	if id != first.id {
		return answer{}, fmt.Errorf("%w: correlation id %d, expected %d", errAnswer, id, first.id)
	}
	if first.sent == c.cut {
		return answer{}, fmt.Errorf("%w: to a request that was sent in part", errAnswer)
	}
	a := c.answers.pop()
	a.leaveRules()
	return a, nil
}

// claim makes the upstreamLoop the writer of s if everything before s was
// written or is claimed already. It does not if answers that someone else waits for
// are still to come behind this one, which has total bytes and is small enough to be
// set aside: then the client's socket must not hold them up, and aside is true.
func (c *conn) claim(s *slot, total int) (claimed, aside bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed > 0 && c.held+total <= c.p.cfg.MaxHeldBytes {
		return false, true
	}
	return c.claimLocked(s), false
}

func (c *conn) claimLocked(s *slot) bool {
	if c.flushing || c.claimed >= c.slots.len() || c.slots.at(c.claimed) != s {
		return false
	}
	s.state = slotClaimed
	c.claimed++
	return true
}

// awaitClaim waits until s can be claimed. The run of claimed slots must have
// been written.
func (c *conn) awaitClaim(s *slot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.claimLocked(s) {
		if c.aborted || c.timedOut || c.closed {
			return errAborted
		}
		c.moved.Wait()
	}
	return nil
}

// awaitTurn waits until s is at the front, or n bytes more may be held.
func (c *conn) awaitTurn(s *slot, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.slots.at(0) != s && c.held+n > c.p.cfg.MaxHeldBytes {
		if c.aborted || c.timedOut || c.closed {
			return errAborted
		}
		c.moved.Wait()
	}
	return nil
}

// answeredAny reports whether the client got any answer.
func (c *conn) answeredAny() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spoken
}

// mayHold reports whether an answer of n bytes may be set aside until its turn.
func (c *conn) mayHold(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held+n <= c.p.cfg.MaxHeldBytes
}

// popClaimed removes the claimed slots that were written; keep is 1 if the
// last one was written in part only. What waits behind them is left to the next
// flush of the upstreamLoop, whose turn it is.
func (c *conn) popClaimed(keep int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.popClaimedLocked(keep)
	if c.frontDoneLocked() {
		c.loopWillFlush = true
	}
}

func (c *conn) popClaimedLocked(keep int) {
	c.spoken = true
	c.poppedLocked(c.claimed - keep)
	for ; c.claimed > keep; c.claimed-- {
		c.recycleLocked(c.slots.pop())
	}
	c.moved.Broadcast()
}

func (c *conn) recycleLocked(s *slot) {
	if s.pooled {
		*s = slot{}
		slots.Put(s)
		return
	}
	s.frame = nil
}

func (c *conn) frontDoneLocked() bool {
	return c.claimed == 0 && c.slots.len() > 0 && c.slots.at(0).state == slotDone
}

// kickLocked makes sure that done slots at the front get written, by a flusher
// of its own if nobody else is about to do it. It never blocks on a socket.
func (c *conn) kickLocked() {
	if c.flushing || c.loopWillFlush || c.closed || !c.frontDoneLocked() {
		return
	}
	c.flushing = true
	c.wg.Go(c.flusher)
}

// flusher is the body of the short-lived goroutine; flushing is already set.
func (c *conn) flusher() { c.flushDone(nil, 0, true) }

// flush removes the claimed slots, if they were written, and writes done slots at
// the front. Only the upstreamLoop calls it. While answers are owed to others it
// hands over to a flusher rather than wait for the client's socket.
func (c *conn) flush(written bool) {
	c.mu.Lock()
	if written {
		c.popClaimedLocked(0)
	}
	block := c.owed == 0
	c.loopWillFlush = false
	if c.flushing || !c.frontDoneLocked() {
		c.mu.Unlock()
		return
	}
	c.flushing = true
	c.mu.Unlock()
	c.flushDone(nil, 0, block)
}

// flushDone writes rest, which is what a write that would not block left over
// of the first n slots, then done slots until the front is not done, and then
// gives up flushing.
func (c *conn) flushDone(rest []byte, n int, block bool) {
	if n > 0 {
		c.writeClient(rest)
		c.popDone(n)
	}
	for {
		buf, n := c.gather()
		if n == 0 {
			return
		}
		if block {
			c.writeClient(buf)
		} else if sent := c.writeClientNow(buf); sent < len(buf) {
			c.wg.Go(func() { c.flushDone(buf[sent:], n, true) })
			return
		}
		c.popDone(n)
	}
}

// gatherBytes is how much of small answers is copied together for one write.
const gatherBytes = 32 << 10

// gather returns the bytes of the done slots at the front, as many as one
// write should take. With none it ends the flush.
func (c *conn) gather() (buf []byte, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathered = c.gathered[:0]
	for n < c.slots.len() && c.slots.at(n).state == slotDone {
		frame := c.slots.at(n).frame
		if n == 0 && (len(frame) >= gatherBytes || c.slots.len() == 1 || c.slots.at(1).state != slotDone) {
			return frame, 1
		}
		if len(c.gathered)+len(frame) > gatherBytes {
			break
		}
		c.gathered = append(c.gathered, frame...)
		n++
	}
	if n == 0 {
		c.flushing = false
		c.moved.Broadcast()
	}
	return c.gathered, n
}

func (c *conn) popDone(n int) {
	c.mu.Lock()
	c.spoken = c.spoken || n > 0
	c.poppedLocked(n)
	for range n {
		s := c.slots.pop()
		c.held -= len(s.frame)
		c.recycleLocked(s)
	}
	spare := c.spareHeldLocked()
	c.moved.Broadcast()
	c.mu.Unlock()
	if spare > 0 {
		c.p.memory.answers.give(spare)
	}
}

// upstreamEnded tells everyone who waits for an upstream answer that none
// will come. Called by the upstreamLoop as its last act, or instead of it.
func (c *conn) upstreamEnded(err error) {
	c.mu.Lock()
	c.upstreamErr = err
	if c.claimed > 0 {
		// Cut within an answer: what follows on the wire would be misread.
		c.claimed = 0
		c.slots.at(0).state = slotBroken
	}
	c.moved.Broadcast()
	c.mu.Unlock()
	c.cancel(err)
	c.closeAfter(err)
	for {
		c.mu.Lock()
		if c.answers.len() == 0 {
			c.drained = true
			c.loopWillFlush = false
			c.kickLocked()
			c.moved.Broadcast()
			c.mu.Unlock()
			return
		}
		a := c.answers.pop()
		if a.slot != nil {
			a.slot.state = slotBroken
		}
		told := c.lostLocked(a.sent)
		strays := a.sent <= c.written && a.sent != c.cut
		c.mu.Unlock()
		if a.book != nil {
			c.p.rules.leave(a.book, strays)
		}
		a.watch.lost()
		if a.onAnswer != nil {
			a.onAnswer(nil, told)
			c.settle()
		}
	}
}

// lostLocked is the error for a request of that number when upstream is lost.
func (c *conn) lostLocked(sent int64) error {
	if sent > c.written {
		return fmt.Errorf("%w: %w", errNotSent, c.upstreamErr)
	}
	return c.upstreamErr
}

// settle counts down the answers that are owed to an onAnswer.
func (c *conn) settle() {
	c.mu.Lock()
	c.owed--
	c.moved.Broadcast()
	c.mu.Unlock()
}

// awaitLocked waits for done, an abort, or the timeout.
func (c *conn) awaitLocked(timeout time.Duration, done func() bool) {
	timer := time.AfterFunc(timeout, func() {
		c.mu.Lock()
		c.timedOut = true
		c.moved.Broadcast()
		c.mu.Unlock()
	})
	for !done() && !c.aborted && !c.timedOut {
		c.moved.Wait()
	}
	timer.Stop()
}
