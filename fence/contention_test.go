package fence

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// contention is proxies whose writers want the same places of one partition, and
// no faults: what counts is who wins. Each writer sends one record, waits for what
// it is told, and sends again at once, with the next offset that it was told.
// Times are drawn by chance, within bounds, from a seed: each run is repeatable.
type contention struct {
	times  contentionTimes
	random *rand.Rand
	now    ps.Instant
	events contentionEvents
	nth    int // event

	// The partition at its leader.
	log       []ps.Record
	committed ps.Offset
	last      ps.Sequence
	hasState  bool

	proxies []*contentionProxy
	counts  bool // what follows counts
	tries   int
	views   int // rounds of readings of views
	refused int // by their sequence
}

// contentionTimes are those of a network and of brokers.
type contentionTimes struct {
	link      time.Duration // proxy to broker, one way
	work      time.Duration // of a broker on one request
	replicate time.Duration // from append to commit
	client    time.Duration // client to proxy, one way
	chance    float64       // share of each time by which it may be longer or shorter
}

type contentionEvent struct {
	at  ps.Instant
	nth int
	do  func()
}

// contentionEvents is a heap: the next one is first.
type contentionEvents []contentionEvent

func (e contentionEvents) Len() int      { return len(e) }
func (e contentionEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *contentionEvents) Push(x any)   { *e = append(*e, x.(contentionEvent)) }
func (e contentionEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].nth < e[j].nth
}
func (e *contentionEvents) Pop() any {
	n := len(*e) - 1
	last := (*e)[n]
	*e = (*e)[:n]
	return last
}

type contentionProxy struct {
	c            *contention
	part         *Partition
	wake         ps.Instant // when its next tick comes; 0: none
	link, client time.Duration
	writers      []*contentionWriter
}

type contentionWriter struct {
	proxy *contentionProxy
	id    ps.ConnectionID // 0: the fence does not know it
	atEnd bool            // its batches may lie anywhere
	next  ps.Offset
	sent  ps.Instant
	// leaves: it is slow, and when it was to be first, it does not come back.
	leaves bool

	wins, losing, worst int
	waits               []time.Duration // from admission to success
}

// newContention makes proxies with these numbers of writers, which do not begin
// yet.
func newContention(times contentionTimes, fairness Fairness, writers ...int) *contention {
	c := &contention{times: times, random: rand.New(rand.NewPCG(1, 1)), now: ps.Instant(time.Hour)}
	cfg := &Config{
		ViewMaxAge: time.Minute, AdmissionWait: 50 * time.Millisecond, ProducerExpiry: 24 * time.Hour,
		ConnectionIdle: 10 * time.Minute, Margin: 10 * time.Minute, SameViewRounds: 4, Fairness: fairness,
	}
	for _, n := range writers {
		p := &contentionProxy{c: c, part: New(cfg, new(ps.State)), link: times.link, client: times.client}
		for range n {
			p.writers = append(p.writers, &contentionWriter{proxy: p, id: ps.ConnectionID(len(p.writers) + 1)})
		}
		c.proxies = append(c.proxies, p)
	}
	return c
}

// some is d, more or less.
func (c *contention) some(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - c.times.chance + 2*c.times.chance*c.random.Float64()))
}

func (c *contention) after(d time.Duration, do func()) {
	c.nth++
	heap.Push(&c.events, contentionEvent{c.now.Add(d), c.nth, do})
}

func (c *contention) clock() ps.Now { return ps.Now{Instant: c.now, Wall: ps.Timestamp(c.now) / 1e6} }

// run lets d pass.
func (c *contention) run(d time.Duration) {
	until := c.now.Add(d)
	for len(c.events) > 0 && c.events[0].at <= until {
		e := heap.Pop(&c.events).(contentionEvent)
		c.now = e.at
		e.do()
	}
	c.now = until
}

// measure has the proxies begin one after the other, the last late, and counts
// what they win within d after that.
func (c *contention) measure(late, d time.Duration) {
	for i, p := range c.proxies {
		if i > 0 && i == len(c.proxies)-1 {
			c.run(late)
		}
		p.begin()
		c.run(20 * time.Millisecond)
	}
	c.counts = true
	c.run(d)
}

// begin has a proxy's writers send.
func (p *contentionProxy) begin() {
	for _, w := range p.writers {
		w.send()
	}
}

func (p *contentionProxy) wins() int {
	n := 0
	for _, w := range p.writers {
		n += w.wins
	}
	return n
}

func (c *contention) wins() int {
	n := 0
	for _, p := range c.proxies {
		n += p.wins()
	}
	return n
}

// shares are the proxies' of the wins.
func (c *contention) shares() []float64 {
	var all []float64
	for _, p := range c.proxies {
		all = append(all, float64(p.wins())/float64(c.wins()))
	}
	return all
}

// smallestShare is that of the proxy that won least, of an even share.
func (c *contention) smallestShare() float64 {
	return slices.Min(c.shares()) * float64(len(c.proxies))
}

// worst is the most places in a row that a writer with a condition lost.
func (c *contention) worst() int {
	most := 0
	for _, p := range c.proxies {
		for _, w := range p.writers {
			most = max(most, w.worst, w.losing)
		}
	}
	return most
}

// slowest is the time within which this share of the wins was told.
func (c *contention) slowest(share float64) time.Duration {
	var all []time.Duration
	for _, p := range c.proxies {
		for _, w := range p.writers {
			all = append(all, w.waits...)
		}
	}
	slices.Sort(all)
	return all[int(share*float64(len(all)-1))]
}

