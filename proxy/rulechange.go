package proxy

import (
	"sync/atomic"

	"github.com/offsetproxy/offsetproxy/wire"
)

// currentRules are the rules in force. Safe for concurrent use.
type currentRules struct {
	cfg  *Config
	full func()
	book atomic.Pointer[ruleBook]
}

func newCurrentRules(cfg *Config, m *metrics) *currentRules {
	c := &currentRules{cfg: cfg, full: func() { m.limit(limitRuleTopics) }}
	c.book.Store(newRuleBook(cfg, c.full))
	return c
}

// inForce are the rules that a request is to be judged by which is read now. A
// request takes them once, so that no part of it is judged by others.
func (c *currentRules) inForce() *ruleBook { return c.book.Load() }

// headers are the record headers that a topic's rule looks for. What is read from
// the log is compared by digests, which are the same by any names.
func (c *currentRules) headers(topic string) wire.HeaderNames {
	return c.inForce().rule([]byte(topic)).options.names()
}

// ChangeRules puts other rules, and another mode of topics that none of them
// matches, in the place of those of the configuration. Each request is judged by
// those that are in force when it is read, as a whole. What is known of
// partitions and clients stays. It may be called at any time and from any
// goroutine; of concurrent calls the last one counts. The error is a
// *ConfigError with the field as in Config; then nothing has changed.
func (p *Proxy) ChangeRules(rules []Rule, otherwise Mode) error {
	changed := p.cfg
	changed.Rules, changed.Default = rules, otherwise
	if err := changed.checkRules(); err != nil {
		return err
	}
	p.rules.book.Store(newRuleBook(&changed, p.rules.full))
	p.fencing.topics.forgetRefused()
	return nil
}

// tend learns the kinds of brokers, if there is any use for them.
func (f *fencing) tend() {
	if f.rules.inForce().most > ModeOff {
		f.kinds.tend()
	}
}
