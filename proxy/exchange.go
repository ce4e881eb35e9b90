package proxy

import (
	"slices"
	"sync"
	"time"

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
	topic int // into the exchange's topics
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
	// admittedAt is when it came to its lane, or was to; see firstSent.
	admittedAt ps.Instant
	// firstSent: the fence has had it sent at least once. The lane's lock guards it.
	firstSent bool
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
	traced       *traced // nil: not traced

	result wire.ProduceResult
}

// exchangeTopic is one topic entry of a request.
type exchangeTopic struct {
	name  string // empty from Produce version 13 on
	id    [16]byte
	count int // of its partitions
}

// exchange is one Produce request with at least one fenced partition, from
// its frame to its answer. The connection's clientLoop sends; verdicts and
// answers come from any goroutine, late ones when all is long decided: so an
// exchange is never used for another request.
type exchange struct {
	c       *conn
	via     carrier
	version int16
	book    *ruleBook // what it is judged by
	slot    *slot     // nil: acks=0, no answer
	topics  []exchangeTopic

	// The clientLoop's own, or of whoever drives the exchange (see parked), until
	// everything is sent.
	clientID []byte // in the request's frame
	timeout  time.Duration
	arrived  ps.Instant
	at       ps.Now // see clock
	examined int    // bytes since at, about; see entry.examined
	// digests is room for the records of its batches, as the fence knows them.
	digests []ps.Record
	// putOff are the entries that wait to be admitted; see allowance.
	putOff []*entry
	// request is the request's frame, and view is of it, until all is sent.
	request []byte
	view    *wire.Produce
	parked

	// mu guards the entries' states and results. It is taken under a lane's
	// lock and takes the connection's.
	mu      sync.Mutex
	entries []entry
	ready   []int // entries that became ready; some may be decided by now
	open    int   // entries that are not done
	held    int   // entries that wait; see entry.waits
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
	// frame is room for the answer, and spare for a piece.
	frame []byte
	spare *piece
}

// smallExchange is all that most exchanges need, in one piece of memory: a
// partition, few records and a short answer.
type smallExchange struct {
	exchange
	oneEntry   [1]entry
	oneTopic   [1]exchangeTopic
	oneReady   [1]int
	fewDigests [4]ps.Record
	answer     [128]byte
	onePiece   piece
}

// makeExchange makes room for a request's partitions.
func makeExchange(partitions int) *exchange {
	if partitions > 1 {
		return &exchange{entries: make([]entry, partitions), ready: make([]int, 0, partitions), open: partitions, held: partitions}
	}
	s := new(smallExchange)
	x := &s.exchange
	x.entries, x.open, x.held = s.oneEntry[:partitions], partitions, partitions
	x.topics, x.ready = s.oneTopic[:0], s.oneReady[:0]
	x.digests, x.frame, x.spare = s.fewDigests[:0], s.answer[:0], &s.onePiece
	return x
}

// digestsAtOnce is how many records of small batches share memory.
const digestsAtOnce = 256

// makeRecords gives room for the records of a batch. What the fence keeps of a
// batch beyond its verdict it copies.
func (x *exchange) makeRecords(n int) []ps.Record {
	if cap(x.digests)-len(x.digests) < n {
		x.digests = make([]ps.Record, 0, max(n, min(digestsAtOnce, n*len(x.entries))))
	}
	from := len(x.digests)
	x.digests = x.digests[:from+n]
	return x.digests[from : from+n : from+n]
}

// clock is the time on the clientLoop, which is read again only after something
// was waited for: a decision is as good as its clock is late, and the clock costs a
// system call.
func (x *exchange) clock() ps.Now {
	if x.c.waited {
		x.c.waited = false
		x.at = now()
	}
	return x.at
}

// mayResend reports whether the fence may want the entry's batch sent again
// after a race that it lost.
func (e *entry) mayResend() bool { return e.ticket.AtEnd }

// waits reports whether the clientLoop keeps the entry's bytes: it may have to send
// them.
func (e *entry) waits() bool { return e.state == entryHeld || e.state == entrySent && e.mayResend() }

// moveLocked moves an entry to another state.
func (x *exchange) moveLocked(e *entry, to entryState) {
	if e.waits() {
		x.held--
	}
	e.state = to
	if e.waits() {
		x.held++
	}
	if to == entryReady {
		x.ready = append(x.ready, e.index)
	}
}

// sendPlain has an entry that is not fenced be sent with the next piece.
func (x *exchange) sendPlain(e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.moveLocked(e, entryReady)
}

// ready is called by the fence, under the lane's lock: the entry is to be
// sent with this stamp. False means that nobody will send it. If claimed, the
// caller has to drive the exchange when it holds no lock any more.
func (e *entry) ready(s *fence.Effect) (sendable, claimed bool) {
	x := e.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.released {
		return false, false
	}
	e.epoch, e.sequence, e.unstamped = int16(s.Epoch), int32(s.BaseSequence), s.Unstamped
	x.moveLocked(e, entryReady)
	return true, x.claimLocked()
}

// onlyFirst is the only entry of most exchanges.
var onlyFirst = []int{0}