func (w *contentionWriter) send() {
	p, c := w.proxy, w.proxy.c
	c.after(c.some(p.client), func() {
		w.sent = c.now
		if c.counts {
			c.tries++
		}
		t := &Ticket{Owner: w, Batch: Batch{
			Expected: w.next, AtEnd: w.atEnd, Records: []ps.Record{{Digest: c.random.Uint64()}},
			MaxTimestamp: c.clock().Wall, Connection: w.id, Node: 1,
			HoldUntil: c.now.Add(10 * time.Second), AnswerWithin: 20 * time.Second,
		}}
		if w.atEnd {
			t.Expected = ps.NoOffset
		}
		p.carryOut(p.part.Admit(c.clock(), t))
	})
}

func (p *contentionProxy) carryOut(effects []Effect) {
	c := p.c
	for _, e := range effects {
		switch e.Kind {
		case Send:
			p.produce(e.Ticket, e.BaseSequence)
		case Decide:
			w := e.Ticket.Owner.(*contentionWriter)
			c.after(c.some(p.client), func() { w.told(e.Verdict) })
		case ReadView:
			p.readView(e.Node, c.now, 1)
		case ReadRecords:
			p.readRecords(e)
		default:
			panic(e.String())
		}
	}
	if at, ok := p.part.Wake(); ok && (p.wake == 0 || at < p.wake) {
		p.wake = at
		c.after(max(at.Sub(c.now), 0), func() {
			if p.wake == at {
				p.wake = 0
				p.carryOut(p.part.Tick(c.clock()))
			}
		})
	}
}

func (w *contentionWriter) told(v Verdict) {
	c := w.proxy.c
	switch v.Kind {
	case Won:
		w.next = v.Offset + 1
		if c.counts {
			w.wins++
			w.waits = append(w.waits, c.now.Sub(w.sent))
		}
		w.losing = 0
	case Taken:
		w.next = v.Next
		w.losing++
		w.worst = max(w.worst, w.losing)
	case NotReached, Retry:
	default:
		panic(v.String())
	}
	if w.leaves {
		first := w.proxy.part.senders.deprived()
		if first != nil && first.id == w.id || w.losing == 50 {
			return
		}
		c.after(2*time.Millisecond, w.send)
		return
	}
	w.send()
}

// request is one to the broker: ask is called when it works on it, and answer with
// what it does to be told, once that has arrived.
func (p *contentionProxy) request(ask func() (answer func(), after time.Duration)) {
	c := p.c
	c.after(c.some(p.link)+c.some(c.times.work), func() {
		answer, later := ask()
		c.after(later+c.some(p.link), answer)
	})
}

func (p *contentionProxy) produce(t *Ticket, sequence ps.Sequence) {
	c := p.c
	p.request(func() (func(), time.Duration) {
		a := Answer{Code: codeOutOfOrderSequenceNumber, BaseOffset: ps.NoOffset, LogAppendTime: -1}
		wait := time.Duration(0)
		if !c.hasState || sequence == c.last.Plus(1) {
			a.Code, a.BaseOffset = codeNone, ps.Offset(len(c.log))
			c.log = append(c.log, t.Records...)
			c.hasState, c.last = true, sequence
			wait = c.some(c.times.replicate)
			c.after(wait, func() { c.committed = max(c.committed, a.BaseOffset+1) })
		}
		if c.counts && a.Code != codeNone {
			c.refused++
		}
		return func() { p.carryOut(p.part.Answered(c.clock(), t, a)) }, wait
	})
}

// readView asks for the log's end, the state, the end again and the committed end,
// until the log's end stands still. The third time the pair is the one behind the
// committed end.
func (p *contentionProxy) readView(node ps.NodeID, begun ps.Instant, try int) {
	c := p.c
	v := ps.View{Leader: 1, At: begun}
	if c.counts {
		c.views++
	}
	p.request(func() (func(), time.Duration) {
		v.Next, v.HasState, v.Sequence, v.StateTimestamp = ps.Offset(len(c.log)), c.hasState, c.last.Plus(1), c.clock().Wall
		still := false
		second := 2 * c.some(c.times.work)
		c.after(second, func() { still = v.Next == ps.Offset(len(c.log)) })
		third := second + c.some(c.times.work)
		c.after(third, func() { v.HighWatermark = c.committed })
		return func() {
			switch {
			case !still && try < 3:
				p.readView(node, begun, try+1)
				return
			case !still:
				v.Sequence = v.Sequence.Plus(int(v.HighWatermark - v.Next))
				v.Next, v.FromTail = v.HighWatermark, true
			}
			p.carryOut(p.part.ViewRead(c.clock(), node, v))
		}, third
	})
}

func (p *contentionProxy) readRecords(e Effect) {
	c := p.c
	s := Stored{At: c.now}
	p.request(func() (func(), time.Duration) {
		s.HighWatermark, s.ReadTo = c.committed, max(min(e.UpTo, c.committed), e.From)
		for o := e.From; o < s.ReadTo; o++ {
			s.Records = append(s.Records, StoredRecord{Offset: o, Record: c.log[o], ByFence: true})
		}
		return func() { p.carryOut(p.part.RecordsRead(c.clock(), e.Read, s)) }, 0
	})
}
