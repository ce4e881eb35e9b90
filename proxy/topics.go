package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

const (
	// topicAge is for how long what was learnt of a topic is used. The
	// brokers' expiry is dynamic, so it has to be looked at again.
	topicAge = 10 * time.Minute
	// refusedAge is the same where a topic is not served: the operator may have
	// granted what was missing.
	refusedAge = 30 * time.Second
	// suspectAge is for how long what was learnt of a topic is beyond doubt.
	suspectAge = time.Second
)

// fencedTopic is what must be known of a topic before it can be fenced.
type fencedTopic struct {
	id [16]byte
	// partitions is one more than the largest partition there is.
	partitions int32
	// appendTime: message.timestamp.type is LogAppendTime.
	appendTime bool
	// typeUnknown: the type may not be read, and the limits are asserted: the topic
	// is served by the rules of both types.
	typeUnknown bool
	// refusal says, for a person, why the topic is not served; empty: it is.
	refusal string
	// weak says how acknowledged records of it can be lost; empty: they cannot.
	weak string
	// observed: its rule only observes, so that nothing is refused.
	observed bool
}

// has reports whether the topic had this partition when it was looked up.
func (t *fencedTopic) has(partition int32) bool { return 0 <= partition && partition < t.partitions }

// topicLoader reads what must be known of a topic, asking the broker node.
// An error wrapping *prober.BrokerError with UNKNOWN_TOPIC_OR_PARTITION means
// that there is none.
type topicLoader func(ctx context.Context, node int32, name string) (fencedTopic, error)

// topicBook remembers topics, loading each at most once at a time, and the
// names of topic ids; of either only so many, the last used. Safe for
// concurrent use.
type topicBook struct {
	load topicLoader
	// start runs a loading on a goroutine of its own, or not at all once the
	// proxy ends.
	start    func(readingKey, reading)
	now      func() ps.Instant
	unserved *atomic.Int64 // topics known that are not served
	weak     *atomic.Int64 // topics known that can lose acknowledged records
	full     func()        // called for each topic forgotten for want of room
	// voided counts how often something known of a topic turned out to be void, so
	// that who remembers it looks again.
	voided atomic.Uint64

	mu     sync.Mutex
	topics *simplelru.LRU[string, *topicEntry]
	names  *simplelru.LRU[[16]byte, string]
	// problems are some of those that are not served or weak, to be shown.
	problems map[string]TopicStatus
}

type topicEntry struct {
	loaded chan struct{} // closed by the loader when topic and err are set
	at     ps.Instant
	topic  fencedTopic
	err    error
	// prior is what was known before, if anything; only for look.
	prior *fencedTopic
	// counted among those that are not served, and countedWeak among those that
	// are weak; guarded by topicBook.mu.
	counted, countedWeak bool
}

func newTopicBook(load topicLoader, size int, start func(readingKey, reading), unserved *atomic.Int64, full func()) *topicBook {
	b := &topicBook{load: load, start: start, now: instant, unserved: unserved, weak: new(atomic.Int64), full: full, problems: map[string]TopicStatus{}}
	var err error
	b.topics, err = simplelru.NewLRU(size, func(name string, e *topicEntry) {
		delete(b.problems, name)
		if e.counted {
			b.unserved.Add(-1)
		}
		if e.countedWeak {
			b.weak.Add(-1)
		}
	})
	if err == nil {
		b.names, err = simplelru.NewLRU[[16]byte, string](size, nil)
	}
	if err != nil {
		panic(err) // only for a size that validate refuses
	}
	return b
}

// peek gives what is known of a topic, if that is so without loading.
func (b *topicBook) peek(name string) (fencedTopic, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.topics.Get(name)
	if !ok || !e.done() || e.err != nil || b.old(e) {
		return fencedTopic{}, false
	}
	return e.topic, true
}

func (b *topicBook) old(e *topicEntry) bool {
	age := b.now().Sub(e.at)
	return age > topicAge || age > refusedAge && e.topic.refusal != ""
}

