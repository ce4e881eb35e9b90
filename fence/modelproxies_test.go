package fence

import (
	"math/rand/v2"
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// varyProxies draws what the proxies and their clients are like.
func (w *modelWorld) varyProxies(rng *rand.Rand) {
	has := &w.varied.has
	if has[shortMemory] {
		w.cfg.MaxRecent = 1 + rng.IntN(4)
	}
	if has[limits] {
		w.cfg.MaxUnsettled = 2 + rng.IntN(3)
	}
	if has[forgetsClients] {
		w.cfg.ProducerKeep, w.cfg.MaxProducers = time.Duration(1+rng.IntN(4))*time.Second, rng.IntN(3)
	}
	for _, cl := range w.clients {
		switch r := rng.IntN(3); {
		case r == 0 && has[contents] && !cl.twin:
			cl.replay = ReplayContent
		case r == 1 && has[replaysOff]:
			cl.replay = ReplayOff
		}
	}
	w.varied.configs = []*Config{w.cfg}
	for range 2 {
		c := *w.cfg
		c.ViewMaxAge /= time.Duration(1 + rng.IntN(3))
		c.AdmissionWait *= time.Duration(1 + rng.IntN(3))
		if rng.IntN(2) == 0 {
			c.Fairness = Fairness{}
		}
		w.varied.configs = append(w.varied.configs, &c)
	}
}

// varyProxyStep lets something happen to a proxy.
func (w *modelWorld) varyProxyStep() {
	i := w.rng.IntN(len(w.proxies))
	p := w.proxies[i]
	awake := p.frozen <= w.now
	switch r := w.rng.IntN(12); {
	case r == 0 && w.has(crashes) && !w.calm && w.rng.IntN(3) == 0:
		w.happens(crashes)
		w.crashProxy(i)
	case r == 1 && w.has(evicts) && !p.part.Busy():
		w.happens(evicts)
		w.evict(i)
	case r == 2 && w.has(leaps) && !w.calm && w.rng.IntN(4) == 0:
		w.happens(leaps)
		p.clock.ahead += time.Duration(w.rng.Int64N(int64(4 * time.Second)))
		w.trace("p%d's clock leaps", p.id)
	case r == 3 && w.has(wallJumps):
		w.happens(wallJumps)
		most := int64(w.cfg.Margin) / 3
		p.clock.wall = time.Duration(w.rng.Int64N(2*most) - most)
		w.trace("p%d's wall clock is off by %v", p.id, p.clock.wall)
	case r == 4 && w.has(reloads) && awake:
		w.happens(reloads)
		p.part.Configure(w.varied.configs[w.rng.IntN(len(w.varied.configs))])
	case r < 8 && w.has(seesCommitted) && awake:
		if node := w.anyLeader(); w.cluster.replicas[node].leads {
			if hw := w.cluster.highWatermark(node); hw != ps.NoOffset {
				w.happens(seesCommitted)
				now := w.clockOf(p)
				w.apply(p, p.part.CommittedSeen(now, hw, now.Instant))
			}
		}
	}
}

// crashProxy has a proxy die and another begin in its place. What the first wrote
// may still arrive.
func (w *modelWorld) crashProxy(i int) {
	p := w.proxies[i]
	w.trace("p%d crashes", p.id)
	for _, conn := range w.conns {
		if conn.proxy != p {
			continue
		}
		if !conn.cut && w.rng.IntN(2) == 0 {
			conn.dead, conn.requests = true, nil
		}
		conn.cut = true
		conn.answers, conn.unread, conn.taken = nil, nil, nil
	}
	for _, t := range p.tickets {
		if t.gone {
			continue
		}
		t.gone = true
		t.client.open--
		t.client.again = 1 + w.rng.IntN(2)
	}
	p.tickets, p.views, p.records = nil, nil, nil
	w.begin(i, p)
}

// evict has a proxy forget a partition on which nothing goes on.
func (w *modelWorld) evict(i int) {
	p := w.proxies[i]
	w.trace("p%d forgets the partition", p.id)
	n := w.begin(i, p)
	n.frozen = p.frozen
	for _, conn := range w.conns {
		if conn.proxy == p {
			conn.proxy = n
		}
	}
	for _, cl := range w.clients {
		if cl.idem != nil && cl.idem.conn != nil && cl.idem.conn.proxy == p {
			cl.idem.conn.proxy = n
		}
		for _, conn := range cl.conns {
			if conn != nil && conn.proxy == p {
				conn.proxy = n
			}
		}
	}
}

// begin puts a proxy that knows nothing in the place of another.
func (w *modelWorld) begin(i int, old *modelProxy) *modelProxy {
	n := &modelProxy{id: old.id, state: new(ps.State), clock: old.clock}
	n.part = New(w.cfg, n.state)
	w.proxies[i] = n
	return n
}

// varyTicket has a batch be of another kind.
func (w *modelWorld) varyTicket(t *modelTicket) {
	if w.varied == nil {
		return
	}
	if w.cluster.marksByLogStart {
		t.Marking = MarkLogStartOffset
		w.happens(logStartMarks)
	}
	t.Replay = t.client.replay
	if t.Replay == ReplayContent {
		w.happens(contents)
	}
	if t.Replay == ReplayOff {
		w.happens(replaysOff)
	}
	if w.has(connections) {
		t.Connection = t.conn.id
	}
	if w.has(futures) && w.rng.IntN(4) == 0 {
		w.happens(futures)
		t.MaxTimestamp += ps.Timestamp(w.rng.IntN(4000))
		t.FirstTimestamp = t.MaxTimestamp
	}
	part, now := t.proxy.part, w.clockOf(t.proxy)
	if part.ReadsOld(now, &t.Batch) {
		w.happens(oldOffsets)
	}
	if end, ok := t.proxy.state.CommittedEnd(now.Instant, w.cfg.ViewMaxAge); ok && !t.AtEnd && t.Expected < end {
		if _, known := t.proxy.state.Known(t.Expected, min(t.end(), end)); known {
			w.happens(recalls)
		} else {
			w.happens(shortMemory)
		}
	}
	if len(part.senders.losing) > 0 {
		w.happens(connections)
	}
	if w.end() >= 1<<31 && w.cluster.first > 0 {
		w.happens(offsetsWrap)
	}
	if w.cfg.MaxUnsettled > 0 && len(t.proxy.state.Unsettled())+1 >= w.cfg.MaxUnsettled {
		w.happens(limits)
	}
}

func (w *modelWorld) end() ps.Offset { return w.cluster.end() }

// keepBefore has a client remember the batch that it sent from an offset, as it goes on
// to the next: if that follows it, it may make one of both.
func (w *modelWorld) keepBefore(cl *modelClient, at ps.Offset) {
	if !w.has(joins) || len(cl.records) == 0 || cl.atEnd {
		return
	}
	if w.rng.IntN(3) == 0 {
		cl.expected = at + ps.Offset(len(cl.records))
	}
	cl.before = modelSent{expected: at, records: cl.records, owners: cl.owners}
}

// varyConnection numbers the connections of clients that are not idempotent.
func (w *modelWorld) varyConnection(conn *modelConn) {
	if w.has(connections) {
		w.connections++
		conn.id = ps.ConnectionID(w.connections)
	}
}

// varySend reports whether a batch cannot be sent again: its bytes are gone.
func (w *modelWorld) varySend(t *modelTicket) bool {
	if !w.has(unsendables) {
		return false
	}
	if t.sends++; t.sends == 1 || w.rng.IntN(3) > 0 {
		return false
	}
	w.happens(unsendables)
	w.apply(t.proxy, t.proxy.part.Unsendable(w.clockOf(t.proxy), &t.Ticket))
	return true
}

// refuseBefore has a proxy refuse an idempotent client's batch by itself, as it does
// with what is malformed. False: this one is not.
func (w *modelWorld) refuseBefore(conn *modelConn, f *modelFrame) bool {
	if !w.has(refusedBefore) || w.calm {
		return false
	}
	malformed := false
	for _, o := range f.owners {
		if _, seen := w.varied.malformed[o]; !seen {
			w.varied.malformed[o] = w.rng.IntN(16) == 0
		}
		malformed = malformed || w.varied.malformed[o]
	}
	if !malformed {
		return false
	}
	w.happens(refusedBefore)
	t := w.ticket(conn.client, conn, f.expected, f.records, f.owners)
	t.frame, t.Producer = f, &f.client
	conn.taken = append(conn.taken, t)
	w.chain.admitted(t)
	t.client.open++
	p, v := conn.proxy, Verdict{Kind: Failed}
	if w.traced {
		w.trace("%s is refused before the fence", t)
	}
	effects := slices.Clone(p.part.Refused(w.clockOf(p), &t.Ticket))
	if known := p.state.Producer(f.client.ID); known != nil && known.Epoch() == f.client.Epoch && known.Broken() {
		w.chain.told(t, v) // unless it was out of place besides
	}
	w.apply(p, effects)
	t.client.open--
	w.answer(t, v)
	return true
}

// varyView may take the view from the last committed batch.
func (w *modelWorld) varyView(r *modelViewRead) {
	if !w.has(tailViews) || w.calm || w.rng.IntN(3) > 0 {
		return
	}
	if v, ok := w.cluster.tailView(r.node, r.at); ok {
		w.happens(tailViews)
		r.view, r.ok = v, true
	}
}

// join has a client make one batch of two.
func (w *modelWorld) join(cl *modelClient) bool {
	b := &cl.before
	if !w.has(joins) || len(b.records) == 0 || b.expected+ps.Offset(len(b.records)) != cl.expected || w.rng.IntN(2) == 0 {
		return false
	}
	w.happens(joins)
	cl.expected = b.expected
	cl.records = append(slices.Clip(b.records), cl.records...)
	cl.owners = append(slices.Clip(b.owners), cl.owners...)
	b.records = nil
	w.admit(cl, cl.expected, cl.records, cl.owners)
	return true
}

// answer is a broker's to a batch that it has appended, or had before.
func (c *modelCluster) answer(tx *modelTransmission) Answer {
	a := Answer{BaseOffset: c.offset(tx.base), LogAppendTime: tx.duplicateAt}
	if c.marksByLogStart {
		a.LogAppendTime, a.LogStart = -1, 0
		if tx.duplicateAt != -1 {
			a.LogStart = ps.NoOffset
		}
	}
	return a
}

// deposed is a broker's answer that does not lead any more.
func (c *modelCluster) deposed(tx *modelTransmission) Answer {
	a := Answer{Code: 6, BaseOffset: c.offset(tx.base), LogAppendTime: -1}
	if c.marksByLogStart {
		a.Code, a.BaseOffset = 7, 0 // kfake, which alone marks so, is never deposed
	}
	return a
}

// forgiven reports whether a breach is what a proxy may do that has forgotten
// clients.
func (c *modelChain) forgiven(b breach) bool {
	return c.w.has(forgetsClients) && b != stored
}
