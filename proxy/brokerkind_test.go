package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

var (
	likeKafka = prober.Behaviour{Duplicates: prober.ByLogAppendTime, ListsIdle: true, ArmsAnywhere: true, ChecksSequences: true}
	likeKfake = prober.Behaviour{Duplicates: prober.ByLogStartOffset, ArmsAnywhere: true, ChecksSequences: true}
	likeNone  = prober.Behaviour{ListsIdle: true, ArmsAnywhere: true, ChecksSequences: true}
)

// fakeBroker answers probes as a broker would that the proxy has one connection
// to. Its hooks are called under mu.
type fakeBroker struct {
	mu        sync.Mutex
	session   prober.Session // of the connection
	behaviour prober.Behaviour
	fail      func() error // of Probe; nil: it works
	create    func() error
	add       func() error
	confirm   func() error

	probes, confirms, creates, adds, assumed int
}

func (b *fakeBroker) Probe(context.Context, int32, string) (prober.Behaviour, prober.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes++
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return prober.Behaviour{}, 0, fmt.Errorf("probe: %w", err)
		}
	}
	return b.behaviour, b.session, nil
}

func (b *fakeBroker) Confirm(_ context.Context, _ int32, s prober.Session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirms++
	if b.confirm != nil {
		return b.confirm()
	}
	if s != b.session {
		return prober.ErrNotProbed
	}
	return nil
}

func (b *fakeBroker) Assume(context.Context, int32, prober.StateSource) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.assumed++
	return nil
}

func (b *fakeBroker) CreateTopic(context.Context, int32, string, []int32, map[string]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.creates++
	return b.create()
}

func (b *fakeBroker) AddPartition(context.Context, int32, string, int32, int32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adds++
	return b.add()
}

func (b *fakeBroker) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func refusedBy(op string, code int16) error { return &prober.BrokerError{Op: op, Code: code} }

// fakeCluster is a brokerSet that is never dialled.
type fakeCluster struct {
	brokerSet
	nodes []int32
}

func (c fakeCluster) nodeIDs() []int32 { return c.nodes }

// kindRig is a book before one broker, node 1, in a bubble of its own time.
type kindRig struct {
	*kindBook
	broker *fakeBroker
	log    bytes.Buffer
	t      *testing.T
}

