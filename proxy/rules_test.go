package proxy

import (
	"fmt"
	"strings"
	"testing"
)

// book is a rule book for tests; full counts how often it forgot.
func book(t testing.TB, cfg Config) (b *ruleBook, full *int) {
	t.Helper()
	cfg.Bootstrap, cfg.Listen = []string{"broker:9092"}, "127.0.0.1:0"
	inForce, err := cfg.InForce()
	if err != nil {
		t.Fatal(err)
	}
	full = new(int)
	return newRuleBook(&inForce, func() { *full++ }), full
}

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	b, _ := book(t, Config{
		Rules: []Rule{
			{Topics: "orders.audit", Mode: ModeOff},
			{TopicsRegexp: `orders\.[0-9]+|a`, Mode: ModeEnforce, Options: RuleOptions{ErrorCode: 44}},
			{Topics: "orders.*", Mode: ModeRequire, Options: RuleOptions{ErrorCode: 87}},
			{TopicsRegexp: `(?i)seen.{1,3}`, Mode: ModeObserve},
		},
	})
	for _, test := range []struct {
		topic string
		mode  Mode
		code  int16
	}{
		{"orders.audit", ModeOff, 1},
		{"orders.12", ModeEnforce, 44},
		{"orders.12x", ModeRequire, 87},
		{"orders.", ModeRequire, 87},
		{"orders", ModeOff, 1},
		{"xorders.1", ModeOff, 1},
		{"a", ModeEnforce, 44},
		{"ab", ModeOff, 1},
		{"SEEN12", ModeObserve, 1},
		{"seen1234", ModeOff, 1},
		{"a\n", ModeOff, 1},
		{"", ModeOff, 1},
	} {
		for range 2 { // matched, then remembered
			if got := b.rule([]byte(test.topic)); got.mode != test.mode || got.code != test.code {
				t.Errorf("%q: got mode %d, code %d; want %d, %d", test.topic, got.mode, got.code, test.mode, test.code)
			}
		}
	}
	if got := b.most; got != ModeRequire {
		t.Errorf("most: got %d", got)
	}
}

func TestTopicsWithoutARuleHaveTheDefaultMode(t *testing.T) {
	b, _ := book(t, Config{Default: ModeEnforce, Rules: []Rule{{Topics: "free*"}}})
	if r := b.rule([]byte("free")); r.mode != ModeOff {
		t.Errorf("free: got mode %d", r.mode)
	}
	if r := b.rule([]byte("other")); r.mode != ModeEnforce || r.code != 1 || r.options.AppendIDHeader != "append-id" {
		t.Errorf("other: got %+v", r)
	}
}

func TestRuleMemoryIsBounded(t *testing.T) {
	b, full := book(t, Config{MaxRuleTopics: 3, Rules: []Rule{{Topics: "a*", Mode: ModeRequire}}})
	for i := range 8 {
		if r := b.rule(fmt.Appendf(nil, "a%d", i)); r.mode != ModeRequire {
			t.Errorf("a%d: got mode %d", i, r.mode)
		}
	}
	if len(b.found) > 3 || *full != 2 {
		t.Errorf("%d topics remembered, forgotten %d times; want at most 3, 2", len(b.found), *full)
	}
	long := []byte("a" + strings.Repeat("x", longestTopicName))
	before := len(b.found)
	if r := b.rule(long); r.mode != ModeRequire || len(b.found) != before {
		t.Errorf("a name that no topic has: got mode %d, %d remembered; want %d", r.mode, len(b.found), before)
	}
}

func TestATopicSeenBeforeCostsNoMemory(t *testing.T) {
	b, _ := book(t, Config{Rules: []Rule{{TopicsRegexp: "a.*", Mode: ModeRequire}}})
	topic := []byte("abc")
	b.rule(topic)
	if n := testing.AllocsPerRun(100, func() { b.rule(topic) }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}
