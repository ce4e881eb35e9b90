package proxy_test

import (
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestAssertedLimits(t *testing.T) {
	const day, hour, minute = 24 * time.Hour, time.Hour, time.Minute
	for _, test := range []struct {
		name string
		cfg  proxy.Config
		want proxy.BrokerLimits
	}{
		{"nothing asserted: all is read", proxy.Config{}, proxy.BrokerLimits{}},
		{"the rest is read", proxy.Config{AssertedProducerExpiry: day}, proxy.BrokerLimits{ProducerExpiry: day}},
		{"the interval alone", proxy.Config{AssertedExpiryCheck: minute}, proxy.BrokerLimits{ExpiryCheck: minute}},
		{"nothing is read, the interval is Kafka's", proxy.Config{AssertedProducerExpiry: day, AssertedConnectionIdle: hour},
			proxy.BrokerLimits{ProducerExpiry: day, ConnectionIdle: hour, ExpiryCheck: 10 * minute}},
		{"all asserted", proxy.Config{AssertedProducerExpiry: day, AssertedConnectionIdle: hour, AssertedExpiryCheck: minute},
			proxy.BrokerLimits{ProducerExpiry: day, ConnectionIdle: hour, ExpiryCheck: minute}},
		{"the embedded broker forgets nothing", proxy.Config{BrokerKind: proxy.EmbeddedKfake, AssertedExpiryCheck: minute},
			proxy.BrokerLimits{ProducerExpiry: day, ConnectionIdle: 10 * minute}},
	} {
		if got := test.cfg.AssertedLimits(); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// Half the expiry must exceed the sum of all that can hold up a batch.
func TestServable(t *testing.T) {
	cfg := proxy.Config{ViewMaxAge: time.Minute, AnswerMax: 2 * time.Minute, ClockSkew: 10 * time.Second}
	limits := proxy.BrokerLimits{ConnectionIdle: 10 * time.Minute, ExpiryCheck: 5 * time.Minute}
	limits.ProducerExpiry = 2 * (18*time.Minute + 10*time.Second)
	if cfg.Servable(limits) {
		t.Error("served although half the expiry is just what can be used up")
	}
	limits.ProducerExpiry += 2
	if !cfg.Servable(limits) {
		t.Error("not served although half the expiry is more than can be used up")
	}
	for name, worse := range map[string]proxy.BrokerLimits{
		"idle time": {ProducerExpiry: limits.ProducerExpiry, ConnectionIdle: limits.ConnectionIdle + 1, ExpiryCheck: limits.ExpiryCheck},
		"interval":  {ProducerExpiry: limits.ProducerExpiry, ConnectionIdle: limits.ConnectionIdle, ExpiryCheck: limits.ExpiryCheck + 1},
	} {
		if cfg.Servable(worse) {
			t.Errorf("served although the %s is 1 ns longer", name)
		}
	}
	cfg.AnswerMax++
	if cfg.Servable(limits) {
		t.Error("served although answers are waited for 1 ns longer")
	}
}