// inKindRig runs a test in a rig; asserted is the operator's word.
func inKindRig(t *testing.T, asserted BrokerKind, test func(*kindRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(noop.NewMeterProvider().Meter(""), 0)
		if err != nil {
			t.Fatal(err)
		}
		r := &kindRig{t: t, broker: &fakeBroker{session: 1, behaviour: likeKafka}}
		var logging sync.Mutex
		cfg := &Config{BrokerKind: asserted, ProbeTopic: "probe", Logger: slog.New(slog.NewTextHandler(&lockedWriter{mu: &logging, w: &r.log}, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		start := func(_ readingKey, what reading) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
				defer cancel()
				_ = what.read(ctx)
			})
		}
		r.kindBook = newKindBook(cfg, r.broker, fakeCluster{nodes: []int32{1}}, start, m)
		began := time.Now()
		r.now = func() ps.Instant { return ps.Instant(time.Since(began) + time.Second) }
		test(r)
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// kind asks for the kind on a connection that opens now.
func (r *kindRig) kind() (brokerKind, error) {
	time.Sleep(time.Millisecond)
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	return r.of(ctx, 1, r.now())
}

func (r *kindRig) mustBe(want brokerKind) {
	r.t.Helper()
	got, err := r.kind()
	if err != nil || got != want {
		r.t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestKindIsLearntOnceForAllWhoWait(t *testing.T) {
	inKindRig(t, AutoKind, func(r *kindRig) {
		hold := make(chan struct{})
		r.broker.fail = func() error { <-hold; return nil }
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { r.mustBe(brokerKind{marking: fence.MarkLogAppendTime}) })
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		if r.broker.probes != 1 {
			t.Errorf("got %d probes, want 1", r.broker.probes)
		}
	})
}

// A broker that is restarted may be another: what was learnt holds only for
// connections that lead to the life in which it was.
func TestKindEndsWithTheBrokersLife(t *testing.T) {
	inKindRig(t, AutoKind, func(r *kindRig) {
		r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
		old := r.now()
		time.Sleep(time.Second)
		r.mustBe(brokerKind{marking: fence.MarkLogAppendTime}) // a later connection, the same life
		if r.broker.probes != 1 || r.broker.confirms != 1 {
			t.Errorf("got %d probes and %d confirmations, want 1 and 1", r.broker.probes, r.broker.confirms)
		}
		r.broker.change(func() { r.broker.session, r.broker.behaviour = 2, likeKfake })
		time.Sleep(time.Millisecond)
		if kind, ok := r.peek(1, old); !ok || kind.marking != fence.MarkLogAppendTime {
			t.Errorf("a connection of the first life: got %+v, %v", kind, ok)
		}
		if _, ok := r.peek(1, r.now()); ok {
			t.Error("a connection opened now is taken for one to the first life")
		}
		r.mustBe(brokerKind{marking: fence.MarkLogStartOffset, embedded: true})
		if !r.sawEmbedded.Load() {
			t.Error("an embedded broker was not noticed")
		}
	})
}

func TestProbeTopicIsMade(t *testing.T) {
	missing := refusedBy("Metadata", 3)
	for _, tc := range []struct {
		name         string
		set          func(*fakeBroker)
		creates, all int
	}{
		{"it does not exist, and is heard of late", func(b *fakeBroker) {
			left := 3
			b.fail = func() error {
				if left--; left >= 0 {
					return missing
				}
				return nil
			}
			b.create = func() error { return nil }
		}, 1, 0},
		{"another proxy is faster", func(b *fakeBroker) {
			b.create = func() error { return refusedBy("CreateTopics", 36) }
			b.fail = func() error {
				if b.creates == 0 {
					return missing
				}
				return nil
			}
		}, 1, 0},
		{"the broker is new", func(b *fakeBroker) {
			b.fail = func() error {
				if b.adds < 2 {
					return &prober.NoProbePartitionError{Partitions: int32(3 + b.adds)}
				}
				return nil
			}
			b.add = func() error {
				if b.adds == 1 {
					return refusedBy("CreatePartitions", 37) // another has added one
				}
				return nil
			}
		}, 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inKindRig(t, AutoKind, func(r *kindRig) {
				tc.set(r.broker)
				r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
				if r.broker.creates != tc.creates || r.broker.adds != tc.all {
					t.Errorf("got %d topics and %d partitions made, want %d and %d", r.broker.creates, r.broker.adds, tc.creates, tc.all)
				}
			})
		})
	}
}

// What cannot be probed counts as unmarked, and the log says what is missing.
func TestBrokerThatCannotBeProbed(t *testing.T) {
	const denied = 29
	for _, tc := range []struct {
		name string
		err  error
		make error // of CreateTopic and AddPartition
		want string
	}{
		{"may not describe", refusedBy("Metadata", denied), nil, "grant its principal DESCRIBE, READ and WRITE"},
		{"may not read", refusedBy("DescribeProducers", denied), nil, "grant its principal READ on it"},
		{"may not write", refusedBy("Produce", denied), nil, "grant its principal WRITE on it"},
		{"may not create", refusedBy("Metadata", 3), refusedBy("CreateTopics", denied), "grant its principal CREATE on the topic, or create it by kafka-topics.sh"},
		{"may not create in the cluster", refusedBy("Metadata", 3), refusedBy("CreateTopics", 31), "grant its principal CREATE"},
		{"cannot be created", refusedBy("Metadata", 3), refusedBy("CreateTopics", 44), "cannot be created"},
		{"may not add a partition", &prober.NoProbePartitionError{Partitions: 3}, refusedBy("CreatePartitions", denied), "grant its principal ALTER on the topic"},
		{"a partition cannot be added", &prober.NoProbePartitionError{Partitions: 3}, refusedBy("CreatePartitions", 44), "none can be added"},
		{"wrong timestamps", prober.ErrProbeTimestamps, nil, "set it to CreateTime"},
		{"records are refused", refusedBy("Produce", 87), nil, "Produce answered with error code 87"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inKindRig(t, AutoKind, func(r *kindRig) {
				r.broker.fail = func() error { return tc.err }
				r.broker.create = func() error { return tc.make }
				r.broker.add = r.broker.create
				for range 3 {
					kind, err := r.kind()
					if err != nil || kind.marking != fence.MarkNone || kind.refusal != "" || !strings.Contains(kind.unknown, tc.want) {
						t.Errorf("got %+v, %v, want unmarked because of %q", kind, err, tc.want)
					}
				}
				if r.broker.probes != 1 || r.broker.assumed != 1 {
					t.Errorf("got %d probes, %d assumptions, want one for all", r.broker.probes, r.broker.assumed)
				}
				// It is tried again, and told once.
				for range 2 * int(unknownKindAge/time.Second) {
					time.Sleep(time.Second)
					r.tend()
				}
				synctest.Wait()
				if r.broker.probes != 3 {
					t.Errorf("in twice unknownKindAge: got %d probes, want 3", r.broker.probes)
				}
				if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
					t.Errorf("got %d warnings, want 1:\n%s", n, r.log.String())
				}
				r.broker.change(func() { r.broker.fail = nil })
				time.Sleep(unknownKindAge + time.Second)
				r.tend()
				synctest.Wait()
				r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
			})
		})
	}
}

