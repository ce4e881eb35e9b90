package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

const (
	// kindAge is when a broker is probed again although nothing says that it has
	// changed.
	kindAge = time.Hour
	// unknownKindAge is when a broker that could not be probed is tried again: the
	// operator may have granted what was missing.
	unknownKindAge = 30 * time.Second
	// kindPatience is how long a broker is tried before it counts as one that
	// cannot be probed, if what keeps it from that may pass.
	kindPatience = time.Minute
	// kindFailurePause is the least time between tries that nobody waits for.
	kindFailurePause = time.Second
)

// brokerKind is what the fence must know of a broker.
type brokerKind struct {
	// marking is how it marks duplicates.
	marking fence.Marking
	// embedded: it deals with producer ids as kfake does, which tells none of its
	// limits and forgets nothing.
	embedded bool
	// unknown says, for a person, why the marking could not be learnt; empty: it
	// was, or the operator has asserted it.
	unknown string
	// refusal says why nothing on it can be fenced; empty: it can.
	refusal string
}

// kindProber is the part of prober.Pool that learns kinds.
type kindProber interface {
	Probe(ctx context.Context, node int32, topic string) (prober.Behaviour, prober.Session, error)
	Confirm(ctx context.Context, node int32, s prober.Session) error
	Assume(ctx context.Context, node int32, source prober.StateSource) error
	CreateTopic(ctx context.Context, node int32, name string, nodes []int32, configs map[string]string) error
	AddPartition(ctx context.Context, node int32, name string, count, replica int32) error
}

// kindBook knows the brokers' kinds: by the operator's word, or by probing each
// (see prober.Pool.Probe). Safe for concurrent use.
//
// A broker may be another version from one moment to the next, when it is
// restarted. What was learnt on a connection of the proxy's own therefore holds
// for a client's connection to the broker only if the former was seen to live
// after the latter was open: then both lead to the same life of the broker.
type kindBook struct {
	asserted BrokerKind
	topic    string // where is probed
	prober   kindProber
	nodes    func() []int32
	start    func(readingKey, reading)
	now      func() ps.Instant
	logger   *slog.Logger
	metrics  *metrics

	// sawEmbedded: some broker is of the embedded kind.
	sawEmbedded atomic.Bool

	mu    sync.Mutex
	known map[int32]*knownKind
}

// knownKind is what is known of one broker; guarded by kindBook.mu.
type knownKind struct {
	// kind counts if learnt.
	kind   brokerKind
	learnt bool
	// session is that in which it was learnt, and confirmed an instant at which it
	// was open; neither counts for an unknown kind, which is right for any broker.
	session   prober.Session
	confirmed ps.Instant
	// nextTry is when tend looks at it again.
	nextTry ps.Instant
	// failing is since when tries fail; 0: they do not.
	failing ps.Instant
	work    *kindWork // under way
}

// kindWork is one try to learn a kind, shared by all who wait.
type kindWork struct {
	begun ps.Instant
	done  chan struct{} // closed by the try when err is set
	err   error
}

func newKindBook(cfg *Config, pool kindProber, brokers brokerSet, start func(readingKey, reading), m *metrics) *kindBook {
	return &kindBook{
		asserted: cfg.BrokerKind, topic: cfg.ProbeTopic, prober: pool, nodes: brokers.nodeIDs, start: start,
		now: instant, logger: cfg.Logger, metrics: m, known: map[int32]*knownKind{},
	}
}

// peek is of without waiting.
func (b *kindBook) peek(node int32, since ps.Instant) (brokerKind, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usableLocked(node, since)
}

// of gives the kind of the broker that a connection leads to which was open at
// since, learning it if need be. ctx bounds the wait; the learning goes on.
func (b *kindBook) of(ctx context.Context, node int32, since ps.Instant) (brokerKind, error) {
	for {
		b.mu.Lock()
		kind, ok := b.usableLocked(node, since)
		if ok {
			b.mu.Unlock()
			return kind, nil
		}
		w := b.workLocked(node, false)
		b.mu.Unlock()
		if err := w.wait(ctx); err != nil && (w.begun >= since || ctx.Err() != nil) {
			return brokerKind{}, err
		}
	}
}

