package proxy

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// A long request that nothing has to be known of but its head is forwarded as it
// comes, so that it costs one buffer however long it is, and no time. From its head
// on it has its place among the answers, and counts as sent: if it ends before its
// end, the broker drops what it has of it, but whether it had all of it only the
// broker knows.

const (
	// longRequest is above which a request is not waited for. Shorter ones fit into
	// the buffer of a connection that is in use anyway.
	longRequest = 64 << 10
	// headBytes of a long request are waited for before it is looked at. One whose
	// head is longer is read whole.
	headBytes = 1 << 10
	// passBytes is how wide reads are while a long request is forwarded. Of direct's
	// rate, values of 1 KiB and of 64 KiB had .86 and .75 with 128 KiB, .89 and .81
	// with 256, and .76 and .84 moved within the kernel (splice), which takes .21 s of
	// processor time a GB in place of .37. Waiting for 96 KiB to read (SO_RCVLOWAT)
	// spared nothing.
	passBytes = 256 << 10
	// stragglerMax is for how long, after the rules have changed, the rest of a
	// Produce is still forwarded that was judged by the earlier ones. It is less than
	// they are waited for, so that the broker has time to answer.
	stragglerMax = settleMax / 2
)

// coming is what is still to come of the long request whose head was handled. The
// zero value is of none. It is the clientLoop's own.
type coming struct {
	left int   // bytes
	size int   // of the frame, with its length bytes; 0: there is none
	sent int64 // number of the request among all queued for upstream
	// book, if it is a Produce, is what it was judged by, once more than its answer
	// has it: what is forwarded only in part is not settled, with acks=0 either.
	book *ruleBook
}

// passes reports whether a long request, of which the front has come, is forwarded as
// it comes: it would be as it is if all of it were known. If it is a Produce,
// c.taken is what it is judged by from now on.
func (c *conn) passes(front []byte) bool {
	h, err := wire.ParseRequestHeader(front)
	if err != nil || checkVersion(h.APIKey, h.APIVersion) != nil {
		return false
	}
	if c.p.embedded() && kmsg.RequestForKey(h.APIKey) == nil || !c.entrance.Access.allows(h.APIKey) || c.takesLogin(h.APIKey) {
		return false
	}
	switch h.APIKey {
	case int16(kmsg.AddPartitionsToTxn):
		return false
	case int16(kmsg.Metadata):
		return c.entrance.Access.allows(int16(kmsg.CreateTopics)) // else it is changed
	case int16(kmsg.Produce):
		if _, err := h.ProduceAcks(front); err != nil {
			return false
		}
		c.taken = c.p.rules.take()
		if c.concernedBy(c.taken) {
			c.leaveRules()
			return false
		}
		c.taken.enter() // cannot fail: it was taken
		c.coming.book = c.taken
	}
	return true
}

// passRest forwards what is still to come of the request whose head was handled. At
// its end what was read behind it is left for the next.
func (c *conn) passRest() error {
	r := &c.coming
	r.sent = c.queued // written by this goroutine alone
	// Where memory is short it goes with what a connection has anyway.
	var taken int64
	defer func() {
		if taken > 0 {
			c.p.memory.requests.give(taken)
		}
	}()
	// Not before bytes have been seen to come: what is announced takes no memory.
	for wide := false; r.left > 0; {
		if c.stopping.Load() {
			return c.stopReason()
		}
		if err := c.flushUpstream(); err != nil {
			return err
		}
		if wide {
			c.in.Reserve(min(r.left, passBytes))
		}
		if err := c.in.Fill(1); err != nil {
			if err = c.readError(err); err != nil {
				return c.cutError(err)
			}
			continue
		}
		if r.book != nil && r.book.outlived() {
			return fmt.Errorf("%w while a Produce was on its way, of which %d of %d bytes have not come within %s",
				errRulesChanged, r.left, r.size, stragglerMax)
		}
		n := min(r.left, len(c.in.Bytes()))
		wide = n > inboxBytes
		if wide && taken == 0 {
			if wide = c.p.memory.requests.take(passBytes); wide {
				taken = passBytes
			}
		}
		r.left -= n
		c.frame = c.in.Bytes()[:n:n]
		c.queue(c.frame)
		c.done, c.frame = n, nil
		c.received(n)
	}
	if r.book != nil {
		// With acks=0 no answer has the book: it is left when all is written.
		if err := c.flushUpstream(); err != nil {
			return err
		}
	}
	c.passed()
	return nil
}

// cutError says that a request came to its end before its end.
func (c *conn) cutError(err error) error {
	return fmt.Errorf("%w within a request, of which %d of %d bytes had not come", err, c.coming.left, c.coming.size)
}

// passed ends what is known of a long request that is forwarded whole.
func (c *conn) passed() {
	if c.coming.book != nil {
		c.coming.book.leave()
	}
	c.coming = coming{}
	c.requestRead()
}

// cutShort gives up a request that was forwarded in part, if there is one: nothing
// more of it is written, and what answers came before it is all that is awaited.
func (c *conn) cutShort() {
	if c.coming.size == 0 {
		return
	}
	c.mu.Lock()
	if last := c.answers.len() - 1; last >= 0 {
		if a := c.answers.at(last); a.sent == c.coming.sent {
			c.cut, a.slot.state = a.sent, slotBroken
			c.moved.Broadcast()
		}
	}
	c.mu.Unlock()
	if c.coming.book != nil {
		c.coming.book.leave()
	}
	c.coming = coming{}
}
