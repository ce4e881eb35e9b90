package fence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// modelStyle is what an idempotent client makes of errors, as libraries do.
type modelStyle int

const (
	// rewinding (franz-go): a failure fails all that is buffered, and the next
	// batch takes the failed one's sequence. To send again means to send all again.
	rewinding modelStyle = iota
	// bumping (Java): a failure raises the epoch at once, and what is not answered
	// begins again with sequence 0.
	bumping
	// draining (librdkafka): the same, when all is answered.
	draining
	// single (kafkajs): one batch at a time, and the sequence moves on with success.
	single
	styles
)

// modelProducer is the idempotent side of a client.
type modelProducer struct {
	style modelStyle
	id    ps.ProducerID
	epoch ps.ProducerEpoch
	next  ps.Sequence
	conn  *modelConn
	sent  []*modelSent // in order of sequence, not resolved
	drain bool         // to bump when nothing is in flight
	lost  bool         // its connection was closed by the proxy
	retry []*modelSent // failed, to be sent again by the application
}

// modelSent is a batch of an idempotent client that has no result yet.
type modelSent struct {
	expected ps.Offset
	records  []ps.Record
	owners   []int
	epoch    ps.ProducerEpoch
	sequence ps.Sequence
	flying   int  // transmissions without an answer, by the client's count
	unknown  int  // times that the proxy closed the connection on it
	again    bool // to be sent again
	over     bool
}

// modelFrame is a batch on its way to the proxy.
type modelFrame struct {
	sent     *modelSent
	client   ClientBatch
	expected ps.Offset
	records  []ps.Record
	owners   []int
}

// makeIdempotent gives clients producer ids.
func (w *modelWorld) makeIdempotent(rng *rand.Rand, one int) {
	for _, cl := range w.clients {
		if rng.IntN(one) > 0 {
			continue
		}
		w.producers++
		cl.idem = &modelProducer{style: modelStyle(rng.IntN(int(styles))), id: ps.ProducerID(w.producers)}
		cl.atEnd = rng.IntN(4) == 0
		cl.appendID = cl.appendID || (w.cluster.appendTime || w.cluster.unmarked) && !cl.atEnd
		cl.twin = cl.twin && !cl.atEnd && !cl.appendID
		if rng.IntN(8) == 0 {
			cl.idem.next = 1<<31 - 3
		}
	}
}

// newIdempotentWorld is a plain world with idempotent clients only.
func newIdempotentWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, true)
	w.makeIdempotent(rand.New(rand.NewPCG(seed, 3)), 1)
	return w
}

// actIdempotent lets a client send something, or a proxy take it in.
func (w *modelWorld) actIdempotent(cl *modelClient) {
	if w.quiet {
		return
	}
	if w.rng.IntN(2) == 0 {
		w.takeIn()
		return
	}
	pr := cl.idem
	if pr.conn == nil || pr.conn.cut || pr.lost || !w.calm && w.rng.IntN(30) == 0 {
		w.reconnect(cl)
	}
	if len(pr.conn.unread) >= 5 {
		return
	}
	if pr.drain {
		if slices.ContainsFunc(pr.sent, func(b *modelSent) bool { return b.flying > 0 }) {
			return
		}
		pr.drain = false
		pr.bump(true)
	}
	waits := false // for an answer, so that nothing later is sent again
	for _, b := range pr.sent {
		if b.again && !(waits && pr.style == bumping) {
			w.write(cl, w.mangle(cl, b))
			return
		}
		waits = waits || b.flying > 0
	}
	if len(pr.sent) > 0 && !w.calm && w.rng.IntN(20) == 0 {
		b := pr.sent[w.rng.IntN(len(pr.sent))]
		w.write(cl, b) // in flight already
		return
	}
	limit := 5
	if pr.style == single {
		limit = 1
	}
	if w.calm || len(pr.sent) >= limit {
		return
	}
	w.write(cl, w.newBatch(cl))
}

// reconnect has a client close its connection and open another, perhaps through
// another proxy. What it wrote may still be read.
func (w *modelWorld) reconnect(cl *modelClient) {
	pr := cl.idem
	if old := pr.conn; old != nil {
		old.left = true
		if old.cut || w.rng.IntN(2) == 0 {
			old.unread = nil
		}
		w.endOf(old)
	}
	pr.lost = false
	if !w.calm && w.rng.IntN(6) == 0 {
		cl.proxy = w.rng.IntN(len(w.proxies))
	}
	node := w.cluster.leader
	if !w.calm && w.rng.IntN(8) == 0 {
		node = w.rng.IntN(3)
	}
	w.connections++
	pr.conn = &modelConn{proxy: w.proxies[cl.proxy], node: node, opened: w.clockOf(w.proxies[cl.proxy]).Instant, id: ps.ConnectionID(w.connections), client: cl}
	w.conns = append(w.conns, pr.conn)
	for _, b := range pr.sent {
		b.again, b.flying = true, 0
	}
	w.trace("c%d connects to %d through p%d: connection %d", cl.id, node, cl.proxy, pr.conn.id)
}

