package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory for frames, of all connections together.
//
// A connection has some of its own: ownBytes of requests, of an answer and of answers
// that are held. What is longer and has to be there whole, or is held besides, it
// takes from one of two budgets, of requests and of answers, before the memory is
// used; where there is not enough it waits, in order, and reads nothing meanwhile.
//
// Nobody waits for ever:
//
//   - A request takes all that it needs at once, and has nothing while it waits. So
//     what is taken belongs to requests that can be read to their end. One that does
//     not come is cut off if others wait (Config.ArrivalTimeout).
//   - A request that has come whole is judged and sent. That may wait for the fence,
//     for the proxy's own readings, for brokers and for answers that its client takes,
//     never for another request's memory: what the fence knows of has come whole.
//   - Answers free requests, so they never wait for requests: their budget is another.
//   - An answer holds memory until those before it are written. They wait for what the
//     fence decides, on which answers to stamped batches on any connection may bear.
//     So a connection that owes the fence an answer (pending.owed) does not wait for
//     memory, nor go on waiting, but overdraws: at most by what one connection may
//     hold anyway (Config.MaxRewrittenBytes, Config.MaxHeldBytes).
//   - An answer that does not come is cut off as well if others wait for memory, and
//     with it the connection to its broker, which may be frozen (Config.ArrivalTimeout).
//   - A client that takes no answers is cut off (Config.WriteTimeout).
//   - What is larger than a budget gets through alone.

const (
	// ownBytes is what a connection may hold of each kind without asking: no more
	// than the buffers that it has in use anyway.
	ownBytes = longRequest
	// requestShare of the memory is for requests, in quarters. Answers that are long
	// and not streamed are rare.
	requestShare = 3
	// arrivalTicks is into how many parts ArrivalTimeout is divided for checking.
	arrivalTicks = 4
)

// budget is memory for one kind of frames. Its methods may be called concurrently,
// and wait for nothing.
type budget struct {
	room int64
	used *atomic.Int64 // changed under mu, read by metrics

	mu      sync.Mutex
	waiting []*memoryWait // first come, first served
	// arriving are the connections whose frame has memory and has not come whole.
	arriving map[*conn]arrival
	// cut ends a connection whose frame does not come.
	cut func(*conn)
}

// arrival is of a frame that is still to come.
type arrival struct {
	since time.Time
	bytes int64
}

// memoryWait is one who waits for memory.
type memoryWait struct {
	c     *conn
	bytes int64
	// granted is set under budget.mu.
	granted bool
}

// budgets are those of a Proxy.
type budgets struct{ requests, answers budget }

func newBudgets(all int, m *metrics) *budgets {
	share := int64(all) / 4 * requestShare
	return &budgets{
		requests: budget{room: share, used: m.buffered[bufferedRequests], arriving: map[*conn]arrival{},
			cut: func(c *conn) { c.closeAfter(errLateRequest) }},
		answers: budget{room: int64(all) - share, used: m.buffered[bufferedAnswers], arriving: map[*conn]arrival{},
			cut: func(c *conn) {
				c.closeAfter(errLateAnswer)
				c.abandonUpstream()
			}},
	}
}

func (b *budget) fitsLocked(n int64) bool {
	used := b.used.Load()
	return used == 0 || used+n <= b.room
}

// take takes memory if there is enough and nobody waits.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.fitsLocked(n) {
		return false
	}
	b.used.Add(n)
	return true
}

// overdraw takes memory whether there is enough or not.
func (b *budget) overdraw(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.Add(n)
}

// give gives memory back, or adds none. The caller holds no connection's lock, since
// those who get it are woken up.
func (b *budget) give(n int64) {
	b.mu.Lock()
	b.used.Add(-n)
	b.grantAndUnlock()
}

// grantAndUnlock serves those who wait.
func (b *budget) grantAndUnlock() {
	served := 0
	for served < len(b.waiting) && b.fitsLocked(b.waiting[served].bytes) {
		b.waiting[served].granted = true
		b.used.Add(b.waiting[served].bytes)
		served++
	}
	woken := slices.Clone(b.waiting[:served])
	b.waiting = slices.Delete(b.waiting, 0, served)
	b.mu.Unlock()
	for _, w := range woken {
		w.c.mu.Lock()
		w.c.moved.Broadcast()
		w.c.mu.Unlock()
	}
}

// queue begins to wait.
func (b *budget) queue(c *conn, n int64) *memoryWait {
	w := &memoryWait{c: c, bytes: n}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.grantAndUnlock() // what was given since take
	return w
}

func (b *budget) granted(w *memoryWait) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.granted
}

// leave ends a wait that was not granted, or gives back what was.
func (b *budget) leave(w *memoryWait) {
	b.mu.Lock()
	if w.granted {
		b.used.Add(-w.bytes)
	} else {
		b.waiting = slices.DeleteFunc(b.waiting, func(other *memoryWait) bool { return other == w })
	}
	b.grantAndUnlock()
}

// arrives notes that a connection's frame has memory and is still to come.
func (b *budget) arrives(c *conn, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arriving[c] = arrival{time.Now(), n}
}

// arrived notes that it has come, or will not.
func (b *budget) arrived(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.arriving, c)
}

// late takes out the connections whose frame has been arriving for so long.
func (b *budget) late(long time.Duration) map[*conn]arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := map[*conn]arrival{}
	for c, a := range b.arriving {
		if time.Since(a.since) >= long {
			late[c] = a
			delete(b.arriving, c)
		}
	}
	return late
}

// memoryShort says that somebody waits.
func (p *Proxy) memoryShort(b *budget, n int64) {
	p.metrics.limit(limitBuffered, "in_use", b.used.Load(), "wanted", n)
}