// What may pass is waited for: a broker that has just started may not lead its
// partition of the probe topic yet, and conditional batches without append-id
// must not be refused for good because of that.
func TestBrokerThatCannotBeProbedYet(t *testing.T) {
	for name, err := range map[string]error{
		"not the leader":     refusedBy("Produce", 6),
		"leads nothing yet":  &prober.NoProbePartitionError{Partitions: 3, Replica: true},
		"cannot be reached":  prober.ErrUnreachable,
		"reading timed out":  context.DeadlineExceeded,
		"too much is waited": prober.ErrBusy,
	} {
		t.Run(name, func(t *testing.T) {
			inKindRig(t, AutoKind, func(r *kindRig) {
				r.broker.fail = func() error { return err }
				if kind, got := r.kind(); !errors.Is(got, err) {
					t.Errorf("at first: got %+v, %v, want %v", kind, got, err)
				}
				for range int(kindPatience/time.Second) + 2 {
					time.Sleep(time.Second)
					r.tend()
				}
				synctest.Wait()
				var none *prober.NoProbePartitionError
				final := code(err) != 0 || errors.As(err, &none)
				if kind, got := r.kind(); final && (got != nil || kind.marking != fence.MarkNone || kind.unknown == "") || !final && got == nil {
					t.Errorf("after kindPatience: got %+v, %v; want unmarked: %v", kind, got, final)
				}
				r.broker.change(func() { r.broker.fail = nil })
				time.Sleep(unknownKindAge + time.Second)
				r.tend()
				synctest.Wait()
				r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
			})
		})
	}
}

// A broker that was probed stays what it is while its life goes on, whatever
// the proxy may do later.
func TestKindOutlivesTheRightToProbe(t *testing.T) {
	inKindRig(t, AutoKind, func(r *kindRig) {
		r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
		r.broker.change(func() { r.broker.fail = func() error { return refusedBy("Produce", 29) } })
		time.Sleep(kindAge + time.Second)
		r.tend()
		synctest.Wait()
		r.mustBe(brokerKind{marking: fence.MarkLogAppendTime})
		if r.broker.probes != 2 || r.broker.assumed != 0 {
			t.Errorf("got %d probes, %d assumptions, want a second probe and no assumption", r.broker.probes, r.broker.assumed)
		}
		r.broker.change(func() { r.broker.session = 2 })
		if kind, err := r.kind(); err != nil || kind.unknown == "" {
			t.Errorf("the next life: got %+v, %v, want an unknown kind", kind, err)
		}
	})
}

// A broker that lets a gap in sequences pass is none that fences.
func TestBrokerWithoutSequences(t *testing.T) {
	inKindRig(t, AutoKind, func(r *kindRig) {
		r.broker.behaviour = likeKafka
		r.broker.behaviour.ChecksSequences = false
		if kind, err := r.kind(); err != nil || kind.refusal == "" {
			t.Errorf("got %+v, %v, want a refusal", kind, err)
		}
	})
}

// The operator's word holds until it is seen to be wrong. Nothing is created
// for that, and nobody waits.
func TestAssertedKind(t *testing.T) {
	kafka, kfake := brokerKind{marking: fence.MarkLogAppendTime}, brokerKind{marking: fence.MarkLogStartOffset, embedded: true}
	for _, tc := range []struct {
		name    string
		says    BrokerKind
		is      prober.Behaviour
		fail    error
		want    brokerKind
		refused bool
	}{
		{"kafka it is", ApacheKafka, likeKafka, nil, kafka, false},
		{"kfake it is", EmbeddedKfake, likeKfake, nil, kfake, false},
		{"kafka, but it is kfake", ApacheKafka, likeKfake, nil, kafka, true},
		{"kafka, but it marks nothing", ApacheKafka, likeNone, nil, kafka, true},
		{"kfake, but it is kafka", EmbeddedKfake, likeKafka, nil, kfake, true},
		{"no topic to see it on", ApacheKafka, likeKfake, refusedBy("Metadata", 3), kafka, false},
		{"no right to see it", ApacheKafka, likeKfake, refusedBy("Metadata", 29), kafka, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inKindRig(t, tc.says, func(r *kindRig) {
				r.broker.behaviour = tc.is
				r.broker.fail = func() error { return tc.fail }
				r.mustBe(tc.want)
				if r.broker.probes != 0 {
					t.Error("somebody waited for a probe")
				}
				r.tend()
				synctest.Wait()
				got, err := r.kind()
				if err != nil || got.marking != tc.want.marking || got.embedded != tc.want.embedded || (got.refusal != "") != tc.refused {
					t.Errorf("once it was seen: got %+v, %v, want %+v, refused: %v", got, err, tc.want, tc.refused)
				}
				if r.broker.probes != 1 || r.broker.creates != 0 || r.broker.assumed != 0 {
					t.Errorf("got %d probes, %d creations, %d assumptions, want 1, 0, 0", r.broker.probes, r.broker.creates, r.broker.assumed)
				}
			})
		})
	}
}

// Brokers are looked at as soon as they are known, before anybody asks.
func TestKindIsLearntBeforeAnybodyAsks(t *testing.T) {
	inKindRig(t, AutoKind, func(r *kindRig) {
		r.tend()
		if got := r.metrics.kinds[kindUnlearnt].Load(); got != 1 {
			t.Errorf("at first: got %d brokers unlearnt, want 1", got)
		}
		synctest.Wait()
		if _, ok := r.peek(1, r.now()); !ok {
			t.Error("the kind is not known")
		}
		r.tend()
		if got := r.metrics.kinds["log_append_time"].Load(); got != 1 {
			t.Errorf("then: got %d brokers that mark by log_append_time, want 1", got)
		}
		if r.broker.probes != 1 {
			t.Errorf("got %d probes, want 1", r.broker.probes)
		}
	})
}