// again learns a broker's kind although it may be known: for a connection to it
// on which it was not learnt.
func (b *kindBook) again(ctx context.Context, node int32) error {
	b.mu.Lock()
	w := b.workLocked(node, true)
	b.mu.Unlock()
	return w.wait(ctx)
}

func (w *kindWork) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *kindBook) usableLocked(node int32, since ps.Instant) (brokerKind, bool) {
	k := b.knownLocked(node)
	switch {
	case k.learnt && (b.asserted != AutoKind || k.kind.unknown != "" || k.confirmed >= since):
		return k.kind, true
	case b.asserted == ApacheKafka:
		return brokerKind{marking: fence.MarkLogAppendTime}, true
	case b.asserted == EmbeddedKfake:
		return brokerKind{marking: fence.MarkLogStartOffset, embedded: true}, true
	}
	return brokerKind{}, false
}

func (b *kindBook) knownLocked(node int32) *knownKind {
	k := b.known[node]
	if k == nil {
		k = new(knownKind)
		b.known[node] = k
	}
	return k
}

// workLocked gives the try that is under way, or begins one. Unless afresh,
// what is known is only confirmed, if it can be.
func (b *kindBook) workLocked(node int32, afresh bool) *kindWork {
	k := b.knownLocked(node)
	if k.work != nil {
		return k.work
	}
	w := &kindWork{begun: b.now(), done: make(chan struct{})}
	k.work = w
	session := k.session
	b.start(readingKey{node: node, kinds: true}, reading{
		read: func(ctx context.Context) error {
			err := b.learn(ctx, node, session, afresh, w.begun)
			b.ended(node, w, err)
			return err
		},
		fail: func(err error) { b.ended(node, w, err) },
	})
	return w
}

func (b *kindBook) ended(node int32, w *kindWork, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.knownLocked(node)
	k.work, w.err = nil, err
	switch {
	case err == nil:
		k.failing = 0
	default:
		k.failing = cmp.Or(k.failing, w.begun)
		k.nextTry = b.now().Add(kindFailurePause)
	}
	close(w.done)
}

// learn confirms the session in which a kind was learnt or, if it has ended or
// the kind is to be learnt afresh, probes.
func (b *kindBook) learn(ctx context.Context, node int32, known prober.Session, afresh bool, begun ps.Instant) error {
	if known != 0 && !afresh {
		err := b.confirm(ctx, node, known, begun)
		if err == nil || !errors.Is(err, prober.ErrNotProbed) && !errors.Is(err, prober.ErrUnreachable) {
			return err
		}
	}
	behaviour, session, err := b.probe(ctx, node)
	if b.asserted != AutoKind {
		if err != nil {
			b.logger.Debug("broker's asserted kind was not checked", "node", node, "err", err)
		} else {
			b.take(node, b.contradiction(behaviour), session, begun)
		}
		b.postpone(node, kindAge)
		return nil
	}
	if err == nil {
		b.take(node, kindOf(behaviour), session, begun)
		return nil
	}
	kind, final := b.unprobable(node, err, begun)
	if !final {
		return err
	}
	if known != 0 && b.confirm(ctx, node, known, begun) == nil {
		b.postpone(node, kindAge) // it is still the broker that was probed
		return nil
	}
	if err := b.prober.Assume(ctx, node, prober.DescribeOrTail); err != nil {
		return err
	}
	b.take(node, kind, 0, begun)
	return nil
}

// confirm finds out whether a session goes on.
func (b *kindBook) confirm(ctx context.Context, node int32, s prober.Session, begun ps.Instant) error {
	err := b.prober.Confirm(ctx, node, s)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.knownLocked(node).confirmed = begun
	}
	return err
}

