package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// carrier takes pieces of exchanges to the broker that a client's connection leads
// to. Each connection is its own; where clients share the proxy's credentials,
// another could put many pieces into one request.
//
// Except for abandon, only the clientLoop calls it, or while that waits whoever
// drives its exchange (see parked).
type carrier interface {
	// route says which broker it leads to, and an instant at which it was connected
	// already: no view from before that is used for what it carries.
	route() (node ps.NodeID, openedAt ps.Instant)
	// carry takes a piece over and tells it, once, what became of it: answered,
	// notSent or lost. It may tell so before it returns, and must if it returns an
	// error, which ends the client's connection. The piece's bytes stay untouched
	// until flush has returned. It waits for no socket.
	carry(p *piece) error
	// flush writes what carry has put off. It is called before the clientLoop
	// waits for anything, and before it lets go of a request's bytes.
	flush() error
	// flushNow is flush as far as it goes without waiting: false leaves something
	// to flush.
	flushNow() bool
	// abandon cuts what pieces were carried by, so that no late answer is taken for
	// a timely one: all that are not told yet are lost. It may be called from any
	// goroutine, and does not wait.
	abandon()
}

// piece is what of an exchange goes upstream at once, stamped.
type piece struct {
	x       *exchange
	indexes []int // of its entries, ascending
	acks    int16
	timeout int32 // milliseconds
	// view is of the client's request, which frame is, length bytes and all.
	view  *wire.Produce
	frame []byte
}

// longBatch is from which length on a batch is not copied into a request made of a
// part of the client's: a copy of less costs no more than one more piece to write.
const longBatch = 4 << 10

// whole reports whether the piece is all of the client's request, so that its frame
// can be sent as it came.
func (p *piece) whole() bool { return len(p.indexes) == len(p.x.entries) }

// answered tells what the broker has answered.
func (p *piece) answered(at ps.Now, a *wire.ProduceAnswer, by *conn) {
	x := p.x
	x.mu.Lock()
	x.throttle = max(x.throttle, a.ThrottleMillis)
	x.mu.Unlock()
	// What the client has sent behind it goes on in one piece, as it came.
	made := claims{by: by}
	defer made.drive()
	for _, i := range p.indexes {
		e := &x.entries[i]
		t := &x.topics[e.topic]
		if r, ok := a.Find(t.name, t.id, e.result.Partition); ok {
			e.answered(at, &r.ProduceResult, &made)
		} else {
			e.lost(at, false) // nothing is known of it
		}
	}
}

// lost tells that there will be no answer; err wraps errNotSent if not one byte
// was written.
func (p *piece) lost(err error) {
	notSent, at := errors.Is(err, errNotSent), now()
	if !notSent {
		p.x.mu.Lock()
		p.x.strays = true
		p.x.mu.Unlock()
	}
	for _, i := range p.indexes {
		p.x.entries[i].lost(at, notSent)
	}
}

// unanswered tells that it was sent and gets no answer, with acks=0.
func (p *piece) unanswered() {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	for _, i := range p.indexes {
		p.x.doneLocked(&p.x.entries[i])
	}
}

// ownUpstream carries pieces by the upstream connection of the client's own, as
// requests between the others that the client sends.
type ownUpstream struct{ *conn }

func (u ownUpstream) route() (ps.NodeID, ps.Instant) { return ps.NodeID(u.node), u.openedAt }
func (u ownUpstream) flush() error                   { return u.flushUpstream() }
func (u ownUpstream) flushNow() bool                 { return u.flushUpstreamNow() }
func (u ownUpstream) abandon()                       { u.abandonUpstream() }

func (u ownUpstream) carry(p *piece) error {
	var tell func([]byte, error)
	if p.acks != 0 {
		tell = func(body []byte, err error) { u.tell(p, body, err) }
	}
	if err := u.sendPiece(p, tell); err != nil {
		p.lost(fmt.Errorf("%w: %w", errNotSent, err))
		return err
	}
	// It waits for its answer, and its exchange is known to the fence, for longer than
	// the connection needs the request's memory.
	p.view, p.frame = nil, nil
	if p.acks == 0 {
		p.unanswered()
	}
	return nil
}

func (u ownUpstream) sendPiece(p *piece, tell func([]byte, error)) error {
	if p.whole() {
		p.view.PatchAcks(p.acks)
		p.view.PatchTimeout(p.timeout)
		return u.sendUpstream(p.frame, tell)
	}
	return u.sendGathered(p.view.GatherFrame(nil, p.x.clientID, 0, p.acks, p.timeout, p.indexes, longBatch), tell)
}

