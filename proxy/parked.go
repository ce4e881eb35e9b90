package proxy

import (
	"context"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// attention says who looks at an exchange of which something has changed.
type attention uint8

const (
	// attended: its clientLoop is about to, or need not any more.
	attended attention = iota
	// unattended: its clientLoop waits, with all flushed.
	unattended
	// driven: somebody has claimed it, who sends what is ready as its clientLoop
	// would, and gives it back.
	driven
)

// parked is how an exchange is attended to while its clientLoop waits for what the
// fence holds. What makes a batch ready is an event of its lane, and whoever brings
// that event also sends the batch: it is upstream before another goroutine would have
// woken up, and before any client hears of the event. So as long as an exchange is
// driven, all that is its clientLoop's own belongs to whoever has claimed it.
type parked struct {
	// signal is the connection's, has capacity 1 and is never closed. Whoever
	// attends to the exchange in place of its clientLoop sends one when the
	// clientLoop is to go on, and that takes it before it parks again.
	signal chan struct{}
	// next is of whoever has claimed the exchange.
	next *exchange

	// Guarded by exchange.mu.
	attention attention
	wanted    bool  // the clientLoop waits until it is not driven any more
	failed    error // of whoever drove it
}

// park waits until somebody wakes the clientLoop, or until also fires. It does not
// begin to wait if something is ready or nothing is held.
func (x *exchange) park(also <-chan time.Time) error {
	x.mu.Lock()
	if x.held == 0 || x.anyReadyLocked() {
		x.mu.Unlock()
		return nil
	}
	x.attention = unattended
	x.mu.Unlock()
	var err error
	select {
	case <-x.signal:
		return x.failed
	case <-also:
	case <-x.c.ctx.Done():
		err = context.Cause(x.c.ctx)
	}
	x.unpark()
	if x.failed != nil {
		return x.failed
	}
	return err
}

// unpark takes the exchange back into its clientLoop's hands, which has not been
// woken by a signal.
func (x *exchange) unpark() {
	x.mu.Lock()
	if x.attention == unattended {
		x.attention = attended
		x.mu.Unlock()
		return
	}
	x.wanted = x.attention == driven
	x.mu.Unlock()
	<-x.signal // whoever drives waits for nothing, so it comes soon
}

// wakeLocked has the clientLoop go on, if it is parked.
func (x *exchange) wakeLocked() {
	if x.attention == unattended {
		x.attention = attended
		x.signal <- struct{}{}
	}
}

// claimLocked reports whether the caller has to drive the exchange, as nobody else
// attends to it.
func (x *exchange) claimLocked() bool {
	if x.attention != unattended {
		return false
	}
	x.attention = driven
	return true
}

func (x *exchange) anyReadyLocked() bool {
	for _, i := range x.ready {
		if x.entries[i].state == entryReady {
			return true
		}
	}
	return false
}

// drive sends what is ready of an exchange that the caller has claimed, and gives it
// back. It waits for no socket; what would is left to the clientLoop. The caller holds
// no lock.
func (x *exchange) drive(at ps.Now, by *conn) {
	for given := false; !given; {
		if x.c.loginDue() {
			// It has to log in first, which waits: the clientLoop's to do.
			given = x.giveBack(false, nil, by)
			continue
		}
		if x.c.clientGone() {
			// To withdraw it may make the next one ready, of a client that has gone as
			// well, and so on, while the client of whoever drives waits for its answer.
			given = x.giveBack(false, nil, by)
			continue
		}
		x.at, x.c.waited = at, false
		_, err := x.sendReady(false)
		given = x.giveBack(err == nil && x.via.flushNow(), err, by)
	}
}

// giveBack ends the driving of an exchange, unless all is well and more has become
// ready. If its own upstreamLoop has sent all of it, that hands it back when it has
// done all else.
func (x *exchange) giveBack(well bool, err error, by *conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if well && !x.wanted && x.held > 0 {
		if x.anyReadyLocked() {
			return false
		}
		x.attention = unattended
		return true
	}
	if x.failed = err; well && x.c == by && !x.wanted {
		x.c.resume = x
		return true
	}
	x.handBackLocked()
	return true
}

// handBack has the clientLoop of a driven exchange go on.
func (x *exchange) handBack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handBackLocked()
}

func (x *exchange) handBackLocked() {
	x.attention, x.wanted = attended, false
	x.signal <- struct{}{}
}

// claims are the exchanges that somebody has claimed and has to drive.
type claims struct {
	last *exchange
	at   ps.Now // of the last event
	// by is the connection whose upstreamLoop drives them; nil: another goroutine does.
	by *conn
}

func (c *claims) add(x *exchange) { x.next, c.last = c.last, x }

// drive drives them all. The caller holds no lock.
func (c *claims) drive() {
	for c.last != nil {
		x := c.last
		c.last, x.next = x.next, nil
		x.drive(c.at, c.by)
	}
}
