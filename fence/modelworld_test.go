package fence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// modelConfig has short times, so that everything expires within a schedule.
func modelConfig(broken guard) *Config {
	return &Config{
		ViewMaxAge: 2 * time.Second, AdmissionWait: 20 * time.Millisecond, ProducerExpiry: 13 * time.Second,
		ConnectionIdle: 3 * time.Second, Margin: time.Second, SameViewRounds: 8, broken: broken,
		Fairness: Fairness{ContendedFor: 200 * time.Millisecond, Turn: time.Millisecond, TurnAlone: time.Millisecond, TellWithin: 20 * time.Millisecond},
	}
}

const (
	modelHold      = time.Second
	modelAnswer    = 800 * time.Millisecond
	modelBrokerMax = 500 * time.Millisecond
)

// modelConn is the upstream connection of one client at one proxy.
type modelConn struct {
	proxy    *modelProxy
	node     int
	opened   ps.Instant
	cut      bool // the proxy knows that it is closed
	dead     bool // the broker will read no more of it
	requests []*modelTransmission
	working  *modelTransmission // its answer waits for the high watermark
	answers  []modelAnswerTo

	// Of an idempotent client.
	id     ps.ConnectionID
	client *modelClient
	unread []*modelFrame  // written, and not taken in by the proxy
	taken  []*modelTicket // taken in, and not answered: answers keep their order
	left   bool           // its client has closed it
}

type modelAnswerTo struct {
	tx     *modelTransmission
	answer Answer
}

type modelTicket struct {
	Ticket
	proxy   *modelProxy
	conn    *modelConn
	client  *modelClient
	owners  []int // which logical record each is
	told    int   // verdicts
	refused bool  // told that nothing of it by this ticket is in the log
	gone    bool  // its client does not wait any more
	order   int   // of admission
	sends   int   // transmissions, where they matter

	// Of an idempotent client.
	frame *modelFrame
	// behindGap: a batch that its client sent before it was refused, so that it
	// must not be appended. doomedBy is that one's verdict, or another that must
	// be this one's too.
	behindGap bool
	doomedBy  *Verdict
	verdict   Verdict
	before    *modelTicket // the newest one of its sequence
}

type modelViewRead struct {
	proxy *modelProxy
	asked ps.NodeID
	node  int
	at    ps.Instant
	step  int
	view  ps.View
	ok    bool
}

type modelRecordRead struct {
	proxy *modelProxy
	id    ReadID
	from  ps.Offset
	upTo  ps.Offset
	at    ps.Instant
	read  bool
	got   Stored
	ok    bool
}

type modelProxy struct {
	id      int
	clock   modelClock
	part    *Partition
	state   *ps.State
	frozen  ps.Instant // until
	tickets []*modelTicket
	views   []*modelViewRead
	records []*modelRecordRead
}

// modelClient sends one batch at a time and sends it again when it may.
type modelClient struct {
	id       int
	appendID bool
	twin     bool
	atEnd    bool // writes without a condition
	idem     *modelProducer
	proxy    int
	conns    []*modelConn
	open     int
	// the batch it is at
	expected ps.Offset
	records  []ps.Record
	owners   []int
	again    int
	before   modelSent // a batch before it, of which it may become a part
	replay   Replay
	resent   bool // copies of its batches without a condition may be anywhere
	next     ps.Offset
	// early: it was told to come back when the fence's state has expired.
	early bool
}

type weakVerdict struct {
	proxy  *modelProxy
	ticket *modelTicket
	at     ps.Instant
	kind   Kind
}

