package fence

import (
	"fmt"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// waitingWriters are connections with a batch each for one partition, each of which
// comes again when it has its verdict.
type waitingWriters struct {
	part     *Partition
	now      ps.Instant
	end      ps.Offset
	atEnd    bool
	appendID bool
	sent     *Ticket
	appends  int
	digest   uint64
}

func newWaitingWriters(n int, atEnd, appendID bool) *waitingWriters {
	cfg := &Config{
		ViewMaxAge: time.Hour, AdmissionWait: 50 * time.Millisecond, ProducerExpiry: 24 * time.Hour,
		ConnectionIdle: 10 * time.Minute, Margin: 10 * time.Minute, SameViewRounds: 4, MaxUnsettled: 1024, Fairness: Fairness{TellWithin: 100 * time.Millisecond},
	}
	w := &waitingWriters{part: New(cfg, new(ps.State)), now: ps.Instant(time.Hour), atEnd: atEnd, appendID: appendID}
	w.part.ViewRead(w.clock(), 1, ps.View{Leader: 1, LeaderEpoch: 1, HighWatermark: 0, At: w.now})
	for i := range n {
		w.come(ps.ConnectionID(i+1), 0)
	}
	return w
}

func (w *waitingWriters) clock() ps.Now {
	return ps.Now{Instant: w.now, Wall: ps.Timestamp(w.now) / 1e6}
}

// come has a connection's next batch come, for a place if it has a condition.
func (w *waitingWriters) come(id ps.ConnectionID, place ps.Offset) {
	if w.atEnd {
		place = ps.NoOffset
	}
	w.digest++
	w.take(w.part.Admit(w.clock(), &Ticket{Batch: Batch{
		Expected: place, AtEnd: w.atEnd, Records: []ps.Record{{Digest: w.digest, AppendID: w.appendID}}, Connection: id, Node: 1,
		HoldUntil: w.now.Add(time.Minute), AnswerWithin: time.Minute, ConnOpened: 1, MaxTimestamp: ps.Timestamp(w.now) / 1e6,
	}}))
}

func (w *waitingWriters) take(effects []Effect) {
	type again struct {
		id   ps.ConnectionID
		next ps.Offset
	}
	var all []again
	for _, e := range effects {
		switch e.Kind {
		case Send:
			w.sent = e.Ticket
		case Decide:
			if e.Verdict.Kind == Won {
				w.appends++
				all = append(all, again{e.Ticket.Connection, e.Verdict.Offset + 1})
			} else {
				all = append(all, again{e.Ticket.Connection, e.Verdict.Next})
			}
		}
	}
	for _, a := range all {
		w.come(a.id, a.next)
	}
}

// append has what is in flight acknowledged.
func (w *waitingWriters) append(t testing.TB) {
	w.now = w.now.Add(time.Millisecond)
	sent := w.sent
	if sent == nil {
		t.Fatal("nothing is in flight")
	}
	w.sent = nil
	base := w.end
	w.end += ps.Offset(len(sent.Records))
	w.take(w.part.Answered(w.clock(), sent, Answer{BaseOffset: base, LogAppendTime: -1, LogStart: ps.NoOffset}))
}

// BenchmarkWaiting is an append to a partition for which many others wait.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{1, 16, 50, 300} {
		for _, kind := range []struct {
			name            string
			atEnd, appendID bool
		}{{"conditional", false, false}, {"end", true, false}, {"end-with-ids", true, true}} {
			b.Run(fmt.Sprintf("%s/writers=%d", kind.name, n), func(b *testing.B) {
				w := newWaitingWriters(n, kind.atEnd, kind.appendID)
				b.ReportAllocs()
				for b.Loop() {
					w.append(b)
				}
			})
		}
	}
}