// get gives what is known of a topic, loading it if need be. ctx bounds the
// wait; the loading is for all who wait, so it goes on when the client that
// happened to be first has waited for long enough.
func (b *topicBook) get(ctx context.Context, node int32, name string) (fencedTopic, error) {
	b.mu.Lock()
	e, ok := b.topics.Get(name)
	mine := !ok || e.done() && (e.err != nil || b.old(e))
	if mine {
		e = b.renewLocked(name, nil)
	}
	b.mu.Unlock()
	if mine {
		b.begin(node, name, e)
	}
	select {
	case <-e.loaded:
		return e.topic, e.err
	case <-ctx.Done():
		return fencedTopic{}, context.Cause(ctx)
	}
}

// look gives what is known of a topic, however old it is, without waiting. What is
// not known or old is loaded meanwhile; what could not be, once in a while.
func (b *topicBook) look(node int32, name string) (fencedTopic, bool) {
	b.mu.Lock()
	e, ok := b.topics.Get(name)
	var known *fencedTopic
	load := !ok
	switch {
	case !ok:
	case !e.done():
		known = e.prior
	case e.err != nil:
		known, load = e.prior, b.now().Sub(e.at) > suspectAge
	default:
		topic := e.topic // a copy, so that no entry keeps those before it
		known, load = &topic, b.old(e)
	}
	if load {
		e = b.renewLocked(name, known)
	}
	b.mu.Unlock()
	if load {
		b.begin(node, name, e)
	}
	if known == nil {
		return fencedTopic{}, false
	}
	return *known, true
}

// renewLocked puts a new entry in the place of what is known of a topic.
func (b *topicBook) renewLocked(name string, prior *fencedTopic) *topicEntry {
	b.topics.Remove(name)
	e := &topicEntry{loaded: make(chan struct{}), prior: prior}
	if b.topics.Add(name, e) {
		b.full()
	}
	return e
}

// begin loads a new entry.
func (b *topicBook) begin(node int32, name string, e *topicEntry) {
	ended := func(topic fencedTopic, err error) {
		e.topic, e.err, e.at = topic, err, b.now()
		b.count(name, e)
		close(e.loaded)
	}
	b.start(readingKey{node: node, topics: true}, reading{
		read: func(ctx context.Context) error {
			topic, err := b.load(ctx, node, name)
			ended(topic, err)
			return err
		},
		fail: func(err error) { ended(fencedTopic{}, err) },
	})
}

func (e *topicEntry) done() bool {
	select {
	case <-e.loaded:
		return true
	default:
		return false
	}
}

// forget drops what is known of a topic.
func (b *topicBook) forget(name string) {
	b.mu.Lock()
	b.voidLocked(name)
	b.mu.Unlock()
}

func (b *topicBook) voidLocked(name string) {
	b.topics.Remove(name)
	b.voided.Add(1)
}

// forgetRefused drops what is known of topics that are not served, or not whether
// they are: what follows from that depends on their rules.
func (b *topicBook) forgetRefused() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.topics.Keys() {
		if e, _ := b.topics.Peek(name); !e.done() || e.topic.refusal != "" || e.topic.weak != "" {
			b.voidLocked(name)
		}
	}
}

// suspect drops what is known of a topic unless it was learnt just now: a
// client that names partitions which do not exist must not have others wait for
// the topic to be looked up again and again.
func (b *topicBook) suspect(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.topics.Peek(name); ok && e.done() && b.now().Sub(e.at) < suspectAge {
		return
	}
	b.voidLocked(name)
}

// count counts a topic that cannot be fenced or is weak, if it is still
// remembered.
func (b *topicBook) count(name string, e *topicEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, _ := b.topics.Peek(name); known != e {
		return
	}
	if e.topic.refusal != "" && !e.topic.observed {
		e.counted = true
		b.unserved.Add(1)
	}
	if e.topic.weak != "" {
		e.countedWeak = true
		b.weak.Add(1)
	}
	if (e.topic.refusal != "" || e.topic.weak != "") && len(b.problems) < shownTopics {
		b.problems[name] = TopicStatus{Topic: name, Refusal: e.topic.refusal, Observed: e.topic.observed, Weak: e.topic.weak}
	}
}

