package proxy

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// entryState is where one partition of an exchange is on its way.
type entryState uint8

const (
	// entryHeld: the fence has neither sent nor decided it.
	entryHeld entryState = iota
	// entryReady: to be sent now, stamped if it is fenced.
	entryReady
	// entrySent: upstream. Its bytes here are gone, unless it may be sent again
	// (entry.mayResend): then it may become ready once more.
	entrySent
	// entryDone: its result is known.
	entryDone
)

// entry is one partition of an exchange.
type entry struct {
	x     *exchange
	index int // into the request's partitions
	state entryState
	rule  *rule
	// watched is not nil while the answer will tell what the fence would have
	// said of it.
	watched *watched

	// Of fenced partitions.
	lane   *lane // nil: not fenced
	ticket fence.Ticket
	// clientBatch is the ticket's Producer, if its client is idempotent.
	clientBatch fence.ClientBatch
	admitted    bool
	// unconditional: no record has a condition, so its sender knows of none.
	unconditional bool
	records       []byte // in the request's frame, until handling of it ends
	epoch         int16
	sequence      int32
	unstamped     bool
	maxTime       int64
	// appendTime: the topic has LogAppendTime, so that clients are told the
	// broker's time, which is answeredTime once answered.
	appendTime   bool
	answeredTime int64

	result kmsg.ProduceResponseTopicPartition
}

// exchange is one Produce request with at least one fenced partition, from
// its frame to its answer. The connection's clientLoop sends; verdicts and
// answers come from any goroutine.
type exchange struct {
	c       *conn
	version int16
	book    *ruleBook // what it is judged by
	slot    *slot     // nil: acks=0, no answer
	topics  []kmsg.ProduceResponseTopic
	topicOf []int // topic entry of each partition

	// The clientLoop's own, until it has sent everything.
	clientID []byte // in the request's frame
	timeout  time.Duration
	arrived  ps.Instant
	// putOff are the entries that wait to be admitted; see allowance.
	putOff []*entry

	// signal has capacity 1 and is never closed: something became ready or was
	// decided while the clientLoop waits for held entries.
	signal chan struct{}

	// mu guards the entries' states and results. It is taken under a lane's
	// lock and takes the connection's.
	mu      sync.Mutex
	entries []entry
	open    int // entries that are not done
	// released: nothing is sent any more; the records may be gone.
	released bool
	// strays: a piece was lost with its connection, and may still arrive.
	strays   bool
	throttle int32
	// broken, if set, is why the request as a whole gets no answer: that for a
	// partition which is not fenced was lost, or what became of an unconditional
	// batch is unknown, of which its sender can only be told as by a broker that
	// fails.
	broken error
}

// mayResend reports whether the fence may want the entry's batch sent again
// after a race that it lost.
func (e *entry) mayResend() bool { return e.ticket.AtEnd }

// ready is called by the fence, under the lane's lock: the entry is to be
// sent with this stamp. False means that nobody will send it.
func (e *entry) ready(s *fence.Effect) bool {
	x := e.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.released {
		return false
	}
	e.epoch, e.sequence, e.unstamped = int16(s.Epoch), int32(s.BaseSequence), s.Unstamped
	e.state = entryReady
	x.wakeLocked()
	return true
}

// decided is called by the fence, under the lane's lock.
func (e *entry) decided(d *fence.Effect) {
	x := e.x
	e.lane.f.observe(e, d.Verdict)
	code, message := e.rule.tell(d.Verdict, e.ticket.Expected)
	x.mu.Lock()
	defer x.mu.Unlock()
	e.lane.users.Add(-1)
	e.result.ErrorCode = code
	e.result.BaseOffset = -1
	e.result.LogAppendTime = -1
	if message != "" {
		e.result.ErrorMessage = &message
	}
	if d.Verdict.Kind == fence.Unknown && e.unconditional {
		x.broken = errOutcomeUnknown
	}
	if d.Verdict.Kind == fence.Won {
		e.result.BaseOffset = int64(d.Verdict.Offset)
		if e.appendTime && !d.Verdict.Replayed {
			e.result.LogAppendTime = e.answeredTime
		}
	}
	x.doneLocked(e)
}

// abandon is called by the fence, under the lane's lock: the answer is overdue.
func (e *entry) abandon() { e.x.c.abandonUpstream() }

// refuse decides an entry that never reached the fence.
func (x *exchange) refuse(e *entry, code int16, message string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.result.ErrorCode = code
	e.result.BaseOffset = -1
	e.result.LogAppendTime = -1
	if message != "" {
		e.result.ErrorMessage = &message
	}
	x.doneLocked(e)
}

func (x *exchange) doneLocked(e *entry) {
	if e.state == entryDone {
		panic("proxy: partition decided twice")
	}
	e.state = entryDone
	x.open--
	x.wakeLocked()
	if x.open == 0 {
		x.c.p.rules.leave(x.book, x.strays)
		x.finishLocked()
	}
}

func (x *exchange) wakeLocked() {
	select {
	case x.signal <- struct{}{}:
	default:
	}
}