// tell runs on the upstreamLoop.
func (u ownUpstream) tell(p *piece, body []byte, err error) {
	if err != nil {
		p.lost(err)
		return
	}
	at := now()
	if body, err = skipHeaderTags(body, p.x.version >= flexibleProduce); err == nil {
		err = u.answer.Parse(body, p.x.version)
	}
	if err != nil {
		u.p.cfg.Logger.Error("answer to Produce not understood, closing connection", "node", u.node, "err", err)
		p.lost(errAnswer)
		u.abandonUpstream()
		return
	}
	p.answered(at, &u.answer, u.conn)
}

// skipHeaderTags skips the tagged fields of an answer's header, which only
// flexible versions have.
func skipHeaderTags(body []byte, flexible bool) ([]byte, error) {
	if !flexible {
		return body, nil
	}
	rest, ok := wire.SkipTags(body)
	if !ok {
		return nil, fmt.Errorf("%w: header", errAnswer)
	}
	return rest, nil
}

// send sends what is ready and then waits for what the fence holds, sending
// each part as it becomes ready. When it returns, the frame is not needed any
// more.
func (x *exchange) send(frame []byte, view *wire.Produce) error {
	defer x.letGo()
	x.request, x.view = frame, view
	for first := true; ; first = false {
		var held bool
		err := x.c.renewLogin()
		if err == nil {
			held, err = x.sendReady(!first || !x.c.lookupUntil.IsZero())
		}
		if err == nil && !held {
			return nil
		}
		if err == nil {
			err = x.via.flush()
		}
		if err == nil {
			err = x.awaitChange()
		}
		if err != nil {
			x.cancel()
			return err
		}
	}
}

// sendReady sends what is ready, and tells whether more is held. What has waited is
// not sent if its client has gone meanwhile.
func (x *exchange) sendReady(waited bool) (held bool, err error) {
	ready, held := x.takeReady()
	if len(ready) == 0 {
		return held, nil
	}
	all := x.spare
	if x.spare = nil; all == nil {
		all = new(piece)
	}
	*all = piece{x: x, indexes: ready, frame: x.request, view: x.view}
	if waited && x.c.clientGone() {
		all.lost(errNotSent)
		return held, errClientClosed
	}
	return held, x.sendPiece(all)
}

// awaitChange waits until something became ready, or nothing is held any more, or
// more of what was put off can be admitted.
func (x *exchange) awaitChange() error {
	x.c.waited = true
	var admit <-chan time.Time
	if wait := x.admitPutOff(); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		admit = timer.C
	}
	err := x.park(admit)
	x.c.waited = true // it may have been driven meanwhile
	return err
}

// sendPiece stamps the fenced ones among the entries and sends them upstream:
// the frame as it came if that is all of it, else a request of their own. A
// request whose acks differ from those that fenced partitions need is split.
func (x *exchange) sendPiece(all *piece) error {
	fenced := 0
	for _, i := range all.indexes {
		e := &x.entries[i]
		if e.lane == nil {
			continue
		}
		fenced++
		if !e.unstamped {
			wire.Stamp(e.records, e.lane.f.fenceID, e.epoch, e.sequence, e.maxTime)
		}
	}
	all.timeout = x.timeLeft()
	all.acks = all.view.Acks
	switch {
	case fenced == 0, all.acks == allAcks:
		return x.via.carry(all)
	case fenced == len(all.indexes):
		all.acks = allAcks
		return x.via.carry(all)
	}
	plain := *all
	plain.indexes = nil
	stamped := *all
	stamped.indexes, stamped.acks = nil, allAcks
	for _, i := range all.indexes {
		of := &stamped
		if x.entries[i].lane == nil {
			of = &plain
		}
		of.indexes = append(of.indexes, i)
	}
	if err := x.via.carry(&stamped); err != nil {
		plain.lost(fmt.Errorf("%w: %w", errNotSent, err))
		return err
	}
	return x.via.carry(&plain)
}

// allAcks asks the broker to answer when all in-sync replicas have it.
const allAcks = -1

// timeLeft is what is left of the request's timeout, in milliseconds; at
// least 1 of it, unless it had none.
func (x *exchange) timeLeft() int32 {
	if x.timeout == 0 {
		return 0
	}
	left := x.timeout - x.clock().Instant.Sub(x.arrived)
	return int32(max(left.Milliseconds(), 1))
}

// brokerAnswer is what a broker said of a stamped batch.
func brokerAnswer(r *wire.ProduceResult) fence.Answer {
	return fence.Answer{
		Code: r.ErrorCode, BaseOffset: ps.Offset(r.BaseOffset),
		LogAppendTime: ps.Timestamp(r.LogAppendTime), LogStart: ps.Offset(r.LogStartOffset),
	}
}