// name finds the name of the topic with an id, by resolve if it is not known.
func (b *topicBook) name(id [16]byte, resolve func() (string, error)) (string, error) {
	b.mu.Lock()
	name, ok := b.names.Get(id)
	b.mu.Unlock()
	if ok {
		return name, nil
	}
	name, err := resolve()
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	b.names.Add(id, name)
	b.mu.Unlock()
	return name, nil
}

// learnNames takes the names of topic ids from a broker's answer to a client.
// Clients get their ids from such answers, so that the proxy, whose principal
// may not be allowed to describe every topic, can tell what a Produce to a
// topic without a rule is about. An id has one name for ever (KIP-516).
func (b *topicBook) learnNames(m *kmsg.MetadataResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range m.Topics {
		if t := &m.Topics[i]; t.Topic != nil && t.ErrorCode == 0 && t.TopicID != noTopicID {
			b.names.Add(t.TopicID, *t.Topic)
		}
	}
}

// noTopicID is what brokers without topic ids say.
var noTopicID [16]byte

// Names of the configurations that decide whether a topic can be fenced.
const (
	configProducerExpiry      = "producer.id.expiration.ms"
	configTransactionalExpiry = "transactional.id.expiration.ms" // before Kafka 3.4
	configExpiryCheck         = "producer.id.expiration.check.interval.ms"
	configConnectionIdle      = "connections.max.idle.ms"
	configTimestampType       = "message.timestamp.type"
)

// loadTopic reads a topic and the limits of the broker that was asked.
func (f *fencing) loadTopic(ctx context.Context, node int32, name string) (fencedTopic, error) {
	info, err := f.pool.ReadTopic(ctx, node, name)
	if lacksRight(err) {
		return f.refuseTopic(name, fencedTopic{}, fmt.Sprintf("it cannot be described (%v): grant the proxy DESCRIBE and READ on it", err)), nil
	}
	if err != nil {
		return fencedTopic{}, err
	}
	t := fencedTopic{id: info.Topic.ID}
	for _, p := range info.Partitions {
		t.partitions = max(t.partitions, p.Partition+1)
	}
	kind, err := f.kinds.of(ctx, node, 0)
	if err != nil {
		return fencedTopic{}, err
	}
	if f.kinds.asserted == EmbeddedKfake {
		// On Kafka every duplicate would pass for a success.
		configs, err := f.pool.ReadBrokerConfigs(ctx, node, configConnectionIdle)
		var refused *prober.BrokerError
		if _, tells := configs[configConnectionIdle]; tells || errors.As(err, &refused) {
			return f.refuseTopic(name, t, "the brokers' kind is set to kfake and they are not kfake: set it to auto"), nil
		}
		f.learnLimits(node, f.asserted)
		return t, err
	}
	configs, err := f.pool.ReadTopicConfigs(ctx, node, name, configTimestampType, configMinInSync, configUncleanElected)
	if t.typeUnknown = lacksRight(err); t.typeUnknown {
		if !f.asserted.toldAll() {
			return f.refuseTopic(name, t, fmt.Sprintf("its configuration cannot be read (%v): grant the proxy DESCRIBE_CONFIGS on it, or assert the brokers' limits in its configuration", err)), nil
		}
		err = nil
	}
	if err != nil {
		return fencedTopic{}, err
	}
	t.appendTime = configs[configTimestampType] == "LogAppendTime"
	if !kind.embedded && !t.typeUnknown {
		t.weak = weakReplication(info, configs)
		f.warnOfWeakReplication(name, t)
	}
	limits, err := f.readLimits(ctx, node)
	var refused *prober.BrokerError
	var unknown *unknownLimitError
	switch {
	case errors.As(err, &unknown) && kind.embedded:
		limits = f.asserted.embedded()
	case errors.As(err, &refused), errors.As(err, &unknown), lacksRight(err):
		return f.refuseTopic(name, t, fmt.Sprintf("the brokers' limits cannot be read (%v): grant the proxy DESCRIBE_CONFIGS on the cluster, or assert them in its configuration", err)), nil
	case err != nil:
		return fencedTopic{}, err
	}
	f.learnLimits(node, limits)
	if c := f.core.Load(); !c.Servable() {
		return f.refuseTopic(name, t, fmt.Sprintf("%s=%s is too short: half of it must exceed %s (view_max_age %s, answers %s, %s %s, margin %s)",
			configProducerExpiry, c.ProducerExpiry, c.ViewMaxAge+c.AnswerMax+c.ConnectionIdle+c.Margin,
			c.ViewMaxAge, c.AnswerMax, configConnectionIdle, c.ConnectionIdle, c.Margin)), nil
	}
	f.refused.forget(name)
	return t, nil
}