// takeRequest takes memory for a request that is to be there whole, before more of it
// is read. The clientLoop's own.
func (c *conn) takeRequest(size int) error {
	n, b := int64(size), &c.p.memory.requests
	if !b.take(n) {
		c.waited = true
		if err := c.flushUpstream(); err != nil {
			return err
		}
		c.p.memoryShort(b, n)
		if err := c.awaitRequestMemory(b, n); err != nil {
			return err
		}
	}
	c.requestBytes = n
	b.arrives(c, n)
	return nil
}

func (c *conn) awaitRequestMemory(b *budget, n int64) error {
	w := b.queue(c, n)
	c.mu.Lock()
	endWatch := c.watchArrivalsLocked(b)
	for !b.granted(w) && c.stopCause == nil && !c.overLocked() {
		c.moved.Wait()
	}
	endWatch()
	over := c.stopCause != nil || c.overLocked()
	err := c.causeLocked()
	c.mu.Unlock()
	if !over {
		return nil
	}
	b.leave(w)
	return err
}

// watchArrivalsLocked has whoever waits for memory see to it that others do not keep
// what they do not use, until the function it returns is called under c.mu.
func (c *conn) watchArrivalsLocked(b *budget) (endLocked func()) {
	every, waits := c.p.cfg.ArrivalTimeout/arrivalTicks, true
	var tick *time.Timer
	tick = time.AfterFunc(every, func() {
		c.p.cutLate(b)
		c.mu.Lock()
		defer c.mu.Unlock()
		if waits {
			tick.Reset(every)
		}
	})
	return func() {
		waits = false
		tick.Stop()
	}
}

// cutLate ends connections whose frame takes too long to arrive.
func (p *Proxy) cutLate(b *budget) {
	for c, a := range b.late(p.cfg.ArrivalTimeout) {
		p.metrics.limit(limitArrival, "remote", c.remote(), "bytes", a.bytes)
		b.cut(c)
	}
}

// requestArrived notes that the request is there whole.
func (c *conn) requestArrived() {
	if c.requestBytes > 0 {
		c.p.memory.requests.arrived(c)
	}
}

// giveRequest gives back what takeRequest took, when the request's bytes are not
// needed any more.
func (c *conn) giveRequest() {
	if c.requestBytes > 0 {
		c.p.memory.requests.arrived(c)
		c.p.memory.requests.give(c.requestBytes)
		c.requestBytes = 0
	}
}

// takeAnswer takes memory for an answer that is to be there whole, or to be held.
func (d *downlink) takeAnswer(n int64) error {
	c, b := d.c, &d.c.p.memory.answers
	if b.take(n) {
		return nil
	}
	d.flush()
	w := b.queue(c, n)
	told := false
	c.mu.Lock()
	endWatch := c.watchArrivalsLocked(b)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		endWatch()
	}()
	for !b.granted(w) {
		if c.aborted || c.timedOut || c.closed {
			c.mu.Unlock()
			b.leave(w)
			return errAborted
		}
		if c.owed > 0 || c.clientDead {
			c.mu.Unlock()
			b.leave(w)
			b.overdraw(n)
			return nil
		}
		if !told { // the log may block
			told = true
			c.mu.Unlock()
			c.p.memoryShort(b, n)
			c.mu.Lock()
			continue
		}
		c.moved.Wait()
	}
	c.mu.Unlock()
	return nil
}

// takeWhole takes memory for an answer that is read whole, copies times, until
// giveWhole.
func (d *downlink) takeWhole(total, copies int) error {
	if total <= ownBytes || d.taken > 0 {
		return nil
	}
	n := int64(total * copies)
	if err := d.takeAnswer(n); err != nil {
		return err
	}
	d.taken = n
	return nil
}

// fillWhole waits for the rest of an answer that is read whole. If that has taken
// memory, it must come in time.
func (d *downlink) fillWhole(total int) error {
	if d.taken == 0 {
		return d.in.Fill(total)
	}
	b := &d.c.p.memory.answers
	b.arrives(d.c, d.taken)
	defer b.arrived(d.c)
	return d.in.Fill(total)
}

func (d *downlink) giveWhole() {
	if d.taken > 0 {
		d.c.p.memory.answers.give(d.taken)
		d.taken = 0
	}
}

// takeHeld takes memory for a frame that is about to be held, unless it is little. It
// is taken from what the answer has: to wait with that in hand might be for ever.
func (d *downlink) takeHeld(size int) error {
	c := d.c
	c.mu.Lock()
	n := int64(c.held+size-ownBytes) - c.heldTaken
	c.mu.Unlock()
	if n <= 0 {
		return nil
	}
	b := &c.p.memory.answers
	if d.taken > 0 {
		have := min(n, d.taken)
		d.taken -= have
		b.overdraw(n - have)
	} else if err := d.takeAnswer(n); err != nil {
		return err
	}
	c.mu.Lock()
	c.heldTaken += n
	c.mu.Unlock()
	return nil
}

// spareHeldLocked is what of the memory for held answers is not needed any more. The
// caller gives it back when it holds no lock.
func (c *conn) spareHeldLocked() int64 {
	spare := c.heldTaken - max(0, int64(c.held-ownBytes))
	if spare <= 0 {
		return 0
	}
	c.heldTaken -= spare
	return spare
}

// giveHeld gives back all of it: the connection has ended.
func (c *conn) giveHeld() {
	c.mu.Lock()
	n := c.heldTaken
	c.heldTaken = 0
	c.mu.Unlock()
	if n > 0 {
		c.p.memory.answers.give(n)
	}
}
