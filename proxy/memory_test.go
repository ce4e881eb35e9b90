package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// noBrokers are none, which nothing is asked of.
type noBrokers struct{}

func (noBrokers) nodeIDs() []int32                                  { return nil }
func (noBrokers) dialNode(context.Context, int32) (net.Conn, error) { return nil, errNoBroker }

// touched is a fencing whose partitions are used once each.
type touched struct {
	*fencing
	t       *testing.T
	records []ps.Record
	done    int
}

func newTouched(t *testing.T, cfg Config) *touched {
	t.Helper()
	cfg.Bootstrap, cfg.Listen, cfg.Default = []string{"broker:9092"}, "127.0.0.1:0", ModeRequire
	cfg.Logger = slog.New(slog.DiscardHandler)
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(noop.NewMeterProvider().Meter(""), 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFencing(&cfg, newCurrentRules(&cfg, m), noBrokers{}, m)
	if err != nil {
		t.Fatal(err)
	}
	f.topics.load = func(context.Context, int32, string) (fencedTopic, error) {
		return fencedTopic{partitions: 1, refusal: "none; this is a test"}, nil
	}
	t.Cleanup(func() {
		f.readings.stop()
		f.readings.wait()
	})
	u := &touched{fencing: f, t: t}
	for i := range 40 {
		u.records = append(u.records, ps.Record{Digest: uint64(i)})
	}
	return u
}

// perTopic is how many partitions a topic has.
const perTopic = 16

// touch appends to so many partitions more, as their lanes would for batches that
// are won, and sweeps as time would.
func (u *touched) touch(n int) {
	u.t.Helper()
	for range n {
		topic, partition := u.done/perTopic, u.done%perTopic
		name := touchedTopic(topic)
		u.rules.inForce().rule([]byte(name))
		if _, err := u.topics.get(u.t.Context(), 1, name); err != nil {
			u.t.Fatal(err)
		}
		id := [16]byte{byte(topic), byte(topic >> 8), byte(topic >> 16)}
		if _, err := u.topics.name(id, func() (string, error) { return name, nil }); err != nil {
			u.t.Fatal(err)
		}
		l := u.lane(ps.Key{Topic: name, ID: id, Partition: int32(partition)})
		l.step(now(), func(p *fence.Partition, now ps.Now) []fence.Effect {
			p.State().ReadView(now.Instant, ps.View{Leader: 1, HighWatermark: 0, At: now.Instant - 1})
			p.State().Acknowledged(now.Instant, ps.Append{Records: u.records, Leader: 1, SentAt: now.Instant})
			return nil
		})
		l.users.Add(-1)
		if u.done++; u.done%1000 == 0 {
			u.sweep()
		}
	}
}

func touchedTopic(n int) string { return fmt.Sprintf("a topic with a name of forty-two bytes %d", n) }

// heap is what is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Partitions that are used once leave nothing behind but what the limits say. As
// many more of them with higher limits are seen by the same measure.
func TestPartitionsUsedOnceLeaveMemoryFlat(t *testing.T) {
	const room, topics = 10_000, 10_000 / perTopic
	all := 1_000_000
	if raceEnabled {
		all = 100_000 // make runs it without the race detector too
	}
	u := newTouched(t, Config{IdleViews: room, MaxTopics: topics, MaxRuleTopics: topics})
	u.touch(2 * room) // all is full
	was := heap()
	u.touch(all - 2*room)
	grown := heap() - was
	t.Logf("%d KiB for %d partitions, and %d KiB more for %d of them", was>>10, room, grown>>10, all)
	// Maps from which much is deleted grow to twice what they hold, once.
	if grown > was/2 {
		t.Errorf("memory grew by %d bytes of %d", grown, was)
	}
	if got := u.topics.topics.Len(); got != topics {
		t.Errorf("got %d topics remembered, want %d", got, topics)
	}
	if got := u.metrics.unserved.Load(); got != topics {
		t.Errorf("got %d topics counted as not served, want %d", got, topics)
	}
	runtime.KeepAlive(u)

	without := newTouched(t, Config{})
	without.touch(2 * room)
	was = heap()
	without.touch(6 * room)
	if grown := heap() - was; grown < was {
		t.Errorf("without the limits memory grew by %d bytes of %d only, so the measure proves nothing", grown, was)
	}
	runtime.KeepAlive(without)
}

// idleBytes is what docs say that a partition costs while it is idle, and its
// topic another time as much.
const idleBytes = 1024

func TestCostOfAnIdlePartition(t *testing.T) {
	const n = 20_000
	u := newTouched(t, Config{MaxTopics: 1, MaxRuleTopics: 1})
	u.touch(1)
	was := heap()
	u.touch(n)
	each := (heap() - was) / n
	t.Logf("%d bytes", each)
	if each > idleBytes {
		t.Errorf("got %d bytes, docs say %d", each, idleBytes)
	}
	runtime.KeepAlive(u)
}
