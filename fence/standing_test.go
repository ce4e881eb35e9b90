package fence

import (
	"slices"
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// standingWorld is a partition whose next batch is sent on a view.
type standingWorld struct {
	*Partition
	at ps.Now
}

func newStandingWorld(maxUnsettled int) *standingWorld {
	cfg := &Config{
		ViewMaxAge: time.Minute, AdmissionWait: time.Second, ConnectionIdle: time.Minute, Margin: time.Minute,
		ProducerExpiry: 24 * time.Hour, SameViewRounds: 4, MaxUnsettled: maxUnsettled, Fairness: testFairness,
	}
	return &standingWorld{New(cfg, new(ps.State)), ps.Now{Instant: 1_000_000, Wall: 1_000_000_000}}
}

func (w *standingWorld) admit(expected ps.Offset) *Ticket {
	t := &Ticket{Batch: Batch{
		Expected: expected, Records: []ps.Record{{Digest: uint64(expected) + 1}}, Connection: 1,
		HoldUntil: w.at.Instant.Add(time.Minute), AnswerWithin: time.Minute, MaxTimestamp: w.at.Wall,
	}}
	w.Admit(w.at, t)
	return t
}

func (w *standingWorld) view(next ps.Offset) {
	w.at.Instant++
	w.ViewRead(w.at, 0, ps.View{Next: next, HighWatermark: next, At: w.at.Instant, HasState: next > 0, Sequence: ps.Sequence(next), StateTimestamp: w.at.Wall, LeaderEpoch: 3})
}

// TestStandingFollowsABatch: what is shown of a partition from a batch's coming until
// its fate is unknown.
func TestStandingFollowsABatch(t *testing.T) {
	w := newStandingWorld(1)
	w.admit(0)
	if got := w.Standing(w.at.Instant); got.Undecided != 1 || got.Upstream != 0 || !got.ReadingView || got.HasView || got.Full {
		t.Errorf("before the view: got %+v", got)
	}
	w.view(0)
	if got := w.Standing(w.at.Instant); got.Undecided != 1 || got.Upstream != 1 || !got.HasView || got.View.LeaderEpoch != 3 || !got.Full {
		t.Errorf("sent: got %+v", got)
	}
	w.Abandoned(w.at, w.tickets[0])
	got := w.Standing(w.at.Instant.Add(time.Second))
	if got.Unknown != 1 || got.Upstream != 0 || got.UnknownSince != w.at.Instant || !got.Full {
		t.Errorf("abandoned: got %+v", got)
	}
}

// TestCountsFollowARace: a transmission that loses its race is another attempt.
func TestCountsFollowARace(t *testing.T) {
	w := newStandingWorld(8)
	first := w.admit(0)
	w.view(0)
	w.Answered(w.at, first, Answer{BaseOffset: 0, LogAppendTime: -1})
	lost := w.admit(1)
	w.Answered(w.at, lost, Answer{Code: codeOutOfOrderSequenceNumber, BaseOffset: -1})
	if w.Standing(w.at.Instant).Turn != TurnOthers {
		t.Errorf("after a lost race: got %v, want the turn with others", w.Standing(w.at.Instant).Turn)
	}
	w.taken(t)
	if got, want := *w.State().Counts(), (ps.Counts{Attempts: 2, LostRaces: 1, Appended: 1, Refused: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// taken has another's record lie at offset 1.
func (w *standingWorld) taken(t *testing.T) {
	t.Helper()
	w.at.Instant++
	effects := w.ViewRead(w.at, 0, ps.View{Next: 2, HighWatermark: 2, At: w.at.Instant, HasState: true, Sequence: 2, StateTimestamp: w.at.Wall, LeaderEpoch: 3})
	i := slices.IndexFunc(effects, func(e Effect) bool { return e.Kind == ReadRecords })
	if i < 0 {
		t.Fatalf("got %v, want a reading of records", effects)
	}
	w.RecordsRead(w.at, effects[i].Read, Stored{Records: []StoredRecord{{Offset: 1, Record: ps.Record{Digest: 99}}}, ReadTo: effects[i].UpTo, HighWatermark: 2, At: w.at.Instant})
}