// take remembers a kind, and tells the operator of what is new.
func (b *kindBook) take(node int32, kind brokerKind, session prober.Session, begun ps.Instant) {
	b.mu.Lock()
	k := b.knownLocked(node)
	was, first := k.kind, !k.learnt
	k.kind, k.learnt, k.session, k.confirmed = kind, true, session, begun
	k.nextTry = b.now().Add(kindAge)
	if kind.unknown != "" {
		k.nextTry = b.now().Add(unknownKindAge)
	}
	b.mu.Unlock()
	if kind.embedded {
		b.sawEmbedded.Store(true)
	}
	if !first && was == kind {
		return
	}
	switch {
	case kind.refusal != "":
		b.logger.Error("nothing can be fenced on this broker, so Produce requests to topics under a rule are refused there",
			"node", node, "reason", kind.refusal)
	case kind.unknown != "":
		b.logger.Warn("broker cannot be probed for how it marks duplicates: until it can, each success on it is read back, and conditional batches without append-id are refused there; "+
			"if it is Apache Kafka, setting brokers.kind to kafka does as well",
			"node", node, "topic", b.topic, "reason", kind.unknown)
	case kind.marking == fence.MarkNone:
		b.logger.Warn("broker probed, and it does not mark duplicates: each success on it is read back, and conditional batches without append-id are refused there",
			"node", node)
	case b.asserted == AutoKind:
		b.logger.Info("broker probed", "node", node, "marks_duplicates_by", markingName(kind.marking))
	}
}

func (b *kindBook) postpone(node int32, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.knownLocked(node).nextTry = b.now().Add(d)
}

// tend begins to learn the kinds of brokers that have become known, and those
// of others from time to time. It never waits.
func (b *kindBook) tend() {
	nodes := b.nodes()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.now()
	for _, node := range nodes {
		if k := b.knownLocked(node); k.work == nil && k.nextTry <= at {
			b.workLocked(node, true)
		}
	}
	b.countLocked(nodes)
}

// countLocked tells the meter how many brokers are of which kind.
func (b *kindBook) countLocked(nodes []int32) {
	found := map[string]int64{}
	for _, node := range nodes {
		name := kindUnlearnt
		switch kind, ok := b.usableLocked(node, 0); {
		case !ok:
		case kind.refusal != "":
			name = kindRefused
		default:
			name = markingName(kind.marking)
		}
		found[name]++
	}
	for name, n := range b.metrics.kinds {
		n.Store(found[name])
	}
}

// Names of kinds, for metrics and logs.
const (
	kindUnlearnt = "unlearnt"
	kindRefused  = "refused"
)

func markingName(m fence.Marking) string {
	switch m {
	case fence.MarkLogAppendTime:
		return "log_append_time"
	case fence.MarkLogStartOffset:
		return "log_start_offset"
	}
	return "nothing"
}

var kindNames = []string{
	kindUnlearnt, kindRefused, markingName(fence.MarkLogAppendTime), markingName(fence.MarkLogStartOffset), markingName(fence.MarkNone),
}

// kindOf judges a behaviour.
func kindOf(seen prober.Behaviour) brokerKind {
	kind := brokerKind{marking: fence.MarkNone}
	switch seen.Duplicates {
	case prober.ByLogAppendTime:
		kind.marking = fence.MarkLogAppendTime
	case prober.ByLogStartOffset:
		kind.marking = fence.MarkLogStartOffset
		kind.embedded = !seen.ListsIdle
	}
	if !seen.ChecksSequences {
		kind.refusal = "the broker appends batches out of sequence, which Apache Kafka refuses"
	}
	return kind
}

// contradiction holds what was seen against what the operator asserts.
func (b *kindBook) contradiction(seen prober.Behaviour) brokerKind {
	kind := kindOf(seen)
	name, marking, lists := "kafka", fence.MarkLogAppendTime, true
	if b.asserted == EmbeddedKfake {
		name, marking, lists = "kfake", fence.MarkLogStartOffset, false
	}
	if kind.refusal == "" && (kind.marking != marking || seen.ListsIdle != lists) {
		kind.refusal = fmt.Sprintf("brokers.kind says %s, but a probe has shown that duplicates are marked by %s and idle producers listed: %v; set brokers.kind to auto",
			name, markingName(kind.marking), seen.ListsIdle)
	}
	kind.marking, kind.embedded = marking, b.asserted == EmbeddedKfake
	return kind
}

// sortedNodes lists the brokers in the same order each time.
func (b *kindBook) sortedNodes() []int32 { return slices.Sorted(slices.Values(b.nodes())) }
