package proxy

import (
	"path"
	"sync"
)

// ruleBook finds the mode of a topic by the rules, remembering what it found.
// Safe for concurrent use.
type ruleBook struct {
	rules    []Rule
	fallback Mode

	mu    sync.RWMutex
	found map[string]Mode
}

// longestTopicName is the most bytes that a topic's name can have in Kafka.
const longestTopicName = 249

// ruleMemory bounds the topics whose mode is remembered.
const ruleMemory = 100_000

func newRuleBook(rules []Rule, fallback Mode) *ruleBook {
	return &ruleBook{rules: rules, fallback: fallback, found: map[string]Mode{}}
}

// fenceAny reports whether any topic may be fenced.
func (b *ruleBook) fenceAny() bool {
	if b.fallback != ModeOff {
		return true
	}
	for _, r := range b.rules {
		if r.Mode != ModeOff {
			return true
		}
	}
	return false
}

// mode is the mode of a topic. It does not allocate for topics seen before.
func (b *ruleBook) mode(topic []byte) Mode {
	b.mu.RLock()
	m, ok := b.found[string(topic)]
	b.mu.RUnlock()
	if ok {
		return m
	}
	m = b.match(string(topic))
	if len(topic) > longestTopicName {
		return m // no broker has it, so it is not worth remembering
	}
	b.mu.Lock()
	if len(b.found) >= ruleMemory {
		clear(b.found)
	}
	b.found[string(topic)] = m
	b.mu.Unlock()
	return m
}

func (b *ruleBook) match(topic string) Mode {
	for _, r := range b.rules {
		// The pattern was validated; a topic's name has no '/'.
		if ok, _ := path.Match(r.Topics, topic); ok {
			return r.Mode
		}
	}
	return b.fallback
}