type modelWorld struct {
	rng     *dice
	dice    []*dice // all that draw while it runs
	tape    *tape   // nil: none
	steps   int     // done
	calmAt  int     // how many were done when faults ended
	cfg     *Config
	now     ps.Instant
	cluster modelCluster
	proxies []*modelProxy
	clients []*modelClient
	conns   []*modelConn
	digests uint64
	owner   int
	won     map[ps.Offset]int
	weak    map[ps.Record][]weakVerdict
	wins    int
	winsOf  map[*modelClient]int
	kinds   [PredecessorRefused + 1]int
	// admissions, producers and connections count.
	admissions, producers, connections int
	chain                              modelChain
	tempo                              time.Duration // most of the time, less than this passes in a step
	trouble                            int           // how many of four faults happen, less one
	// bypassed: plain producers write, too. Then records may be misplaced; what
	// is told of them must still be true.
	bypassed bool
	// late: proxies keep the connections of what they have abandoned, so that its
	// answer comes yet.
	late bool
	// old: all timestamps are of the past.
	old bool
	// predicts: clients expect the end that what is in flight will bring.
	predicts bool
	// scarce, when set, draws whether a broker lacks replicas and so refuses a
	// batch before it appends. It has a source of its own, so that schedules
	// without it stay as they are.
	scarce *dice
	// kind draws what the brokers and clients are like, from a source of its own
	// as well.
	kind                              *rand.Rand
	misplacements, violations, alarms int
	calm                              bool // no more faults
	quiet                             bool // … and nothing is sent again
	trace                             func(format string, args ...any)
	traced                            bool // trace does something
	failure                           string
	// misplaced: the failure is a record at another offset than promised.
	misplaced bool
	// breach is what kind of failure it is.
	breach breach
	// varied is what else happens; nil: nothing.
	varied *modelVaried
}

// fail notes what went wrong first. What has no name of a breach goes by its format.
func (w *modelWorld) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		if w.breach == "" {
			w.breach = breach(format)
		}
	}
}

// breaks notes what went wrong first, and which promise it breaks.
func (w *modelWorld) breaks(b breach, format string, args ...any) {
	if w.failure == "" {
		w.breach = b
		w.fail(format, args...)
	}
}

func (w *modelWorld) clock() ps.Now {
	return ps.Now{Instant: w.now, Wall: ps.Timestamp(int64(w.now)/1e6) + 1_700_000_000_000}
}

// newModelWorld makes the world of a seed. A plain one has Kafka of today and
// conditional writers only.
func newModelWorld(seed uint64, broken guard, plain bool) *modelWorld {
	w := &modelWorld{
		cfg: modelConfig(broken), now: modelStart,
		won: map[ps.Offset]int{}, winsOf: map[*modelClient]int{}, weak: map[ps.Record][]weakVerdict{}, trace: func(string, ...any) {},
	}
	w.rng = w.newDice(seed, 0)
	w.chain = modelChain{
		w: w, gaps: map[modelLine]*modelGap{}, appended: map[int]int{}, sent: map[int]map[modelWay]bool{}, last: map[modelWay]ps.Sequence{},
	}
	c := &w.cluster
	c.inSync = [3]bool{true, true, true}
	c.onCommit = w.committed
	c.appendTime = w.rng.IntN(10) == 0
	w.kind = rand.New(rand.NewPCG(seed, 2))
	c.unmarked = !plain && w.kind.IntN(10) == 0
	c.armsAtZero = !plain && w.kind.IntN(6) == 0
	w.trouble = w.rng.IntN(4)
	w.tempo = []time.Duration{time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond}[w.rng.IntN(3)]
	w.history()
	for i := range c.replicas {
		c.replicas[i].epoch = -1
		c.replicas[i].hw = len(c.replicas[i].log)
		c.replicas[i].replay(0)
		c.learn(i)
	}
	for i := range 2 + w.rng.IntN(2) {
		p := &modelProxy{id: i, state: new(ps.State)}
		p.part = New(w.cfg, p.state)
		w.proxies = append(w.proxies, p)
	}
	for i := range 2 + w.rng.IntN(4) {
		cl := &modelClient{id: i, appendID: w.rng.IntN(2) == 0, proxy: w.rng.IntN(len(w.proxies))}
		cl.atEnd = !plain && w.kind.IntN(4) == 0
		cl.appendID = cl.appendID || (c.appendTime || c.unmarked) && !cl.atEnd // the proxy refuses others there
		cl.twin = !cl.appendID && w.rng.IntN(2) == 0 && !cl.atEnd
		cl.conns = make([]*modelConn, len(w.proxies))
		w.clients = append(w.clients, cl)
	}
	if !plain {
		w.makeIdempotent(rand.New(rand.NewPCG(seed, 3)), 4)
	}
	return w
}

// modelStart is when all schedules begin.
const modelStart = ps.Instant(time.Hour)

// newScarceWorld is one in which brokers refuse what they could append.
func newScarceWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, false)
	w.makeScarce(seed)
	return w
}

