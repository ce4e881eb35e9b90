package proxy

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// rule is a Rule ready for use. It is never changed.
type rule struct {
	mode Mode
	// topics reports whether the rule is for a topic.
	topics func(topic string) bool
	// code is that of the refusals which options can choose.
	code int16
	// replay is what passes for a batch's own append.
	replay fence.Replay
	// inspectors read batches, by the rule's headers.
	inspectors *inspectorPool
	options    RuleOptions
	// since is when the topics of a copy of the rule came to this side of the fence;
	// see ruleBook.since.
	since ps.Instant
}

// names are the headers that the rule looks for.
func (o *RuleOptions) names() wire.HeaderNames {
	return wire.HeaderNames{ExpectedOffset: o.ExpectedOffsetHeader, AppendID: o.AppendIDHeader}
}

// fenced reports whether batches of the rule's topics go to the fence.
func (r *rule) fenced() bool { return r.mode >= ModeEnforce }

// unnamedTopic and unknownTopic are for partitions of a topic id. The first: its
// name cannot be found out now, so it may be a fenced one, and is refused later.
// The second: the broker does not know it; it may learn of it at any moment and
// the topic be a fenced one, so the partition is refused here rather than sent
// there to be refused.
// The third is the first where no topic can be fenced.
var (
	unnamedTopic = newRule(Rule{Mode: ModeRequire})
	unknownTopic = newRule(Rule{Mode: ModeRequire})
	unseenTopic  = newRule(Rule{Mode: ModeObserve})
)

// fenceReplay are the replays in the fence's words.
var fenceReplay = map[Replay]fence.Replay{ReplayID: fence.ReplayID, ReplayContent: fence.ReplayContent, ReplayOff: fence.ReplayOff}

// wireEncoding are the encodings in the words of the batches' reader.
var wireEncoding = map[Encoding]wire.Encoding{EncodingDecimal: wire.EncodingDecimal, EncodingInt64: wire.EncodingInt64}

// newRule readies a rule that was validated.
func newRule(r Rule) *rule {
	ready := &rule{mode: r.Mode, topics: r.Matcher(), options: r.Options.inForce()}
	ready.replay = fenceReplay[ready.options.Replay]
	ready.code = ready.options.ErrorCode
	return ready
}

// wholeName has an expression match a whole name or not at all.
func wholeName(expression string) string { return `\A(?:` + expression + `)\z` }

// inForce fills in the defaults.
func (o RuleOptions) inForce() RuleOptions {
	if o.ErrorCode == 0 {
		o.ErrorCode = kerr.OffsetOutOfRange.Code
	}
	if o.ExpectedOffsetHeader == "" {
		o.ExpectedOffsetHeader = "expected-offset"
	}
	if o.AppendIDHeader == "" {
		o.AppendIDHeader = "append-id"
	}
	return o
}

// ruleBook finds the rule of a topic, remembering what it found. Safe for
// concurrent use.
type ruleBook struct {
	// configured and otherwise are what the book was made of, defaults filled in.
	configured []Rule
	otherwise  Mode

	rules    []*rule
	fallback *rule
	// most is the largest mode that a topic may have.
	most   Mode
	memory int // bounds found
	full   func()

	mu    sync.RWMutex
	found map[string]*rule

	// from is when it came into force, and past what was in force before, the newest
	// first. No topic that is not found there to have changed sides of the fence has
	// done so after constant.
	from     ps.Instant
	past     []era
	constant ps.Instant

	// inWork counts the requests that are judged by it and not done with, and one
	// more while it is in force; done is closed by leave when there are none.
	inWork     atomic.Int64
	done       chan struct{}
	replacedAt atomic.Int64 // Instant
	complained atomic.Bool
	// earlier are the books before it whose requests are waited for; nil once
	// settledAt, an Instant, says since when there are none.
	earlier   atomic.Pointer[[]*ruleBook]
	settledAt atomic.Int64
}

// longestTopicName is the most bytes that a topic's name can have in Kafka.
const longestTopicName = 249

// newRuleBook readies the rules of a configuration that is in force. full is
// called each time what was found is forgotten, for the limit MaxRuleTopics.
func newRuleBook(cfg *Config, full func()) *ruleBook {
	b := &ruleBook{
		otherwise: cfg.Default, fallback: newRule(Rule{Mode: cfg.Default}),
		memory: cfg.MaxRuleTopics, full: full, found: map[string]*rule{},
		from: instant(), done: make(chan struct{}),
	}
	b.inWork.Store(1)
	for _, r := range cfg.Rules {
		b.rules = append(b.rules, newRule(r))
		r.Options = r.Options.inForce()
		b.configured = append(b.configured, r)
	}
	type headers struct {
		names    wire.HeaderNames
		encoding Encoding
	}
	pools := map[headers]*inspectorPool{}
	for _, r := range slices.Concat(b.rules, []*rule{b.fallback}) {
		h := headers{r.options.names(), r.options.Encoding}
		if pools[h] == nil {
			pools[h] = newInspectorPool(h.names, wireEncoding[h.encoding], cfg.MaxDecompressedBytes)
		}
		r.inspectors = pools[h]
		b.most = max(b.most, r.mode)
	}
	return b
}

// fences reports whether some topic may be fenced.
func (b *ruleBook) fences() bool { return b.most >= ModeEnforce }

// rule is the rule of a topic. It does not allocate for topics seen before.
func (b *ruleBook) rule(topic []byte) *rule {
	b.mu.RLock()
	r, ok := b.found[string(topic)]
	b.mu.RUnlock()
	if ok {
		return r
	}
	r = match(b.rules, b.fallback, string(topic))
	if since := b.since(string(topic), r.fenced()); since != 0 {
		changed := *r
		changed.since = since
		r = &changed
	}
	if len(topic) > longestTopicName {
		return r // no broker has it, so it is not worth remembering
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.found) >= b.memory {
		clear(b.found)
		b.full()
	}
	b.found[string(topic)] = r
	return r
}

func match(rules []*rule, fallback *rule, topic string) *rule {
	for _, r := range rules {
		if r.topics(topic) {
			return r
		}
	}
	return fallback
}
