package fence

import (
	"slices"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// lookFree decides what a batch that may get any offset waits for, or sends it
// to where the log ends. Its turn comes in order of admission; as for others, the
// wait for what is in flight is an optimisation and not a lock.
func (p *Partition) lookFree(now ps.Now, t *Ticket) {
	fresh := t.needAfter
	if oldest := p.inFlight(); oldest != nil {
		overtake, may := p.overtakes(now, oldest)
		if !may {
			return
		}
		fresh = max(fresh, overtake)
	}
	if t.Records[0].AppendID && p.recalled(t) {
		return
	}
	v, ok := p.viewFor(now, t, fresh)
	if !ok {
		p.lookAt(now, t, t.Node)
		return
	}
	t.Expected = v.Next
	if p.sendOn(now, t, v); t.phase == waiting {
		t.Expected = ps.NoOffset
	}
}

// recalled looks for the batch, whose records carry append-ids, in the memory of
// this proxy: among what was appended of late it is found to be a success, and
// among what is on its way or of unknown fate it is tied to that place. Where a
// batch that may lie anywhere would have to be looked for in the log, nobody
// knows.
func (p *Partition) recalled(t *Ticket) bool {
	if at, ok := p.state.Recall(t.Records); ok {
		p.decide(t, Verdict{Kind: Won, Offset: at, Replayed: true})
		return true
	}
	for _, o := range p.upstream {
		if i := slices.Index(o.Records, t.Records[0]); i >= 0 && o != t && o.isUpstream() {
			t.tie(o.Expected + ps.Offset(i))
			p.changed = true
			return true
		}
	}
	for _, u := range p.state.Unsettled() {
		// What is settled of it leaves nothing to wait for: a batch that is tied to
		// that, and is not there, would be free again and tied without end.
		if at, open := u.Tried(t.Records[0]); open {
			t.tie(at)
			p.changed = true
			return true
		}
	}
	return false
}