// newBypassedWorld is one in which plain producers write, too.
func newBypassedWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, false)
	w.bypassed = true
	return w
}

// makeScarce has brokers refuse batches for want of replicas, and lets bytes
// live for less long than replication may stand still: what is unknown may lie
// in some log, uncommitted, when no byte of it can be on its way any more.
func (w *modelWorld) makeScarce(seed uint64) {
	w.scarce = w.newDice(seed, 1)
	w.cfg.ConnectionIdle, w.cfg.Margin = 300*time.Millisecond, 100*time.Millisecond
	w.tempo = 10 * time.Millisecond
	w.trouble = 3
}

// history is what was in the log before the rule began: a fence state that has
// drifted from the offset, or a raised epoch, or nothing.
func (w *modelWorld) history() {
	var log []modelRecord
	written := w.clock().Wall - ps.Timestamp(w.rng.Int64N(w.cfg.ProducerExpiry.Milliseconds()))
	add := func(fence bool, epoch ps.ProducerEpoch, sequence ps.Sequence) {
		w.digests++
		log = append(log, modelRecord{Record: ps.Record{Digest: w.digests}, fence: fence, epoch: epoch, sequence: sequence, timestamp: written})
	}
	switch w.rng.IntN(6) {
	case 0:
		add(true, 0, 0)
		for range 1 + w.rng.IntN(3) {
			add(false, 0, 0)
		}
	case 1:
		add(false, 0, 0)
		add(true, 3, 1<<31-1-ps.Sequence(w.rng.IntN(4)))
	case 2:
		add(false, 0, 0)
	case 3:
		add(true, 0, 0)
	}
	for i := range w.cluster.replicas {
		w.cluster.replicas[i].log = slices.Clone(log)
	}
	w.cluster.committed = slices.Clone(log)
}

// committed checks each record that gets behind the high watermark.
func (w *modelWorld) committed(offset int, r *modelRecord) {
	if r.tx == nil {
		return
	}
	t := r.tx.ticket
	if w.bypassed {
		if offset != int(r.tx.expected)+r.place {
			w.misplacements++
		}
		return
	}
	if want := int(r.tx.expected) + r.place; offset != want {
		w.misplaced = true
		w.breaks(misplaced, "record of %s committed at %d, promised %d", t, offset, want)
	}
	if t.refused && !t.twinAtEnd() {
		w.breaks(refusedInVain, "record of %s committed at %d after its refusal", t, offset)
	}
	if t.frame != nil && !t.twinAtEnd() {
		w.chain.committed(offset, r)
	}
	for _, v := range w.weak[r.Record] {
		// After a long time without an answer a proxy gives a transmission up.
		given := r.tx.sentAt.Add(w.cfg.copyLife() + w.cfg.givenUpAfter() - t.proxy.clock.ahead)
		if v.proxy == t.proxy && v.ticket != t && r.tx.sentAt < v.at && v.at < given {
			w.breaks(refusedUpstream, "record of %s committed at %d, yet %s was told %v while it was upstream", t, offset, v.ticket, v.kind)
		}
	}
}

// twinAtEnd: its batch may lie anywhere and equals others', so that which of them
// wrote a record does not matter.
func (t *modelTicket) twinAtEnd() bool { return t.AtEnd && (t.client.twin || t.client.resent) }

func (t *modelTicket) String() string {
	name := fmt.Sprintf("p%d/c%d[%d..%d o%v]", t.proxy.id, t.client.id, t.Expected, t.end()-1, t.owners)
	if t.frame != nil {
		name += " " + t.frame.String()
	}
	return name
}

// apply carries out what a partition wants.
func (w *modelWorld) apply(p *modelProxy, effects []Effect) {
	for _, e := range slices.Clone(effects) {
		var t *modelTicket
		if e.Ticket != nil {
			t = e.Ticket.Owner.(*modelTicket)
		}
		if w.traced {
			w.trace("  p%d: %v %v", p.id, t, e)
		}
		switch e.Kind {
		case Send:
			w.send(t, e)
		case Decide:
			w.verdict(p, t, e.Verdict)
		case ReadView:
			w.readView(p, e.Node)
		case ReadRecords:
			p.records = append(p.records, &modelRecordRead{proxy: p, id: e.Read, from: e.From, upTo: e.UpTo, at: w.clockOf(p).Instant})
		case Abandon:
			if !w.late {
				w.cut(t.conn)
			}
		case ForgotProducer:
			w.happens(forgetsClients)
		case RaiseAlarm:
			// Armed with 0 once more, after another replica's state had expired, a
			// leader can hold an older batch that has the next sequence.
			rearmed := w.cluster.armsAtZero && e.Alarm == Undecidable
			if w.alarms++; !w.bypassed && !rearmed {
				w.breaks(falseAlarm, "p%d raised %v for %v", p.id, e, t)
			}
		}
	}
}

