package proxy

import (
	"testing"
	"time"
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
