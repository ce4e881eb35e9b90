package proxy

import (
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// otherTopics is how topics beyond the limit are named: no topic can be called that.
const otherTopics = "(other)"

// topicCounts counts outcomes by topic, for so many topics; nil: for none. Its methods
// may be called concurrently.
type topicCounts struct {
	most int

	mu     sync.Mutex
	topics map[string]counts
	others counts
}

func newTopicCounts(most int) *topicCounts {
	if most == 0 {
		return nil
	}
	return &topicCounts{most: most, topics: map[string]counts{}, others: newCounts(outcomeNames)}
}

// of gives the counters of a topic that exists, or those that all others share; nil: it
// is not counted by topic.
func (t *topicCounts) of(topic string) counts {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.topics[topic]
	switch {
	case ok:
	case len(t.topics) < t.most:
		c = newCounts(outcomeNames)
		t.topics[topic] = c
	default:
		c = t.others
	}
	return c
}

// refused counts a batch that never came to a lane. It gives no counters to a topic that
// has none, and does not say that there are too many: clients can make names up.
func (t *topicCounts) refused(topic []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	c, ok := t.topics[string(topic)]
	t.mu.Unlock()
	if !ok {
		c = t.others
	}
	c[outcomeRefused].Add(1)
}

// inTopic counts an outcome in what topicCounts gave.
func (m *metrics) inTopic(topic counts, outcome string) {
	if topic == nil {
		return
	}
	topic[outcome].Add(1)
	if topic[outcome] == m.topics.others[outcome] {
		m.limit(limitMetricTopics)
	}
}

// read observes what was counted. It holds no lock meanwhile, since lanes are made under
// it.
func (t *topicCounts) read(observe func(int64, metric.MeasurementOption)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	topics := maps.Clone(t.topics)
	t.mu.Unlock()
	one := func(topic string, c counts) {
		for outcome, n := range c {
			if n := n.Load(); n > 0 {
				observe(n, metric.WithAttributes(attribute.String("topic", topic), attribute.String("outcome", outcome)))
			}
		}
	}
	for topic, c := range topics {
		one(topic, c)
	}
	one(otherTopics, t.others)
}