func (w *modelWorld) readView(p *modelProxy, asked ps.NodeID) {
	r := &modelViewRead{proxy: p, asked: asked, node: int(asked), at: w.clockOf(p).Instant}
	if asked == ps.AnyNode {
		r.node = w.anyLeader()
	}
	p.views = append(p.views, r)
}

// anyLeader is a broker that believes to lead, not always rightly.
func (w *modelWorld) anyLeader() int {
	if w.calm || w.rng.IntN(4) > 0 {
		return w.cluster.leader
	}
	for i := range w.cluster.replicas {
		if w.cluster.replicas[i].leads {
			return i
		}
	}
	return 0
}

func (w *modelWorld) send(t *modelTicket, e Effect) {
	if t.conn.cut || t.conn.dead && w.rng.IntN(2) == 0 {
		t.conn.cut, t.conn.dead = true, true
		w.trace("  not sent: connection closed")
		w.apply(t.proxy, t.proxy.part.NotSent(w.clockOf(t.proxy), &t.Ticket))
		return
	}
	if w.varySend(t) {
		return
	}
	tx := &modelTransmission{
		ticket: t, expected: t.Expected, records: t.Records, epoch: e.Epoch, sequence: e.BaseSequence,
		maxTime: t.MaxTimestamp, sentAt: w.now, plain: e.Unstamped,
	}
	t.conn.requests = append(t.conn.requests, tx)
}

// cut closes a connection at the proxy's end. What was written may arrive.
func (w *modelWorld) cut(conn *modelConn) {
	if conn.cut {
		return
	}
	conn.cut = true
	conn.answers = nil
	if w.rng.IntN(2) == 0 {
		conn.dead, conn.requests = true, nil
	}
	p := conn.proxy
	for _, t := range slices.Clone(p.tickets) {
		if t.conn != conn || t.phase == done {
			continue
		}
		if t.phase == sent {
			w.apply(p, p.part.Abandoned(w.clockOf(p), &t.Ticket))
		}
		w.leave(t)
	}
}

// leave: the client of the ticket's connection is gone.
func (w *modelWorld) leave(t *modelTicket) {
	if t.phase == done || t.gone {
		return
	}
	t.gone = true
	t.client.open--
	if t.frame != nil && t.phase == waiting {
		w.chain.withdrawn(t)
	}
	w.apply(t.proxy, t.proxy.part.Cancel(w.clockOf(t.proxy), &t.Ticket))
	if t.phase == done && t.told == 0 {
		t.proxy.forget(t) // it was not sent, and nobody is there to be told
	}
}

func (p *modelProxy) forget(t *modelTicket) {
	p.tickets = slices.DeleteFunc(p.tickets, func(o *modelTicket) bool { return o == t })
}

// verdict checks what a client is told.
func (w *modelWorld) verdict(p *modelProxy, t *modelTicket, v Verdict) {
	t.told++
	w.kinds[v.Kind]++
	if t.told > 1 {
		w.breaks(decidedTwice, "%s decided twice, now %v", t, v)
	}
	if t.proxy != p {
		w.fail("%s decided by another proxy", t)
	}
	p.forget(t)
	w.checkVerdict(p, t, v)
	if t.frame != nil {
		w.chain.told(t, v)
	}
	if !t.gone {
		t.client.open--
		t.client.early = v.Kind == Retry && v.Reason == StateNearExpiry
		if t.frame != nil {
			w.answer(t, v)
			return
		}
		t.client.hear(w, t, v)
	}
}

