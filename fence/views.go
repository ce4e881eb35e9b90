package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// viewRead is an outstanding reading of a view.
type viewRead struct {
	node  ps.NodeID
	begun ps.Instant
}

// ViewRead takes in a view that was asked for at node; its At must be an
// instant before the request was written.
func (p *Partition) ViewRead(now ps.Now, node ps.NodeID, v ps.View) []Effect {
	p.effects = p.effects[:0]
	p.lookForRivals(now, p.viewReadEnded(node), v)
	behind := p.state.Contradicts(v)
	fresh := p.state.ReadView(now.Instant, v)
	switch {
	case behind:
		p.effects = append(p.effects, Effect{Kind: RecheckTopic})
		p.giveBackAt(node, LeaderBehind)
	case !fresh && p.state.Deposed(v.LeaderEpoch):
		// The broker asked is a deposed leader that does not know it yet.
		p.giveBackAt(node, NotLeader)
	}
	for _, t := range p.tickets {
		switch {
		case !t.looking || !t.looksAt(node):
		case t.resting:
			t.looking, t.resting = false, false
		default:
			t.lookedInVain(now, 0)
		}
	}
	return p.resume(now)
}

// CommittedSeen tells that the log was committed up to end at some time since at,
// though the view that is being read has not come to rest: under load that
// bypasses the proxies it may never. What is below can be refused without it.
func (p *Partition) CommittedSeen(now ps.Now, end ps.Offset, at ps.Instant) []Effect {
	p.effects = p.effects[:0]
	p.state.SeeCommitted(now.Instant, end, at)
	return p.resume(now)
}

// giveBackAt gives back the batches that wait to be sent to node.
func (p *Partition) giveBackAt(node ps.NodeID, r Reason) {
	for _, t := range p.tickets {
		if t.phase == waiting && t.looksAt(node) && !t.held() {
			p.giveBack(t, r)
		}
	}
}

// ViewFailed tells that the view could not be read at node. code is the
// broker's error code or 0 if it could not be reached; final means that
// asking again will not help (the proxy may not read the topic).
func (p *Partition) ViewFailed(now ps.Now, node ps.NodeID, code int16, final bool) []Effect {
	p.effects = p.effects[:0]
	p.viewReadEnded(node)
	for _, t := range p.tickets {
		switch {
		case !t.looking || !t.looksAt(node):
			continue
		case t.phase != waiting:
		case final:
			p.decideUnsent(t, Verdict{Kind: Failed, Code: code})
		case code == 0:
			p.giveBack(t, Unreachable)
		default:
			p.giveBack(t, NotLeader)
		}
		t.lookedInVain(now, failurePause)
	}
	return p.resume(now)
}

// viewReadEnded tells when the reading at node was begun.
func (p *Partition) viewReadEnded(node ps.NodeID) (begun ps.Instant) {
	for i, r := range p.viewReads {
		if r.node == node {
			p.viewReads = append(p.viewReads[:i], p.viewReads[i+1:]...)
			return r.begun
		}
	}
	return 0
}

// looksAt reports whether a view read at node is one that the ticket asks
// for: waiting batches need it from the broker they will be sent to, those of
// unknown fate from the leader, whichever it is.
func (t *Ticket) looksAt(node ps.NodeID) bool {
	if t.phase == waiting {
		return t.Node == node
	}
	return node == ps.AnyNode
}

// readView asks for the view at node, unless that is under way already.
func (p *Partition) readView(now ps.Now, node ps.NodeID) {
	for _, r := range p.viewReads {
		if r.node == node {
			return
		}
	}
	p.turn.lookedAt = now.Instant
	p.viewReads = append(p.viewReads, viewRead{node, now.Instant})
	p.effects = append(p.effects, Effect{Kind: ReadView, Node: node})
}

// lookAt reads the view at node for the ticket, at the ticket's pace.
func (p *Partition) lookAt(now ps.Now, t *Ticket, node ps.NodeID) {
	if now.Instant < t.nextLook {
		p.wakeAt(t.nextLook)
		return
	}
	t.looking, t.resting = true, false
	p.readView(now, node)
}
