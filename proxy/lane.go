package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// lane is one partition's single serialising writer: it steps the partition's
// decision maker under a lock and carries out what comes of it. Nothing it
// does under the lock waits for a socket.
type lane struct {
	f     *fencing
	key   ps.Key
	topic prober.Topic

	// users counts the entries that may still call; the lane is put away only
	// while it is 0. It is raised under fencing.mu.
	users atomic.Int32

	// askLeader: the last reading failed, so the view's leader may be gone.
	askLeader atomic.Bool

	mu     sync.Mutex
	part   *fence.Partition
	last   ps.Instant // the newest of the events so far
	timer  *time.Timer
	due    ps.Instant // of the timer; 0: not running
	closed bool
	// producers is how many of the partition's virtual producer states are counted.
	producers int
	// pauses is how many of the partition's pauses are counted, and attempts and
	// lostRaces how many of those.
	pauses              int
	attempts, lostRaces uint64
	// shown is how much had happened when it was looked at last, for a Status.
	shown uint64
	// counts are those of the topic; nil: it has none of its own.
	counts counts
}

// step feeds an event to the partition, which came at an instant that the caller has
// read from the clock not long ago, and carries out the effects. Time that was read
// earlier than that of an event before it stands still for the partition. Where time
// itself decides, the clock is read here: what is given up because it is overdue counts
// as sent up to then, by a connection that is still writing it perhaps.
//
// What became ready and had its clientLoop wait is sent before it returns, so the
// caller holds no lock.
func (l *lane) step(at ps.Now, event func(*fence.Partition, ps.Now) []fence.Effect) {
	var made claims
	l.stepFor(&made, at, event)
	made.drive()
}

// stepFor is step, and leaves what became ready to the caller.
func (l *lane) stepFor(made *claims, at ps.Now, event func(*fence.Partition, ps.Now) []fence.Effect) {
	if !l.mu.TryLock() {
		// Whoever has it may be held up by a log that blocks. A time that was read before
		// that would have views look younger than they are.
		l.mu.Lock()
		at = now()
	}
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if due, ok := l.part.Wake(); ok && due <= at.Instant {
		at = now()
	}
	l.last = max(l.last, at.Instant)
	at.Instant = l.last
	l.part.Configure(l.f.core.Load())
	made.at = at
	l.carryOutLocked(at, event(l.part, at), made)
	l.countProducersLocked()
	if n := l.part.Pauses(); n != l.pauses {
		l.f.metrics.pauses.Add(int64(n - l.pauses))
		l.pauses = n
	}
	l.countContentionLocked()
	l.scheduleLocked(at.Instant)
}

// countContentionLocked counts what came of the partition's races in the metrics.
func (l *lane) countContentionLocked() {
	c := l.part.State().Counts()
	if c.Attempts != l.attempts {
		l.f.metrics.attempts.Add(int64(c.Attempts - l.attempts))
		l.attempts = c.Attempts
	}
	if c.LostRaces != l.lostRaces {
		l.f.metrics.lostRaces.Add(int64(c.LostRaces - l.lostRaces))
		l.lostRaces = c.LostRaces
	}
}

func (l *lane) admit(at ps.Now, t *fence.Ticket) {
	l.step(at, func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Admit(at, t) })
}

func (l *lane) cancel(at ps.Now, t *fence.Ticket) {
	l.step(at, func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Cancel(at, t) })
}

func (l *lane) answered(at ps.Now, t *fence.Ticket, a fence.Answer, made *claims) {
	l.stepFor(made, at, func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Answered(at, t, a) })
}

func (l *lane) abandoned(at ps.Now, t *fence.Ticket) {
	l.step(at, func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Abandoned(at, t) })
}

func (l *lane) notSent(at ps.Now, t *fence.Ticket) {
	l.step(at, func(p *fence.Partition, at ps.Now) []fence.Effect { return p.NotSent(at, t) })
}

func (l *lane) tick() {
	l.mu.Lock()
	l.due = 0
	l.mu.Unlock()
	l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Tick(at) })
}

// carryOutLocked does what the partition asks for. The slice is valid until
// the next event, so events that come up on the way wait for the end.
func (l *lane) carryOutLocked(at ps.Now, effects []fence.Effect, made *claims) {
	var unsendable []*fence.Ticket
	for i := range effects {
		e := &effects[i]
		switch e.Kind {
		case fence.Send:
			to := e.Ticket.Owner.(*entry)
			sendable, claimed := to.ready(e)
			if !sendable {
				unsendable = append(unsendable, e.Ticket)
			} else if to.traced.sent(); !to.firstSent {
				to.firstSent = true
				l.f.metrics.holds[heldUntilSent].add(at.Instant.Sub(to.admittedAt))
			}
			if claimed {
				made.add(to.x)
			}
		case fence.Decide:
			e.Ticket.Owner.(*entry).decided(at, e)
		case fence.ReadView:
			node := e.Node
			l.f.readings.start(l.askedLocked(node), reading{
				read: func(ctx context.Context) error { return l.readView(ctx, node) },
				fail: func(err error) { l.viewFailed(node, at.Instant, err) },
			})
		case fence.ReadRecords:
			id, from, upTo := e.Read, e.From, e.UpTo
			l.f.readings.start(l.askedLocked(e.Node), reading{
				read: func(ctx context.Context) error { return l.readRecords(ctx, id, from, upTo) },
				fail: func(err error) { l.recordsFailed(id, from, err) },
			})
		case fence.Abandon:
			if e.Ticket.AnswerWithin > l.f.core.Load().AnswerMax {
				l.f.metrics.limit(limitAnswer, "topic", l.topic.Name, "partition", l.key.Partition)
			}
			e.Ticket.Owner.(*entry).abandon()
		case fence.RecheckTopic:
			l.f.topics.forget(l.key.Topic)
		case fence.ForgotProducer:
			l.f.metrics.producersEvicted.Add(1)
			l.f.metrics.limit(limitProducers, "topic", l.topic.Name, "partition", l.key.Partition)
		case fence.RaiseAlarm:
			l.f.alarm(l.key, e)
		}
	}
	for _, t := range unsendable {
		l.carryOutLocked(at, l.part.Unsendable(at, t), made)
	}
}

// scheduleLocked makes sure that a tick comes when the partition wants one. A
// timer that fires early does no harm, so it is only ever moved forward.
func (l *lane) scheduleLocked(now ps.Instant) {
	at, wanted := l.part.Wake()
	if !wanted || l.due != 0 && l.due <= at {
		return
	}
	l.due = at
	wait := max(at.Sub(now), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.timer.Reset(wait)
	}
}

// askedLocked is the broker that a reading at node will ask, as far as is known.
func (l *lane) askedLocked(node ps.NodeID) readingKey {
	if v, ok := l.part.State().View(); ok && node == ps.AnyNode && !l.askLeader.Load() {
		node = v.Leader
	}
	return readingKey{node: int32(node)}
}

// putAway ends the lane if nothing is going on; the caller holds fencing.mu,
// for which a lane whose lock is taken must not be waited for.
func (l *lane) putAway() bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	if l.part.Busy() {
		return false
	}
	l.closeLocked()
	return true
}

func (l *lane) closeLocked() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