// endOf: the proxy has read all of a connection that its client has closed.
func (w *modelWorld) endOf(conn *modelConn) {
	if !conn.left || len(conn.unread) > 0 {
		return
	}
	for _, t := range slices.Clone(conn.proxy.tickets) {
		if t.conn == conn {
			w.leave(t)
		}
	}
}

// newBatch makes the next batch: something new, or what has failed before.
func (w *modelWorld) newBatch(cl *modelClient) *modelSent {
	pr := cl.idem
	b := &modelSent{}
	end := w.cluster.end()
	switch r := w.rng.IntN(20); {
	case len(pr.retry) > 0 && r < 12:
		old := pr.retry[0]
		pr.retry = pr.retry[1:]
		b.expected, b.records, b.owners = old.expected, old.records, old.owners
	case len(pr.sent) > 0 && r < 17:
		last := pr.sent[len(pr.sent)-1]
		b.expected = last.expected + ps.Offset(len(last.records)) // on a predicted end
	case r < 18:
		b.expected = end
	default:
		b.expected = max(0, end-2+ps.Offset(w.rng.IntN(4)))
	}
	if b.records == nil {
		cl.expected, cl.records, cl.owners = b.expected, nil, nil
		for range 1 + w.rng.IntN(2) {
			w.addRecord(cl)
		}
		b.records, b.owners = cl.records, cl.owners
	}
	pr.append(b)
	return b
}

func (pr *modelProducer) append(b *modelSent) {
	b.epoch, b.sequence = pr.epoch, pr.next
	pr.next = pr.next.Plus(len(b.records))
	pr.sent = append(pr.sent, b)
}

// mangle cuts a batch anew before it is sent again, which some clients do.
func (w *modelWorld) mangle(cl *modelClient, b *modelSent) *modelSent {
	pr := cl.idem
	if cl.atEnd || pr.style == single || b.flying > 0 || w.rng.IntN(8) > 0 {
		return b
	}
	i := slices.Index(pr.sent, b)
	switch n := len(b.records); {
	case n > 1 && w.rng.IntN(2) == 0:
		rest := *b
		rest.expected, rest.sequence = b.expected+1, b.sequence.Plus(1)
		rest.records, rest.owners = b.records[1:], b.owners[1:]
		b.records, b.owners = b.records[:1:1], b.owners[:1:1]
		rest.again = true
		pr.sent = slices.Insert(pr.sent, i+1, &rest)
	case i == len(pr.sent)-1:
		cl.expected, cl.records, cl.owners = b.expected, b.records, b.owners
		w.addRecord(cl)
		b.records, b.owners = cl.records, cl.owners
		pr.next = b.sequence.Plus(len(b.records))
	}
	return b
}

func (w *modelWorld) write(cl *modelClient, b *modelSent) {
	pr := cl.idem
	b.again = false
	b.flying++
	pr.conn.unread = append(pr.conn.unread, &modelFrame{
		sent: b, client: ClientBatch{ID: pr.id, Epoch: b.epoch, Sequence: b.sequence, Connection: pr.conn.id},
		expected: b.expected, records: b.records, owners: b.owners,
	})
}

// takeIn lets a proxy take in the next batch of some connection.
func (w *modelWorld) takeIn() {
	conn := w.pick(func(c *modelConn) bool { return len(c.unread) > 0 && c.proxy.frozen <= w.now })
	if conn == nil {
		return
	}
	f := conn.unread[0]
	conn.unread = conn.unread[1:]
	if !conn.cut && !w.refuseBefore(conn, f) {
		t := w.ticket(conn.client, conn, f.expected, f.records, f.owners)
		t.frame, t.Producer = f, &f.client
		conn.taken = append(conn.taken, t)
		w.chain.admitted(t)
		w.admitTicket(t)
	}
	w.endOf(conn)
}

// answer lets a client hear what is decided, in the order in which it sent.
func (w *modelWorld) answer(t *modelTicket, v Verdict) {
	t.verdict = v
	conn := t.conn
	for len(conn.taken) > 0 && conn.taken[0].verdict.Kind != 0 {
		first := conn.taken[0]
		conn.taken = conn.taken[1:]
		conn.client.idem.hear(w, first, first.verdict)
	}
}

// again reports whether an idempotent client, who gave a sequence up, has made the
// very same batch of it again: then what it is told of the one is told of the other.
func (t *modelTicket) again(o *modelTicket) bool {
	return t.frame != nil && o.frame != nil && t.client == o.client && t.frame.client.Sequence == o.frame.client.Sequence &&
		slices.Equal(t.Records, o.Records)
}