// finishLocked answers the client: all partitions are decided.
func (x *exchange) finishLocked() {
	if x.slot == nil {
		// acks=0: there is no answer, so a refusal closes the connection.
		for i := range x.entries {
			if x.entries[i].result.ErrorCode != 0 {
				x.c.closeAfter(errRefusedWithoutAnswer)
				return
			}
		}
		return
	}
	if x.broken != nil {
		x.slot.complete(nil)
		x.c.closeAfter(x.broken)
		return
	}
	x.slot.complete(x.composeLocked())
}

// composeLocked is the answer's frame; the slot fills in its first 8 bytes.
func (x *exchange) composeLocked() []byte {
	answer := kmsg.ProduceResponse{Version: x.version, Topics: x.topics, ThrottleMillis: x.throttle}
	for i := range x.entries {
		t := &answer.Topics[x.topicOf[i]]
		t.Partitions = append(t.Partitions, x.entries[i].result)
	}
	frame := make([]byte, 8, 128)
	if answer.IsFlexible() {
		frame = append(frame, 0) // no tagged fields in the header
	}
	return answer.AppendTo(frame)
}

// answered takes in the broker's answer to a piece of the request; indexes
// are the entries in it. It runs on the upstreamLoop.
func (x *exchange) answered(indexes []int, body []byte, err error) {
	if err != nil {
		x.lost(indexes, err)
		return
	}
	answer := kmsg.ProduceResponse{Version: x.version}
	if body, err = skipHeaderTags(body, answer.IsFlexible()); err == nil {
		err = answer.ReadFrom(body)
	}
	if err != nil {
		x.c.p.cfg.Logger.Error("answer to Produce not understood, closing connection", "node", x.c.node, "err", err)
		x.lost(indexes, errAnswer)
		x.c.abandonUpstream()
		return
	}
	x.mu.Lock()
	x.throttle = max(x.throttle, answer.ThrottleMillis)
	x.mu.Unlock()
	finder := findIn(&answer)
	for _, i := range indexes {
		e := &x.entries[i]
		topic := &x.topics[x.topicOf[i]]
		r := finder.find(topic.Topic, topic.TopicID, e.result.Partition)
		switch {
		case r == nil && e.lane != nil:
			e.lane.abandoned(&e.ticket) // not answered: nothing is known of it
		case r == nil:
			x.lost([]int{i}, errAnswer)
		case e.lane != nil:
			x.mu.Lock()
			e.result.LogStartOffset = r.LogStartOffset
			e.answeredTime = r.LogAppendTime
			x.mu.Unlock()
			if e.appendTime && r.ErrorCode == 0 && r.LogAppendTime == -1 {
				// Its timestamps are the clients' by now, so they must be checked.
				e.lane.f.topics.forget(e.lane.key.Topic)
			}
			e.lane.answered(&e.ticket, brokerAnswer(r, x.version))
		default:
			e.watched.answered(r)
			x.mu.Lock()
			partition := e.result.Partition
			e.result = *r
			e.result.Partition = partition
			// Addresses are not passed on, so neither is a leader to go to:
			// the client asks for metadata.
			e.result.CurrentLeader = kmsg.NewProduceResponseTopicPartitionCurrentLeader()
			x.doneLocked(e)
			x.mu.Unlock()
		}
	}
}

// lost tells that the piece gets no answer.
func (x *exchange) lost(indexes []int, err error) {
	notSent := errors.Is(err, errNotSent)
	if !notSent {
		x.mu.Lock()
		x.strays = true
		x.mu.Unlock()
	}
	for _, i := range indexes {
		e := &x.entries[i]
		switch {
		case e.lane != nil && notSent:
			e.lane.notSent(&e.ticket)
		case e.lane != nil:
			e.lane.abandoned(&e.ticket)
		default:
			e.watched.lost()
			x.mu.Lock()
			x.broken = errAnswer
			x.doneLocked(e)
			x.mu.Unlock()
		}
	}
}

// cancel withdraws what was not sent: the connection is ending.
func (x *exchange) cancel() {
	x.mu.Lock()
	x.released = true
	x.mu.Unlock()
	for i := range x.entries {
		e := &x.entries[i]
		if !e.admitted {
			x.mu.Lock()
			waits := e.state != entryDone && e.state != entrySent
			x.mu.Unlock()
			if waits && e.lane != nil { // put off
				e.lane.users.Add(-1)
			}
			if waits {
				x.giveUp(e)
			}
			continue
		}
		x.mu.Lock()
		held := e.state == entryHeld || e.state == entryReady
		x.mu.Unlock()
		if !held {
			continue
		}
		e.lane.cancel(&e.ticket)
		x.mu.Lock()
		state := e.state
		x.mu.Unlock()
		switch state {
		case entryReady:
			// The fence counts it as sent, and is told otherwise.
			e.lane.notSent(&e.ticket)
		case entryHeld:
			e.lane.users.Add(-1)
			x.giveUp(e)
		}
	}
}

// giveUp ends an entry without a result.
func (x *exchange) giveUp(e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.state == entryDone {
		return
	}
	x.broken = errAnswer
	x.doneLocked(e)
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