// takeReady marks the ready entries as sent and tells whether others are held,
// or may have to be sent again. If none is, this was the last piece, and the fence is told so from then on:
// an entry that it makes ready afterwards would wait for its sending for ever.
func (x *exchange) takeReady() (ready []int, held bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.entries) > 1 && len(x.ready) > 0 {
		ready = make([]int, 0, len(x.ready))
	}
	for _, i := range x.ready {
		e := &x.entries[i]
		if e.state != entryReady {
			continue
		}
		x.moveLocked(e, entrySent)
		if len(x.entries) == 1 {
			ready = onlyFirst
		} else {
			ready = append(ready, i)
		}
	}
	x.ready = x.ready[:0]
	if !slices.IsSorted(ready) {
		slices.Sort(ready)
	}
	held = x.held > 0
	x.released = x.released || !held
	return ready, held
}

// decided is called by the fence, under the lane's lock.
func (e *entry) decided(at ps.Now, d *fence.Effect) {
	x := e.x
	e.lane.f.observe(e, at, d.Verdict)
	code, message := e.rule.tell(d.Verdict, e.ticket.Expected)
	x.mu.Lock()
	defer x.mu.Unlock()
	e.lane.users.Add(-1)
	e.failLocked(code, message)
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
func (e *entry) abandon() { e.x.via.abandon() }

// refuse decides an entry that never reached the fence.
func (x *exchange) refuse(e *entry, code int16, message string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.failLocked(code, message)
	x.doneLocked(e)
}

// failLocked makes the entry's result one without an offset.
func (e *entry) failLocked(code int16, message string) {
	e.result.ErrorCode, e.result.BaseOffset, e.result.LogAppendTime = code, -1, -1
	if message != "" {
		e.result.ErrorMessage = []byte(message)
	}
}

func (x *exchange) doneLocked(e *entry) {
	if e.state == entryDone {
		panic("proxy: partition decided twice")
	}
	if e.lane != nil {
		e.lane.f.metrics.inFlight.Add(-1)
	}
	e.traced.end(&e.result)
	x.moveLocked(e, entryDone)
	x.open--
	if x.held == 0 {
		x.wakeLocked()
	}
	if x.open == 0 {
		x.c.p.rules.leave(x.book, x.strays)
		x.finishLocked()
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
	if x.frame == nil {
		x.frame = make([]byte, 0, answerBytes*(1+len(x.topics)+len(x.entries)))
	}
	frame := append(x.frame, make([]byte, frameHead)...)
	if x.version >= flexibleProduce {
		frame = append(frame, 0) // no tagged fields in the header
	}
	w := wire.AppendProduceAnswer(frame, x.version, len(x.topics))
	next := 0
	for i := range x.topics {
		t := &x.topics[i]
		w.Topic(t.name, t.id, t.count)
		for range t.count {
			w.Partition(&x.entries[next].result)
			next++
		}
	}
	return w.End(x.throttle)
}

const (
	// frameHead is what the slot fills in: length and correlation id.
	frameHead = 8
	// answerBytes is about what an answer needs for a partition, and for a topic.
	answerBytes = 40
	// flexibleProduce is the Produce version from which on headers have tagged fields
	// (KIP-482).
	flexibleProduce = 9
)

// answered takes in what the broker said of an entry. What it claims for that is the
// caller's to drive.
func (e *entry) answered(at ps.Now, r *wire.ProduceResult, made *claims) {
	x := e.x
	if e.lane != nil {
		x.mu.Lock()
		e.result.LogStartOffset = r.LogStartOffset
		e.answeredTime = r.LogAppendTime
		x.mu.Unlock()
		if e.appendTime && r.ErrorCode == 0 && r.LogAppendTime == -1 {
			// Its timestamps are the clients' by now, so they must be checked.
			e.lane.f.topics.forget(e.lane.key.Topic)
		}
		e.lane.answered(at, &e.ticket, brokerAnswer(r), made)
		return
	}
	e.watched.answered(r)
	x.mu.Lock()
	defer x.mu.Unlock()
	partition := e.result.Partition
	// Where the partition's new leader is, which tagged fields say, is not
	// passed on: addresses are not, so the client asks for metadata.
	e.result = *r
	e.result.Partition = partition
	e.result.ErrorRecords, e.result.ErrorMessage = slices.Clone(r.ErrorRecords), slices.Clone(r.ErrorMessage)
	x.doneLocked(e)
}

// lost tells that the entry's transmission gets no answer; notSent: nor was a
// byte of it written.
func (e *entry) lost(at ps.Now, notSent bool) {
	switch {
	case e.lane != nil && notSent:
		e.lane.notSent(at, &e.ticket)
	case e.lane != nil:
		e.lane.abandoned(at, &e.ticket)
	default:
		e.watched.lost()
		e.x.mu.Lock()
		defer e.x.mu.Unlock()
		e.x.broken = errAnswer
		e.x.strays = e.x.strays || !notSent
		e.x.doneLocked(e)
	}
}

// cancel withdraws what was not sent: the connection is ending.
func (x *exchange) cancel() {
	x.mu.Lock()
	x.released = true
	x.mu.Unlock()
	at := now()
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
		e.lane.cancel(at, &e.ticket)
		x.mu.Lock()
		state := e.state
		x.mu.Unlock()
		switch state {
		case entryReady:
			// The fence counts it as sent, and is told otherwise.
			e.lane.notSent(at, &e.ticket)
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
	e.traced.became(outcomeGone)
	x.doneLocked(e)
}

// letGo drops what aliases the frame.
func (x *exchange) letGo() {
	x.clientID, x.request, x.view = nil, nil, nil
	for i := range x.entries {
		x.entries[i].records = nil
	}
}