// hear is what an idempotent client makes of a verdict.
func (pr *modelProducer) hear(w *modelWorld, t *modelTicket, v Verdict) {
	b := t.frame.sent
	if t.conn != pr.conn || b.over || pr.lost && w.has(refusedBefore) {
		return // of what it has given up
	}
	b.flying--
	switch {
	case v.Kind == Won:
		pr.resolve(b)
	case v.Kind == Unknown && t.AtEnd:
		pr.lost = true // the proxy closes the connection
		if b.unknown++; b.unknown > 10 {
			pr.failed(w, t, b, v) // its delivery timeout
			pr.bump(true)
		}
	case v.Kind == BrokerError && v.Code == codeOutOfOrderSequenceNumber:
		switch {
		case pr.style == draining && pr.sent[0] == b:
			w.producers++
			pr.id, pr.epoch = ps.ProducerID(w.producers), -1 // fatal: another producer
			pr.bump(true)
		case pr.style == bumping && pr.sent[0] != b || pr.style == draining:
			b.again = true
		default:
			pr.bump(true)
		}
	case v.Kind == BrokerError && v.Code == codeInvalidProducerEpoch:
		pr.bump(true)
	case v.Kind == Retry, v.Kind == BrokerError && retriable[v.Code]:
		b.again = true
		if pr.style == rewinding {
			for _, o := range pr.sent[slices.Index(pr.sent, b):] {
				o.again = true
			}
		}
	default:
		pr.failed(w, t, b, v)
	}
}

// failed: the application is told of an error.
func (pr *modelProducer) failed(w *modelWorld, t *modelTicket, b *modelSent, v Verdict) {
	gone := []*modelSent{b}
	if pr.style == rewinding {
		gone = slices.Clone(pr.sent)
		if w.has(refusedBefore) { // what is before it may be on its way yet
			gone = gone[slices.Index(gone, b):]
		}
		pr.next = gone[0].sequence
	}
	for _, o := range gone {
		pr.resolve(o)
		if v.Kind != Violation && len(pr.retry) < 3 && w.rng.IntN(3) == 0 && !t.AtEnd {
			pr.retry = append(pr.retry, o)
		}
	}
	switch pr.style {
	case bumping:
		pr.bump(false)
	case draining:
		pr.drain = true
	case single:
		pr.next = b.sequence
	}
}

func (pr *modelProducer) resolve(b *modelSent) {
	b.over = true
	pr.sent = slices.DeleteFunc(pr.sent, func(o *modelSent) bool { return o == b })
}

// bump raises the epoch; what is not resolved begins again with sequence 0, and
// is sent again, all of it or what is not in flight.
func (pr *modelProducer) bump(all bool) {
	pr.epoch++
	pr.next = 0
	for _, b := range pr.sent {
		b.epoch, b.sequence = pr.epoch, pr.next
		pr.next = pr.next.Plus(len(b.records))
		b.again = b.again || all || b.flying == 0
	}
}

// idempotentWins has a client go on until all that it has sent has its result, and
// something new wins.
func (w *modelWorld) idempotentWins(cl *modelClient) {
	until := w.now.Add(3 * w.cfg.ProducerExpiry)
	pr := cl.idem
	pr.retry = nil
	fresh, before := false, w.winsOf[cl]
	for (!fresh || w.winsOf[cl] == before) && w.failure == "" {
		if w.now > until {
			w.breaks(stuck, "nothing of the idempotent c%d wins", cl.id)
			return
		}
		if pr.conn != nil && pr.conn.node != w.cluster.leader {
			pr.lost = true
		}
		w.waitFor(cl)
		if len(pr.sent) == 0 {
			fresh, before = true, w.winsOf[cl]
			b := &modelSent{expected: w.cluster.end(), again: true}
			cl.expected, cl.records, cl.owners = b.expected, nil, nil
			w.addRecord(cl)
			b.records, b.owners = cl.records, cl.owners
			pr.append(b)
		}
		if w.rng.IntN(8) == 0 {
			w.actIdempotent(cl)
		}
		w.step()
	}
}

func (f *modelFrame) String() string {
	return fmt.Sprintf("%d/%d/%d@%d", f.client.ID, f.client.Epoch, f.client.Sequence, f.client.Connection)
}

// TestModelIdempotent has idempotent clients only, who pipeline, send again what
// is in flight, cut anew, rewind and raise their epochs.
func TestModelIdempotent(t *testing.T) {
	s := sweep(t, "idempotent", schedulesOf(4000, 300))
	s.wants(t, Won, Taken, NotReached, Unknown, BrokerError, Retry, PredecessorRefused)
}
