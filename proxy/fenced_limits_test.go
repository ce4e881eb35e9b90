package proxy

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the operator asserts decides like what the brokers tell, and before it.
func TestAssertedLimitsDecideWhetherATopicIsServed(t *testing.T) {
	const notServed = 44 // POLICY_VIOLATION
	for _, test := range []struct {
		name    string
		cfg     Config
		configs map[string]string
		want    int16
	}{
		{"the interval is Kafka's, which is too long",
			Config{AssertedProducerExpiry: 30 * time.Minute, AssertedConnectionIdle: 10 * time.Minute}, nil, notServed},
		{"the interval is asserted",
			Config{AssertedProducerExpiry: 30 * time.Minute, AssertedConnectionIdle: 10 * time.Minute, AssertedExpiryCheck: time.Minute}, nil, 0},
		{"the interval is read, and too long",
			Config{AssertedProducerExpiry: 30 * time.Minute}, fenceTestConfigs(), notServed},
		{"the interval is asserted although it could be read",
			Config{AssertedProducerExpiry: 30 * time.Minute, AssertedExpiryCheck: time.Minute}, fenceTestConfigs(), 0},
		{"nothing is asserted and nothing can be read", Config{}, nil, notServed},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			l.configs = test.configs
			r := newFencedRig(t, test.cfg, l)
			if got := r.dial().one(0, conditional(0, "a")); got.Code != test.want {
				t.Errorf("got code %d (%s), want %d", got.Code, got.Message, test.want)
			}
			if limits := test.cfg.AssertedLimits(); limits.toldAll() {
				inForce := r.Proxy.cfg
				if got, want := inForce.Servable(limits), test.want == 0; got != want {
					t.Errorf("Servable(%+v): got %v, want %v", limits, got, want)
				}
			}
		})
	}
}

// What is refused or put off for a limit is told so, and counted under the
// limit's name.
func TestFenceLimitsAreCounted(t *testing.T) {
	counted := func(r *fencedRig, limit string) int64 { return r.metrics.limits.counted[limit].Load() }
	const unknown = "outcome unknown: expected=0 next=0; read the partition from 0"
	t.Run(limitAnswer, func(t *testing.T) {
		l := newLeader(t, "fenced")
		l.hook(func(*kmsg.ProduceRequest) fate { return fateSilent })
		r := newFencedRig(t, Config{AnswerMax: 50 * time.Millisecond}, l)
		l.change(func() { l.partition("fenced", 0).high = 0 }) // nothing is committed
		request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
		request.TimeoutMillis = 1000
		c := r.dial()
		wantResult(t, resultsOf(c.expect(c.send(request), 9))[0], -1, -1, unknown)
		if got := counted(r, limitAnswer); got != 1 {
			t.Errorf("got %d, want 1", got)
		}
	})
	t.Run(limitUnknown, func(t *testing.T) {
		l := newLeader(t, "fenced")
		l.hook(func(*kmsg.ProduceRequest) fate { return fateCutBefore })
		r := newFencedRig(t, Config{MaxUnknown: 1}, l)
		request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
		request.TimeoutMillis = 100
		c := r.dial()
		wantResult(t, resultsOf(c.expect(c.send(request), 9))[0], -1, -1, unknown)
		wantResult(t, r.dial().one(0, conditional(0, "b")), 6, -1, "not appended, send again: too many unknown")
		if got := counted(r, limitUnknown); got != 1 {
			t.Errorf("got %d, want 1", got)
		}
		if got := r.Proxy.metrics.retries["too_many_unknown"].Load(); got != 1 {
			t.Errorf("metric of retries: got %d, want 1", got)
		}
	})
	t.Run(limitReadings, func(t *testing.T) {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{MaxReadings: 1}, l)
		wantResult(t, r.dial().one(3, conditional(0, "a")), 0, 0, "") // the topic is known
		release := l.holdViews()
		before := l.count(kmsg.DescribeProducers)
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
		r.await("a view is being read", func() bool { return l.count(kmsg.DescribeProducers) > before })
		waited := counted(r, limitReadings) // that of the broker's kind may have
		r.dial().send(produceOf(9, -1, part{topic: "fenced", partition: 1, records: conditional(0, "a")}))
		r.await("a reading waits", func() bool { return counted(r, limitReadings) > waited })
		release()
		r.awaitQuiet()
		for p := range 2 {
			if got := l.end("fenced", p); got != 1 {
				t.Errorf("partition %d ends at %d, want 1", p, got)
			}
		}
	})
	t.Run(limitAddPartitions, func(t *testing.T) {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{MaxAddPartitionsBytes: 10}, l)
		c := r.dial()
		c.Send(1, addTopics(1, "fenced"))
		if rest := c.ExpectClosed(); len(rest) > 0 {
			t.Errorf("got %x, want no answer", rest)
		}
		if got := counted(r, limitAddPartitions); got != 1 {
			t.Errorf("got %d, want 1", got)
		}
	})
}
