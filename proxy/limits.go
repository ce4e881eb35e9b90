package proxy

import (
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
)

// BrokerLimits are the brokers' times that decide whether a topic can be
// fenced; zero means not known.
type BrokerLimits struct {
	// ProducerExpiry is producer.id.expiration.ms: how long a broker remembers
	// an idle producer, and the fence with it.
	ProducerExpiry time.Duration
	// ConnectionIdle is connections.max.idle.ms: how long what a frozen sender
	// has sent can still arrive.
	ConnectionIdle time.Duration
	// ExpiryCheck is producer.id.expiration.check.interval.ms: by how much a
	// broker may be late to forget.
	ExpiryCheck time.Duration
}

// KafkaLimits are those of Apache Kafka where nobody sets them.
func KafkaLimits() BrokerLimits {
	return BrokerLimits{ProducerExpiry: 24 * time.Hour, ConnectionIdle: 10 * time.Minute, ExpiryCheck: 10 * time.Minute}
}

// AssertedLimits gives the limits on the operator's word. What it leaves at
// zero is read from the brokers. With the expiry and the idle time asserted
// nothing is read, and the check interval is Kafka's unless it is asserted too.
// The embedded broker, whose state never expires, is not asked either.
func (c *Config) AssertedLimits() BrokerLimits {
	l := BrokerLimits{
		ProducerExpiry: c.AssertedProducerExpiry, ConnectionIdle: c.AssertedConnectionIdle, ExpiryCheck: c.AssertedExpiryCheck,
	}
	if c.BrokerKind == EmbeddedKfake {
		return l.embedded()
	}
	if l.toldAll() {
		l = l.Or(KafkaLimits())
	}
	return l
}

// embedded are the limits of a broker that tells none and forgets nothing.
func (l BrokerLimits) embedded() BrokerLimits {
	kafka := KafkaLimits()
	l.ExpiryCheck = 0
	return l.Or(BrokerLimits{ProducerExpiry: kafka.ProducerExpiry, ConnectionIdle: kafka.ConnectionIdle})
}

// Servable reports whether a topic on brokers with these limits is served, by
// fence.Config.Servable; c is in force.
func (c *Config) Servable(l BrokerLimits) bool {
	core := fence.Config{ViewMaxAge: c.ViewMaxAge, AnswerMax: c.AnswerMax}
	l.apply(&core, c.ClockSkew)
	return core.Servable()
}

// toldAll reports whether nothing has to be read from the brokers.
func (l BrokerLimits) toldAll() bool { return l.ProducerExpiry > 0 && l.ConnectionIdle > 0 }

// Or takes from others what is zero in l.
func (l BrokerLimits) Or(others BrokerLimits) BrokerLimits {
	if l.ProducerExpiry == 0 {
		l.ProducerExpiry = others.ProducerExpiry
	}
	if l.ConnectionIdle == 0 {
		l.ConnectionIdle = others.ConnectionIdle
	}
	if l.ExpiryCheck == 0 {
		l.ExpiryCheck = others.ExpiryCheck
	}
	return l
}

// worst combines the limits of two brokers, either of which may come to lead.
func (l BrokerLimits) worst(other BrokerLimits) BrokerLimits {
	return BrokerLimits{
		ProducerExpiry: min(l.ProducerExpiry, other.ProducerExpiry),
		ConnectionIdle: max(l.ConnectionIdle, other.ConnectionIdle),
		ExpiryCheck:    max(l.ExpiryCheck, other.ExpiryCheck),
	}
}

// apply tells the fence.
func (l BrokerLimits) apply(c *fence.Config, clockSkew time.Duration) {
	c.ProducerExpiry, c.ConnectionIdle, c.Margin = l.ProducerExpiry, l.ConnectionIdle, l.ExpiryCheck+clockSkew
}
