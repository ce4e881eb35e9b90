package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// A client chooses its timeout, and by long polls before it on the same
// connection for how long the broker does not look at its batch. Waited for
// without bound, the batch outlives the fence's state and lands anywhere.
func TestAnswersAreNotWaitedForBeyondTheBound(t *testing.T) {
	cfg := &Config{
		ViewMaxAge: time.Minute, AdmissionWait: time.Second, ConnectionIdle: time.Minute, Margin: time.Minute,
		ProducerExpiry: 24 * time.Hour, SameViewRounds: 4, MaxUnsettled: 8, AnswerMax: 2 * time.Minute,
	}
	at := func(d time.Duration) ps.Now {
		return ps.Now{Instant: ps.Instant(time.Hour + d), Wall: ps.Timestamp((time.Hour + d).Milliseconds())}
	}
	p := New(cfg, new(ps.State))
	ticket := &Ticket{Batch: Batch{
		Expected: 0, Records: []ps.Record{{Digest: 1}},
		HoldUntil: at(time.Minute).Instant, AnswerWithin: 24 * 24 * time.Hour,
	}}
	p.Admit(at(0), ticket)
	p.ViewRead(at(0), 0, ps.View{HighWatermark: 0, StateTimestamp: -1, At: at(0).Instant})
	if due, ok := p.Wake(); !ok || due > at(2*time.Minute).Instant {
		t.Errorf("got wake %v %v, want within 2 minutes", due, ok)
	}
	abandoned := false
	for _, e := range p.Tick(at(2 * time.Minute)) {
		abandoned = abandoned || e.Kind == Abandon
	}
	if !abandoned {
		t.Error("not abandoned after 2 minutes")
	}
	if servable := *cfg; !servable.Servable() {
		t.Error("not servable with a day's expiry")
	}
	cfg.ProducerExpiry = 2 * (5*time.Minute + time.Second)
	if !cfg.Servable() {
		t.Error("not servable although half the expiry exceeds the sum")
	}
	cfg.ProducerExpiry = 2 * 5 * time.Minute
	if cfg.Servable() {
		t.Error("servable although the wait for answers uses the expiry up")
	}
}
