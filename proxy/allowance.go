package proxy

import (
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// allowance is how many batches a connection may send for offsets so old that
// their records must be read from the log: so many a second, and as many as in
// two seconds at once. Not for concurrent use.
type allowance struct {
	perSecond int
	left      float64
	at        ps.Instant // of left; 0: full
}

// allowanceSeconds is how much of an allowance may be used at once.
const allowanceSeconds = 2

func (a *allowance) refill(now ps.Instant) {
	most := float64(allowanceSeconds * a.perSecond)
	if a.at == 0 {
		a.left = most
	} else {
		a.left = min(a.left+now.Sub(a.at).Seconds()*float64(a.perSecond), most)
	}
	a.at = now
}

// take uses one up, if there is one.
func (a *allowance) take(now ps.Instant) bool {
	a.refill(now)
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// next is when there will be one.
func (a *allowance) next(now ps.Instant) ps.Instant {
	a.refill(now)
	missing := max(1-a.left, 0)
	return now.Add(time.Duration(missing / float64(a.perSecond) * float64(time.Second)))
}

// admitOrPutOff admits an entry to its lane, unless it costs a reading of old
// records and the connection has used up its allowance. Then it waits, and its
// connection with it, for no longer than a batch is held.
func (x *exchange) admitOrPutOff(e *entry) {
	at := x.clock()
	e.admittedAt = at.Instant
	if e.admitted = e.lane.admitWithin(at, &e.ticket, &x.c.oldReads); !e.admitted {
		x.c.p.metrics.limit(limitOldReads, "remote", x.c.remote(), "topic", e.lane.topic.Name, "partition", e.lane.key.Partition)
		x.putOff = append(x.putOff, e)
	}
}

// admitPutOff admits what was put off, in order, as far as the allowance goes;
// what cannot wait for longer is left to the fence to give back. It returns how
// long to wait until it is called again; 0: nothing is put off any more.
func (x *exchange) admitPutOff() time.Duration {
	for len(x.putOff) > 0 {
		x.c.waited = true
		e, at := x.putOff[0], x.clock()
		if now := at.Instant; now < e.ticket.HoldUntil && !x.c.oldReads.take(now) {
			return max(min(x.c.oldReads.next(now), e.ticket.HoldUntil).Sub(now), time.Millisecond)
		}
		x.putOff = x.putOff[1:]
		e.admitted, e.admittedAt = true, at.Instant
		e.lane.admit(at, &e.ticket)
	}
	return 0
}

// admitWithin admits a ticket unless it costs a reading of old records and the
// allowance is used up; it reports whether it did. A lane that is closed takes it and drops
// it, as admit does.
func (l *lane) admitWithin(at ps.Now, t *fence.Ticket, pay *allowance) bool {
	admitted := true
	l.step(at, func(p *fence.Partition, at ps.Now) []fence.Effect {
		if p.ReadsOld(at, &t.Batch) && !pay.take(at.Instant) {
			admitted = false
			return nil
		}
		return p.Admit(at, t)
	})
	return admitted
}
