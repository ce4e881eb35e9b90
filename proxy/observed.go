package proxy

import (
	"log/slog"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/wire"
)

// watched is a conditional batch under ModeObserve on its way. It is forwarded
// as it came, and the broker's answer tells what the fence would have said.
type watched struct {
	f         *fencing
	topic     string // empty from Produce version 13 on
	id        [16]byte
	name      string // of the topic
	partition int32
	expected  int64
}

// watch is what is watched of one request that is relayed as a whole.
type watch struct {
	version int16
	batches []*watched
}

// watch looks at the batches of a request none of which is fenced. It gives nil
// if no answer needs to be seen.
func (f *fencing) watch(c *conn, view *wire.Produce, rules []*rule) *watch {
	if len(view.Partitions) > f.maxPartitions {
		f.metrics.limit(limitPartitions, "remote", c.remote(), "partitions", len(view.Partitions))
		f.metrics.observed[observedUncounted].Add(int64(len(view.Partitions)))
		return nil
	}
	w := &watch{version: view.Version}
	for i := range view.Partitions {
		if b := f.observed(c, view, &view.Partitions[i], rules[i]); b != nil {
			w.batches = append(w.batches, b)
		}
	}
	if len(w.batches) == 0 {
		return nil
	}
	return w
}

// observed counts what the fence would say of a batch by itself, or gives the
// batch if that depends on where it is appended. The batch is not changed, and
// nothing is waited for.
func (f *fencing) observed(c *conn, view *wire.Produce, p *wire.ProducePartition, r *rule) *watched {
	switch {
	case r == unseenTopic:
		f.metrics.observed[observedUnnamed].Add(1)
		return nil
	case r.mode != ModeObserve:
		return nil
	}
	e := entry{rule: r}
	outcome, code, message := f.foresee(c, view, p, &e)
	switch {
	case code != 0:
		f.metrics.wouldRefuse(code)
		exists := false
		if c.node != unknownNode {
			_, exists = f.topics.look(c.node, string(p.Topic))
		}
		f.foreseen(exists, string(p.Topic), p.Partition, refusalName(code), "code", code, "reason", message)
		return nil
	case outcome != "":
		f.metrics.observed[outcome].Add(1)
		return nil
	}
	w := &watched{f: f, name: string(p.Topic), id: p.TopicID, partition: p.Partition, expected: int64(e.ticket.Expected)}
	if view.Version < 13 {
		w.topic = w.name
	}
	return w
}

// foresee examines a batch as the fence would. It gives an outcome, or the code
// of a refusal, or neither: then the batch's condition is in the entry's ticket.
func (f *fencing) foresee(c *conn, view *wire.Produce, p *wire.ProducePartition, e *entry) (outcome string, code int16, message string) {
	if view.TransactionalID != nil {
		return "", kerr.TopicAuthorizationFailed.Code, messageTransactional
	}
	header, code, message := f.examineHeader(view, p)
	if code != 0 {
		return "", code, message
	}
	if c.node == unknownNode {
		return observedUnready, 0, ""
	}
	// Of a broker whose kind is not known yet the best is assumed.
	if kind, known := f.kinds.peek(c.node, 0); known {
		if code, message := kind.refuses(view.Version); code != 0 {
			return "", code, message
		}
		e.ticket.Marking = kind.marking
	}
	topic, known := f.topics.look(c.node, string(p.Topic))
	switch {
	case !known:
		return observedUnready, 0, ""
	case topic.refusal != "":
		return "", kerr.PolicyViolation.Code, "topic is not served: " + topic.refusal
	}
	if code, message := f.inspect(header, p.Records, "", &topic, e); code != 0 {
		return "", code, message
	}
	switch {
	case e.unconditional:
		return observedUnconditional, 0, ""
	case e.ticket.AtEnd:
		return observedAtEnd, 0, ""
	case view.Acks == 0:
		return observedUnanswered, 0, ""
	}
	return "", 0, ""
}

// answered takes in the broker's answer: the body, with the tagged fields of its
// header in front. A nil watch watches nothing.
func (w *watch) answered(body []byte) {
	if w == nil {
		return
	}
	var answer wire.ProduceAnswer
	body, err := skipHeaderTags(body, w.version >= flexibleProduce)
	if err != nil || answer.Parse(body, w.version) != nil {
		w.lost()
		return
	}
	for _, b := range w.batches {
		if r, ok := answer.Find(b.topic, b.id, b.partition); ok {
			b.answered(&r.ProduceResult)
		} else {
			b.lost()
		}
	}
}

// lost notes that the answer is not to be had.
func (w *watch) lost() {
	if w == nil {
		return
	}
	for _, b := range w.batches {
		b.lost()
	}
}

// answered counts what the fence would have said of a batch which the broker
// appended at another place than it expects, or there. A nil batch is not
// watched.
func (b *watched) answered(r *wire.ProduceResult) {
	if b == nil {
		return
	}
	outcome := outcomeNotReached
	switch {
	case r.ErrorCode != 0:
		outcome = outcomeBroker
	case r.BaseOffset < 0:
		outcome = observedLost // it says nothing
	case r.BaseOffset == b.expected:
		outcome = outcomeWon
	case r.BaseOffset > b.expected:
		outcome = outcomeTaken
	}
	b.f.metrics.observed[outcome].Add(1)
	if outcome == outcomeTaken || outcome == outcomeNotReached {
		b.f.foreseen(true, b.name, b.partition, outcome, "expected", b.expected, "offset", r.BaseOffset)
		return
	}
	b.f.logger.Debug("observed batch", "topic", b.name, "partition", b.partition,
		"outcome", outcome, "expected", b.expected, "offset", r.BaseOffset, "code", r.ErrorCode)
}

// foreseen logs what the fence would refuse: the first time for a topic and an outcome
// so that an operator sees it by default, and else for who looks closely. Of topics that
// are not known to exist the operator is not told: clients can make up any number.
func (f *fencing) foreseen(exists bool, topic string, partition int32, outcome string, attrs ...any) {
	level := debugLevel
	if exists && f.forewarned.first(topic+" "+outcome, "") { // no topic's name has a space
		level = slog.LevelInfo
	}
	if f.logger.Enabled(f.readings.ctx, level) {
		f.logger.Log(f.readings.ctx, level, "batch would be refused by a rule that does more than observe; more of its kind are told at level debug",
			append([]any{"topic", topic, "partition", partition, "outcome", outcome}, attrs...)...)
	}
}

func (b *watched) lost() {
	if b != nil {
		b.f.metrics.observed[observedLost].Add(1)
	}
}

// onceByTopic tells whether something is said of a topic for the first time. It
// forgets the oldest beyond its size. Safe for concurrent use.
type onceByTopic struct {
	mu   sync.Mutex
	said *simplelru.LRU[string, string]
}

func newOnceByTopic(size int) (*onceByTopic, error) {
	said, err := simplelru.NewLRU[string, string](size, nil)
	return &onceByTopic{said: said}, err
}

// forget has the next be the first again.
func (o *onceByTopic) forget(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said.Remove(topic)
}

// first reports whether what was last said of the topic is something else.
func (o *onceByTopic) first(topic, what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.said.Get(topic)
	o.said.Add(topic, what)
	return !ok || last != what
}
