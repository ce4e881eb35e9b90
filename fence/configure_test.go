package fence

import (
	"testing"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// A partition that is never idle must hear that the brokers' expiry was
// lowered: its drift rule depends on it.
func TestConfigureChangesTheDriftRule(t *testing.T) {
	long := &Config{
		ViewMaxAge: time.Minute, AdmissionWait: time.Second, ConnectionIdle: time.Minute, Margin: time.Minute,
		ProducerExpiry: 24 * time.Hour, SameViewRounds: 4, MaxUnsettled: 8,
	}
	short := *long
	short.ProducerExpiry = 10 * time.Minute
	now := ps.Now{Instant: 1_000_000, Wall: 1_000_000_000}
	drifted := ps.View{
		Next: 5, HasState: true, Sequence: 9, HighWatermark: 5, At: now.Instant,
		StateTimestamp: now.Wall - ps.Timestamp((8 * time.Minute).Milliseconds()),
	}
	for _, tt := range []struct {
		name string
		cfg  *Config
		want string
	}{
		{"before", long, "send epoch 0 seq 9"},
		{"after", &short, "retry: state near expiry"},
	} {
		p := New(long, new(ps.State))
		p.Configure(tt.cfg)
		p.Admit(now, &Ticket{Batch: Batch{
			Expected: 5, Records: []ps.Record{{Digest: 1}}, HoldUntil: now.Instant.Add(time.Minute), AnswerWithin: time.Minute,
		}})
		got := p.ViewRead(now, 0, drifted)
		if len(got) != 1 || got[0].String() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, got, tt.want)
		}
	}
}