// refuseTopic is a topic that is not served, and why.
func (f *fencing) refuseTopic(name string, t fencedTopic, why string) fencedTopic {
	t.refusal = why
	if t.observed = !f.rules.inForce().rule([]byte(name)).fenced(); t.observed {
		if f.warned.first(name, why) {
			f.logger.Warn("topic is observed and could not be fenced: under enforce or require, Produce requests for it would be refused",
				"topic", name, "reason", t.refusal)
		}
		return t
	}
	if f.refused.first(name, why) {
		f.logger.Error("topic is under a rule and cannot be fenced, so Produce requests for it are refused",
			"topic", name, "reason", t.refusal)
	}
	return t
}

// lacksRight reports whether a broker will not tell because the proxy lacks a
// right or the broker the api: asking again is in vain until that changes.
func lacksRight(err error) bool {
	var refused *prober.BrokerError
	var lacks *prober.UnsupportedError
	return errors.As(err, &lacks) ||
		errors.As(err, &refused) && (refused.Code == kerr.TopicAuthorizationFailed.Code || refused.Code == kerr.ClusterAuthorizationFailed.Code)
}

// unknownLimitError says that a broker does not tell one of its limits.
type unknownLimitError struct{ name string }

func (e *unknownLimitError) Error() string { return e.name + " is not told" }

// readLimits reads a broker's limits, as far as the operator has not asserted
// them.
func (f *fencing) readLimits(ctx context.Context, node int32) (BrokerLimits, error) {
	l := f.asserted
	if l.toldAll() {
		return l, nil
	}
	configs, err := f.pool.ReadBrokerConfigs(ctx, node, configProducerExpiry, configTransactionalExpiry, configExpiryCheck, configConnectionIdle)
	if err != nil {
		return l, err
	}
	if d, ok := millis(configs, configExpiryCheck); ok && l.ExpiryCheck == 0 {
		l.ExpiryCheck = d
	}
	if l.ProducerExpiry == 0 {
		d, ok := millis(configs, configProducerExpiry)
		if !ok {
			d, ok = millis(configs, configTransactionalExpiry)
		}
		if !ok {
			return l, &unknownLimitError{configProducerExpiry}
		}
		l.ProducerExpiry = d
	}
	if l.ConnectionIdle == 0 {
		d, ok := millis(configs, configConnectionIdle)
		if !ok {
			return l, &unknownLimitError{configConnectionIdle}
		}
		l.ConnectionIdle = d
	}
	return l.Or(KafkaLimits()), nil // some brokers do not name the interval
}

// millis reads a configuration in milliseconds. Negative means without limit;
// as does anything too large for a Duration.
func millis(configs map[string]string, name string) (time.Duration, bool) {
	n, err := strconv.ParseInt(configs[name], 10, 64)
	switch {
	case err != nil:
		return 0, false
	case n < 0 || n > maxMillis:
		return time.Duration(maxMillis) * time.Millisecond, true
	}
	return time.Duration(n) * time.Millisecond, true
}

// maxMillis leaves room for sums of several such durations.
const maxMillis = int64(math.MaxInt64 / time.Millisecond / 8)
