package fence

import (
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// step lets one thing happen.
func (w *modelWorld) step() {
	w.steps++
	if w.tape != nil {
		w.tape.next()
	}
	w.pass()
	if w.varied != nil && w.varied.step(w) {
		return
	}
	p := w.proxies[w.rng.IntN(len(w.proxies))]
	i := w.rng.IntN(3)
	switch r := w.rng.IntN(1000); {
	case r < 120:
		w.act(w.clients[w.rng.IntN(len(w.clients))])
	case r < 280:
		w.brokerReads()
	case r < 430:
		w.brokerAnswers()
	case r < 580:
		w.viewStep(p)
	case r < 650:
		w.recordStep(p)
	case r < 840:
		w.cluster.replicate(i, 1+w.rng.IntN(4), w.clock(), w.cfg.ProducerExpiry)
		w.traceReplica("fetches", i)
	case r < 890:
		w.tick(p, w.calm || w.rng.IntN(4) > 0)
	case r < 945:
		if w.cluster.readsAll && w.cluster.replicas[i].leads && w.rng.IntN(10) > 0 {
			break // deposed leaders are what is dangerous to read
		}
		w.cluster.learn(i)
		w.afterLearning(i)
		w.traceReplica("learns who leads", i)
	case r < 950:
		w.cluster.replicas[i].expire(w.clock(), w.cfg.ProducerExpiry)
		w.traceReplica("forgets what has expired", i)
	case r < 960:
		w.idle(p)
	case w.calm || w.rng.IntN(4) > w.trouble:
	default:
		w.fault(p, i, r-960)
	}
}

func (w *modelWorld) traceReplica(what string, i int) {
	if !w.traced {
		return
	}
	r := &w.cluster.replicas[i]
	w.trace("broker %d %s: log end %d, hw %d, epoch %d, leads %v, state %v; the leader's hw is %d", i, what, len(r.log), r.hw, r.epoch, r.leads, r.hasState,
		w.cluster.replicas[w.cluster.leader].hw)
}

func (w *modelWorld) fault(p *modelProxy, i, kind int) {
	switch {
	case kind < 8:
		w.trace("elect %d", i)
		w.cluster.elect(i)
	case kind < 10:
		w.trace("crash %d", i)
		w.cluster.crash(i, w.rng.IntN(3))
		for _, conn := range w.conns {
			if conn.node == i {
				conn.dead, conn.requests, conn.working, conn.answers = true, nil, nil, nil
			}
		}
	case kind < 14:
		w.trace("out of sync %d", i)
		w.cluster.shrink(i)
	case kind < 28:
		if len(w.conns) > 0 {
			conn := w.conns[w.rng.IntN(len(w.conns))]
			if conn.proxy.frozen <= w.now {
				w.trace("cut p%d to %d", conn.proxy.id, conn.node)
				w.cut(conn)
			}
		}
	case kind < 31:
		w.trace("freeze p%d", p.id)
		p.frozen = w.now.Add(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
	case kind < 37:
		if len(p.tickets) > 0 && p.frozen <= w.now {
			t := p.tickets[w.rng.IntN(len(p.tickets))]
			if t.gone {
				return
			}
			if t.frame != nil {
				t.client.idem.lost = true
				return
			}
			w.trace("client of %v leaves", t)
			w.leave(t)
			t.client.again = 1 + w.rng.IntN(2)
		}
	case w.bypassed:
		w.trace("foreign append at %d", w.cluster.leader)
		w.digests++
		w.cluster.append(ps.Record{Digest: w.digests})
	}
}

// pass lets time pass, mostly little.
func (w *modelWorld) pass() {
	var d time.Duration
	switch r := w.rng.IntN(2000); {
	case r < 1950:
		d = time.Duration(w.rng.Int64N(int64(w.tempo)))
	case r < 1990 || w.calm:
		d = time.Duration(w.rng.Int64N(int64(60 * time.Millisecond)))
	case r < 1998:
		d = time.Duration(w.rng.Int64N(int64(3 * time.Second)))
	default:
		d = time.Duration(w.rng.Int64N(int64(16 * time.Second)))
	}
	w.now = w.now.Add(d)
	if d > 3*time.Second {
		// The brokers do not stand still for so long.
		for i := range w.cluster.replicas {
			w.cluster.learn(i)
			w.afterLearning(i)
		}
		for range 3 {
			for i := range w.cluster.replicas {
				w.cluster.replicate(i, 100, w.clock(), w.cfg.ProducerExpiry)
			}
		}
	}
}

func (w *modelWorld) tick(p *modelProxy, due bool) {
	if p.frozen > w.now {
		return
	}
	if at, ok := p.part.Wake(); due && (!ok || at > w.clockOf(p).Instant) {
		return
	}
	w.trace("tick p%d", p.id)
	w.apply(p, p.part.Tick(w.clockOf(p)))
}

// idle puts the state of a partition away and takes it up again.
func (w *modelWorld) idle(p *modelProxy) {
	if p.part.Busy() {
		return
	}
	if len(p.tickets) > 0 {
		w.fail("p%d is not busy with %d batches", p.id, len(p.tickets))
	}
	p.state.Idle(w.clockOf(p).Instant)
	p.part = New(w.cfg, p.state)
}

// pick finds a connection of which something holds, from a random one on.
func (w *modelWorld) pick(holds func(*modelConn) bool) *modelConn {
	n := len(w.conns)
	if n == 0 {
		return nil
	}
	from := w.rng.IntN(n)
	for i := range n {
		if conn := w.conns[(from+i)%n]; holds(conn) {
			return conn
		}
	}
	return nil
}

// brokerReads lets a broker take the next request off a connection.
func (w *modelWorld) brokerReads() {
	if w.rng.IntN(8) == 0 {
		w.conns = slices.DeleteFunc(w.conns, func(c *modelConn) bool { return c.cut && len(c.requests) == 0 && c.working == nil })
	}
	conn := w.pick(func(c *modelConn) bool { return c.working == nil && len(c.requests) > 0 })
	if conn == nil {
		return
	}
	tx := conn.requests[0]
	if conn.dead || w.now.Sub(tx.sentAt) > w.cfg.ConnectionIdle {
		conn.dead, conn.requests = true, nil
		return
	}
	if conn.cut && !w.calm && w.rng.IntN(3) > 0 {
		return // held on its way
	}
	conn.requests = conn.requests[1:]
	code := int16(19)
	if w.scarce == nil || w.calm || w.scarce.IntN(6) > 0 {
		code = w.cluster.produce(conn.node, tx, w.clock())
	}
	if w.traced {
		w.trace("broker %d takes %v: code %d base %d", conn.node, tx.ticket, code, tx.base)
	}
	if code != 0 {
		conn.answers = append(conn.answers, modelAnswerTo{tx, Answer{Code: code, BaseOffset: ps.NoOffset, LogAppendTime: -1}})
		return
	}
	tx.workedAt = w.now
	conn.working = tx
}

// brokerAnswers lets a broker answer what it has committed, or delivers an
// answer to its proxy.
func (w *modelWorld) brokerAnswers() {
	if w.rng.IntN(2) == 0 {
		conn := w.pick(func(c *modelConn) bool { return len(c.answers) > 0 && !c.cut && c.proxy.frozen <= w.now })
		if conn != nil {
			a := conn.answers[0]
			conn.answers = conn.answers[1:]
			if w.traced {
				w.trace("answer for %v: %+v", a.tx.ticket, a.answer)
			}
			w.apply(conn.proxy, conn.proxy.part.Answered(w.clockOf(conn.proxy), &a.tx.ticket.Ticket, a.answer))
		}
		return
	}
	w.pick(w.brokerFinishes)
}

// brokerFinishes answers what a connection's broker has in work, if it can.
func (w *modelWorld) brokerFinishes(conn *modelConn) bool {
	tx := conn.working
	if tx == nil {
		return false
	}
	r := &w.cluster.replicas[conn.node]
	a := w.cluster.answer(tx)
	switch {
	case !r.leads:
		a = w.cluster.deposed(tx)
	case r.hw >= tx.end:
	case w.now.Sub(tx.workedAt) > modelBrokerMax:
		a.Code = 7
	default:
		return false
	}
	conn.working = nil
	conn.answers = append(conn.answers, modelAnswerTo{tx, a})
	return true
}

// afterLearning: a deposed leader gives up what it has in work.
func (w *modelWorld) afterLearning(i int) {
	if w.cluster.replicas[i].leads {
		return
	}
	for _, conn := range w.conns {
		if tx := conn.working; tx != nil && conn.node == i {
			conn.working = nil
			conn.answers = append(conn.answers, modelAnswerTo{tx, w.cluster.deposed(tx)})
		}
	}
}

func (w *modelWorld) viewStep(p *modelProxy) {
	if len(p.views) == 0 {
		return
	}
	i := w.rng.IntN(len(p.views))
	r := p.views[i]
	switch {
	case r.step == 0:
		r.step = 1
		r.view, r.ok = w.cluster.view(r.node, r.at)
		w.varyView(r)
		if w.traced {
			w.trace("broker %d tells p%d a view", r.node, p.id)
		}
	case r.step == 1:
		r.step = 2
		if r.view.FromTail {
			break
		}
		if r.ok && w.cluster.replicas[r.node].leads && w.cluster.replicas[r.node].epoch == int(r.view.LeaderEpoch) {
			r.view.HighWatermark = w.cluster.highWatermark(r.node)
		} else {
			r.ok = false
		}
	case p.frozen <= w.now:
		p.views[i] = p.views[len(p.views)-1]
		p.views = p.views[:len(p.views)-1]
		switch lost := !w.calm && w.rng.IntN(30) == 0; {
		case r.ok && !lost:
			if w.traced {
				w.trace("p%d reads view %v of %v ago", p.id, r.view, w.clockOf(p).Instant.Sub(r.at))
			}
			w.apply(p, p.part.ViewRead(w.clockOf(p), r.asked, r.view))
		default:
			code := int16(6)
			if lost {
				code = 0
			}
			w.trace("p%d fails to read view at %d: %d", p.id, r.asked, code)
			w.apply(p, p.part.ViewFailed(w.clockOf(p), r.asked, code, false))
		}
	}
}

func (w *modelWorld) recordStep(p *modelProxy) {
	if len(p.records) == 0 {
		return
	}
	i := w.rng.IntN(len(p.records))
	r := p.records[i]
	switch {
	case !r.read:
		r.read = true
		upTo := r.upTo
		if w.rng.IntN(8) == 0 && !w.calm {
			upTo = r.from + ps.Offset(w.rng.Int64N(int64(max(1, r.upTo-r.from))))
		}
		r.got, r.ok = w.cluster.read(w.anyLeader(), r.from, upTo, r.at)
	case p.frozen <= w.now:
		p.records[i] = p.records[len(p.records)-1]
		p.records = p.records[:len(p.records)-1]
		if r.ok && (w.calm || w.rng.IntN(30) > 0) {
			if w.traced {
				w.trace("p%d reads records %d..%d: %d of hw %d", p.id, r.from, r.upTo, len(r.got.Records), r.got.HighWatermark)
			}
			w.apply(p, p.part.RecordsRead(w.clockOf(p), r.id, r.got))
		} else {
			final := w.scarce != nil && !w.calm && w.scarce.IntN(4) == 0
			code := int16(0)
			if final && w.scarce.IntN(2) == 0 {
				code = 29
			}
			w.apply(p, p.part.RecordsFailed(w.clockOf(p), r.id, code, final))
		}
	}
}

// settleDown stops all faults and checks that every batch gets its verdict and
// that new ones win through every proxy.
func (w *modelWorld) settleDown() {
	w.calm, w.calmAt = true, w.steps
	w.tempo = min(w.tempo, 2*time.Millisecond)
	for _, p := range w.proxies {
		p.frozen = 0
	}
	w.trace("calm")
	w.quiet = true
	for _, cl := range w.clients {
		if cl.idem != nil {
			cl.idem.lost = true
		}
	}
	for _, conn := range w.conns {
		conn.unread = nil
	}
	until := w.now.Add(modelHold + modelAnswer + time.Second)
	for w.undecided() > 0 && w.failure == "" {
		if w.now > until {
			w.breaks(stuck, "%d batches undecided", w.undecided())
			return
		}
		w.step()
	}
	w.quiet = false
	for _, p := range w.proxies {
		w.freshWins(p)
	}
	for _, cl := range w.clients {
		if cl.idem != nil {
			w.idempotentWins(cl)
		}
	}
}

func (w *modelWorld) undecided() int {
	n := 0
	for _, p := range w.proxies {
		n += len(p.tickets)
	}
	return n
}

// waitFor lets time pass for a client that was told to come back when the fence's
// state has expired. Faults have ended, so that nothing is missed.
func (w *modelWorld) waitFor(cl *modelClient) {
	if cl.early {
		cl.early = false
		w.now = w.now.Add(w.cfg.ProducerExpiry / 100)
		for i := range w.cluster.replicas {
			w.cluster.replicas[i].expire(w.clock(), w.cfg.ProducerExpiry)
		}
	}
}

func (w *modelWorld) freshWins(p *modelProxy) {
	until := w.now.Add(3 * w.cfg.ProducerExpiry)
	cl := &modelClient{id: 100 + p.id, appendID: true, proxy: p.id, conns: make([]*modelConn, len(w.proxies))}
	before := w.wins
	for w.wins == before && w.failure == "" {
		if w.now > until {
			w.breaks(stuck, "nothing wins through p%d", p.id)
			return
		}
		if cl.open == 0 {
			w.waitFor(cl)
			cl.expected, cl.records, cl.owners = w.cluster.end(), nil, nil
			w.addRecord(cl)
			if conn := cl.conns[p.id]; conn != nil && conn.node != w.cluster.leader {
				cl.conns[p.id] = nil
			}
			w.admit(cl, cl.expected, cl.records, cl.owners)
		}
		w.step()
	}
}