func (w *modelWorld) checkVerdict(p *modelProxy, t *modelTicket, v Verdict) {
	log := w.cluster.committed
	if end := w.end(); v.Kind != Won && v.Kind != Violation && v.Next > end {
		w.breaks(nextAhead, "%s told %v, the committed end is %d", t, v, end)
	}
	switch v.Kind {
	case Won:
		w.wins++
		w.winsOf[t.client]++
		for i, r := range t.Records {
			o := v.Offset + ps.Offset(i)
			switch {
			case v.Offset != t.Expected && !t.AtEnd || w.cluster.at(o) == nil || w.cluster.at(o).Record != r:
				w.breaks(falseSuccess, "%s told %v, not in the committed log", t, v)
				return
			case !v.Replayed && !w.typeMatters() && !w.cluster.unmarked && w.cluster.at(o).tx.ticket != t:
				w.breaks(anothersSuccess, "%s told %v, which %s wrote", t, v, w.cluster.at(o).tx.ticket)
			}
			if owner, ok := w.won[o]; ok && owner != t.owners[i] && !t.again(w.cluster.at(o).tx.ticket) {
				w.breaks(anothersSuccess, "%s told %v, record %d was told so too", t, v, owner)
			}
			w.won[o] = t.owners[i]
		}
	case Violation:
		w.violations++
		if !w.bypassed || t.AtEnd || w.cluster.at(v.Offset) == nil || w.cluster.at(v.Offset).Record != t.Records[0] || v.Offset == t.Expected {
			w.breaks(falseViolation, "%s told %v", t, v)
		}
	case Unknown:
	case Taken, PredecessorRefused:
		t.refused = true
		if v.Kind == Taken && v.Next <= t.Expected {
			w.fail("%s told %v", t, v)
		}
		for i, r := range t.Records {
			if o := t.Expected + ps.Offset(i); o < v.Next && w.cluster.at(o) != nil && w.cluster.at(o).Record == r && !w.wasGone(v, o) {
				why := refusedInVain
				if v.Kind == PredecessorRefused {
					why = stored
				}
				w.breaks(why, "%s told %v, yet its record is at %d", t, v, o)
			}
		}
	default:
		t.refused = true
		if v.Kind == NotReached && v.Next >= t.Expected {
			w.fail("%s told %v", t, v)
		}
		for _, r := range t.Records {
			if !t.AtEnd {
				w.weak[r] = append(w.weak[r], weakVerdict{p, t, w.now, v.Kind})
			}
		}
	}
	if t.refused && !t.twinAtEnd() {
		for o := range log {
			if log[o].tx != nil && log[o].tx.ticket == t {
				w.breaks(refusedInVain, "%s told %v, yet it wrote %d", t, v, o)
			}
		}
		for _, r := range t.Records {
			for o := range log {
				if m := &log[o]; v.Kind == NotReached && m.tx != nil && m.Record == r && m.tx.ticket.proxy == p && m.tx.ticket.phase != done {
					w.breaks(refusedUpstream, "%s told %v while %s is in the log and not decided", t, v, m.tx.ticket)
				}
			}
		}
	}
}

// hear is what a client makes of a verdict.
func (cl *modelClient) hear(w *modelWorld, t *modelTicket, v Verdict) {
	cl.next = v.Next
	switch v.Kind {
	case Won:
		cl.next = t.end()
	case Unknown:
		if w.rng.IntN(2) == 0 {
			return
		}
	case Taken, NotReached:
		if w.rng.IntN(4) > 0 {
			return
		}
	}
	if v.Kind != Won {
		cl.again = 1 + w.rng.IntN(3)
	}
}

// act has a client send something.
func (w *modelWorld) act(cl *modelClient) {
	if cl.idem != nil {
		w.actIdempotent(cl)
		return
	}
	if w.calm || cl.open >= 3 {
		return
	}
	if w.rng.IntN(12) == 0 {
		cl.proxy = w.rng.IntN(len(w.proxies))
	}
	if cl.again > 0 && len(cl.records) > 0 {
		cl.again--
		w.retry(cl)
		return
	}
	if cl.open > 0 && w.rng.IntN(4) > 0 {
		return
	}
	end, before := w.cluster.end(), cl.expected
	switch r := w.rng.IntN(20); {
	case r < 12:
		cl.expected = end
	case r < 15:
		cl.expected = max(0, end-ps.Offset(1+w.rng.IntN(3)))
	case r < 17:
		cl.expected = end + ps.Offset(1+w.rng.IntN(2))
	default:
		cl.expected = max(cl.next, 0)
		if cl.open > 0 {
			cl.expected = cl.expected + ps.Offset(len(cl.records)) // on a predicted end
		}
	}
	w.keepBefore(cl, before)
	if w.predicts && w.rng.IntN(2) == 0 {
		cl.expected = w.proxies[cl.proxy].predicted(end)
	}
	cl.records, cl.owners = nil, nil
	for range 1 + w.rng.IntN(3) {
		w.addRecord(cl)
	}
	w.admit(cl, cl.expected, cl.records, cl.owners)
}

func (w *modelWorld) addRecord(cl *modelClient) {
	w.owner++
	r := ps.Record{AppendID: cl.appendID}
	if cl.twin && cl.atEnd {
		r.Digest = 1<<61 + uint64(w.rng.IntN(2))
	} else if o := cl.expected + ps.Offset(len(cl.records)); cl.twin {
		r.Digest = 1<<62 + uint64(o)*2 + uint64(w.rng.IntN(2))
	} else {
		w.digests++
		r.Digest = w.digests
	}
	cl.records = append(slices.Clip(cl.records), r)
	cl.owners = append(slices.Clip(cl.owners), w.owner)
}

// retry sends the records again, perhaps cut anew.
func (w *modelWorld) retry(cl *modelClient) {
	if w.join(cl) {
		return
	}
	switch n := len(cl.records); {
	case cl.atEnd && w.varied != nil:
		// Copies of a batch are as good as equal ones, of which little is promised to
		// clients that are not idempotent.
		cl.resent = true
	case n > 1 && w.rng.IntN(4) == 0:
		m := 1 + w.rng.IntN(n-1)
		w.admit(cl, cl.expected, cl.records[:m:m], cl.owners[:m:m])
		w.admit(cl, cl.expected+ps.Offset(m), cl.records[m:], cl.owners[m:])
		return
	case w.rng.IntN(6) == 0:
		w.addRecord(cl)
	}
	w.admit(cl, cl.expected, cl.records, cl.owners)
}

func (w *modelWorld) admit(cl *modelClient, expected ps.Offset, records []ps.Record, owners []int) {
	p := w.proxies[cl.proxy]
	if p.frozen > w.now {
		return
	}
	conn := cl.conns[cl.proxy]
	if conn == nil || conn.cut || w.rng.IntN(20) == 0 {
		node := w.cluster.leader
		if !w.calm && w.rng.IntN(8) == 0 {
			node = w.rng.IntN(3)
		}
		conn = &modelConn{proxy: p, node: node, opened: w.clockOf(p).Instant}
		w.varyConnection(conn)
		cl.conns[cl.proxy] = conn
		w.conns = append(w.conns, conn)
	}
	w.admitTicket(w.ticket(cl, conn, expected, records, owners))
}

func (w *modelWorld) ticket(cl *modelClient, conn *modelConn, expected ps.Offset, records []ps.Record, owners []int) *modelTicket {
	timestamp := w.clockOf(conn.proxy).Wall // clients stamp anew
	if w.rng.IntN(4) == 0 || w.old {
		timestamp -= ps.Timestamp(w.rng.Int64N(w.cfg.OldestTimestamp().Milliseconds()))
	}
	w.admissions++
	t := &modelTicket{proxy: conn.proxy, conn: conn, client: cl, owners: owners, order: w.admissions}
	t.Batch = Batch{
		Expected: expected, AtEnd: cl.atEnd, Records: records, MaxTimestamp: timestamp, FirstTimestamp: timestamp, Node: ps.NodeID(conn.node), ConnOpened: conn.opened,
		HoldUntil: w.clockOf(conn.proxy).Instant.Add(modelHold), AnswerWithin: modelAnswer,
	}
	if cl.atEnd {
		t.Expected = ps.NoOffset
	}
	if w.cluster.unmarked {
		t.Marking = MarkNone
	}
	w.varyTicket(t)
	t.Owner = t
	return t
}

func (w *modelWorld) admitTicket(t *modelTicket) {
	t.client.open++
	p := t.proxy
	p.tickets = append(p.tickets, t)
	if w.traced {
		w.trace("admit %v node %d append-id %v", t, t.conn.node, t.Records[0].AppendID)
	}
	w.apply(p, p.part.Admit(w.clockOf(p), &t.Ticket))
}
