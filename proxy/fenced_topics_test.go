package proxy

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// A topic whose brokers' limits are too short or not known is not served, and
// its writers are told why. Nothing of it passes.
func TestTopicGate(t *testing.T) {
	without := func(name string) map[string]string {
		c := fenceTestConfigs()
		delete(c, name)
		return c
	}
	with := func(name, value string) map[string]string {
		c := fenceTestConfigs()
		c[name] = value
		return c
	}
	asserted := Config{AssertedProducerExpiry: 24 * time.Hour, AssertedConnectionIdle: 10 * time.Minute}
	const (
		grant    = ": grant the proxy DESCRIBE_CONFIGS on the cluster, or assert them in its configuration"
		tooShort = "producer.id.expiration.ms=20m0s is too short: half of it must exceed 23m10s (view_max_age 1m0s, answers 2m0s, connections.max.idle.ms 10m0s, margin 10m10s)"
	)
	for _, c := range []struct {
		name    string
		cfg     Config
		configs map[string]string
		codes   map[kmsg.Key]int16
		want    string // the reason; "" served
	}{
		{name: "the defaults", configs: fenceTestConfigs()},
		{name: "configurations unreadable", want: "the brokers' limits cannot be read (read configs of broker 0: DescribeConfigs answered with error code 31)" + grant},
		{name: "configurations unreadable, asserted", cfg: asserted},
		{name: "the topic's unreadable", configs: fenceTestConfigs(), codes: map[kmsg.Key]int16{kmsg.DescribeConfigs: 29},
			want: `its configuration cannot be read (read configs of topic "fenced": DescribeConfigs answered with error code 29): grant the proxy DESCRIBE_CONFIGS on it, or assert the brokers' limits in its configuration`},
		{name: "expiry not told", configs: without(configProducerExpiry), want: "the brokers' limits cannot be read (producer.id.expiration.ms is not told)" + grant},
		{name: "expiry by its older name", configs: map[string]string{configTransactionalExpiry: "604800000", configConnectionIdle: "600000"}},
		{name: "idle time not told", configs: without(configConnectionIdle), want: "the brokers' limits cannot be read (connections.max.idle.ms is not told)" + grant},
		{name: "idle time not told, asserted", configs: without(configConnectionIdle), cfg: Config{AssertedConnectionIdle: time.Minute}},
		{name: "check interval not told", configs: without(configExpiryCheck)},
		{name: "expiry too short", configs: with(configProducerExpiry, "1200000"), want: tooShort},
		{name: "expiry too short, asserted to be longer", configs: with(configProducerExpiry, "1200000"), cfg: Config{AssertedProducerExpiry: time.Hour}},
		{name: "asserted to be too short", configs: fenceTestConfigs(), cfg: Config{AssertedProducerExpiry: 20 * time.Minute}, want: tooShort},
		{name: "no bound on idle time", configs: with(configConnectionIdle, "-1"), want: "…"},
		{name: "not a number", configs: with(configProducerExpiry, "1d"), want: "the brokers' limits cannot be read (producer.id.expiration.ms is not told)" + grant},
		{name: "no right to describe the topic", configs: fenceTestConfigs(), codes: map[kmsg.Key]int16{kmsg.Metadata: 29},
			want: `it cannot be described (read topic "fenced": Metadata answered with error code 29): grant the proxy DESCRIBE and READ on it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			l.configs = c.configs
			r := newFencedRig(t, c.cfg, l)
			if c.codes != nil {
				l.change(func() { l.codes = c.codes })
			}
			client := r.dial()
			got := client.one(0, conditional(0, "a"))
			if c.want == "" {
				wantResult(t, got, 0, 0, "")
				return
			}
			if c.want == "…" {
				c.want = strings.TrimPrefix(got.Message, "topic is not served: ") // the words name a huge time
			}
			wantResult(t, got, 44, -1, "topic is not served: "+c.want)
			wantResult(t, client.one(0, conditional(0, "a")), 44, -1, "topic is not served: "+c.want)
			if n := len(l.requests()); n != 0 {
				t.Errorf("got %d requests at the broker, want none", n)
			}
			if got := r.log.count("level=ERROR msg=\"topic is under a rule and cannot be fenced"); got != 1 {
				t.Errorf("got %d lines in the log, want 1", got)
			}
		})
	}
}

// TestTopicOfUnreadableType: with the brokers' limits asserted, a topic whose
// configuration may not be read is served by the rules of both timestamp types.
func TestTopicOfUnreadableType(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AssertedProducerExpiry: 24 * time.Hour, AssertedConnectionIdle: 10 * time.Minute}, l)
	l.change(func() { l.codes = map[kmsg.Key]int16{kmsg.DescribeConfigs: 29} })
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 87, -1, messageTypeUnknown)
	wantResult(t, c.one(0, identified(0, "a")), 0, 0, "")
	wantResult(t, c.one(0, identified(0, "b")), 1, -1, "expected-offset taken: expected=0 next=1")
	old := batchOf(batchOptions{timestamp: time.Now().Add(-48 * time.Hour).UnixMilli()}, record{value: "c", expected: "1", appendID: "c"})
	if got := c.one(0, old); got.Code != 32 {
		t.Errorf("old batch: got code %d, want 32", got.Code)
	}
	l.change(func() { l.topics["fenced"].appendTime = true })
	wantResult(t, c.one(0, identified(1, "d")), 0, 1, "")
	wantResult(t, c.one(0, identified(1, "d")), 0, 1, "") // its own, again
}

func TestUnknownTopicName(t *testing.T) {
	l := newLeader(t, "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 3, -1, "")
	// It is not remembered that there was none.
	l.change(func() { l.topics["fenced"] = newTopicLog(9) })
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	// A partition that the topic does not have.
	wantResult(t, c.one(17, conditional(0, "a")), 3, -1, "")
	r.awaitQuiet()
}

// Control connections are cut while clients' own are well.
func TestBrokerThatCannotBeAskedIsRetriable(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	for name, key := range map[string]kmsg.Key{
		"the topic cannot be looked up now; send again": kmsg.DescribeConfigs,
		"not appended, send again: unreachable":         kmsg.DescribeProducers,
	} {
		l.change(func() {
			l.onOther = func(q kmsg.Request) bool { return kmsg.Key(q.Key()) != key }
		})
		r.fencing.topics.forget("fenced")
		wantResult(t, r.dial().one(0, conditional(0, "a")), 6, -1, name)
	}
	l.change(func() { l.onOther = nil })
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
}

func TestProxyWithoutRightToReadTheView(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	l.change(func() { l.codes[kmsg.DescribeProducers] = 29 })
	wantResult(t, r.dial().one(0, conditional(0, "a")), 44, -1, "the proxy may not read what it needs to fence this topic: its principal needs DESCRIBE and READ on it")
	if r.log.count("partition cannot be fenced") == 0 {
		t.Error("got nothing in the log")
	}
	if n := len(l.requests()); n != 0 {
		t.Errorf("got %d requests at the broker, want none", n)
	}
}

// A log that never rests keeps no reading going for ever. What is committed of it
// meanwhile is known even so.
func TestViewThatNeverRestsIsGivenUp(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	r.fencing.readings.timeout = 100 * time.Millisecond
	wantResult(t, r.dial().one(1, conditional(0, "a")), 0, 0, "") // the topic is known
	l.change(func() {
		l.onOther = func(q kmsg.Request) bool {
			if _, ok := q.(*kmsg.DescribeProducersRequest); ok {
				l.bypass("fenced", 0, "x")
			}
			return true
		}
	})
	if got := r.dial().one(0, conditional(0, "a")); got.Code != 1 || !strings.HasPrefix(got.Message, "expected-offset taken: expected=0 next=") {
		t.Errorf("for an offset that is taken: got %+v", got)
	}
	wantResult(t, r.dial().one(0, conditional(1_000_000, "a")), 6, -1, "not appended, send again: unreachable")
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
}

// What several topics of one request wait for is bounded together.
func TestLookupsOfOneRequestShareTheirTime(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced-1", "fenced-2", "fenced-3")
	r := newFencedRig(t, Config{}, l)
	gate := make(chan struct{})
	defer close(gate)
	l.change(func() {
		l.onOther = func(q kmsg.Request) bool {
			if m, ok := q.(*kmsg.MetadataRequest); ok && len(m.Topics) > 0 {
				l.wait(gate)
			}
			return true
		}
	})
	begun := time.Now()
	results := resultsOf(r.dial().produce(9, -1, part{topic: "fenced-1", records: conditional(0, "a")},
		part{topic: "fenced-2", records: conditional(0, "a")}, part{topic: "fenced-3", records: conditional(0, "a")}))
	for _, got := range results {
		wantResult(t, got, 6, -1, "the topic cannot be looked up now; send again")
	}
	if took := time.Since(begun); took > 2*r.Proxy.cfg.LookupTimeout {
		t.Errorf("got an answer after %s, want it within about %s", took, r.Proxy.cfg.LookupTimeout)
	}
}

// loads is a topicLoader that counts.
type loads struct {
	mu    sync.Mutex
	count int
	took  time.Duration
	err   error
	topic fencedTopic
	full  int // topics forgotten for want of room
}

func (l *loads) load(ctx context.Context, _ int32, _ string) (fencedTopic, error) {
	l.mu.Lock()
	l.count++
	topic, err := l.topic, l.err
	l.mu.Unlock()
	select {
	case <-time.After(l.took):
		return topic, err
	case <-ctx.Done():
		return fencedTopic{}, ctx.Err()
	}
}

func newLoads(l *loads, size int) (*topicBook, *sync.WaitGroup) {
	var started sync.WaitGroup
	var unserved atomic.Int64
	book := newTopicBook(l.load, size, func(_ readingKey, r reading) {
		started.Go(func() { _ = r.read(context.Background()) })
	}, &unserved, func() { l.full++ })
	began := time.Now() // of the bubble
	book.now = func() ps.Instant { return ps.Instant(time.Since(began)) }
	return book, &started
}

func (l *loads) want(t *testing.T, count int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count != count {
		t.Errorf("got %d loads, want %d", l.count, count)
	}
}

func TestTopicIsLoadedOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loads{took: time.Second, topic: fencedTopic{refusal: "why"}}
		book, started := newLoads(l, 2)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		// The first gives up; the loading goes on for the others.
		if _, err := book.get(impatient, 0, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want its own time-out", err)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got, err := book.get(t.Context(), 0, "a"); err != nil || got.refusal != "why" {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
		all.Wait()
		started.Wait()
		l.want(t, 1)
		if got := book.unserved.Load(); got != 1 {
			t.Errorf("got %d counted as not served, want 1", got)
		}
	})
}

// TestWhatWasKnownOfATopicIsLetGo: what is looked up again and again keeps
// nothing of what was known before.
func TestWhatWasKnownOfATopicIsLetGo(t *testing.T) {
	l := new(loads)
	book, started := newLoads(l, 1)
	var at ps.Instant
	book.now = func() ps.Instant { return at }
	_, _ = book.look(0, "a")
	started.Wait()
	first := func() weak.Pointer[topicEntry] {
		e, _ := book.topics.Peek("a")
		return weak.Make(e)
	}()
	for range 3 {
		at = at.Add(topicAge + 1)
		if _, known := book.look(0, "a"); !known {
			t.Fatal("not known")
		}
		started.Wait()
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the first entry is kept")
	}
	runtime.KeepAlive(book)
}

func TestTopicIsLoadedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loads{topic: fencedTopic{refusal: "not yet"}}
		book, started := newLoads(l, 2)
		get := func() (fencedTopic, error) { return book.get(t.Context(), 0, "a") }
		_, _ = get()
		time.Sleep(refusedAge)
		if got, ok := book.peek("a"); !ok || got.refusal != "not yet" {
			t.Errorf("got %+v, %v, want what is known", got, ok)
		}
		l.want(t, 1)
		l.topic = fencedTopic{}
		time.Sleep(time.Second)
		if _, ok := book.peek("a"); ok {
			t.Error("got what is too old")
		}
		if got, err := get(); err != nil || got.refusal != "" {
			t.Errorf("got %+v, %v, want it served", got, err)
		}
		l.want(t, 2)
		if got := book.unserved.Load(); got != 0 {
			t.Errorf("got %d counted as not served, want none", got)
		}
		// An error is not remembered.
		time.Sleep(topicAge + time.Second)
		l.err = prober.ErrUnreachable
		for range 2 {
			if _, err := get(); !errors.Is(err, prober.ErrUnreachable) {
				t.Errorf("got %v, want ErrUnreachable", err)
			}
		}
		l.err = nil
		if _, err := get(); err != nil {
			t.Errorf("got %v", err)
		}
		l.want(t, 5)
		book.forget("a")
		_, _ = get()
		l.want(t, 6)
		started.Wait()
	})
}

// A topic that has to make room for another is looked up again when it is
// needed, and is not counted meanwhile.
func TestTopicsMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loads{topic: fencedTopic{refusal: "why"}}
		book, started := newLoads(l, 2)
		get := func(name string) {
			t.Helper()
			if _, err := book.get(t.Context(), 0, name); err != nil {
				t.Fatal(err)
			}
			started.Wait()
		}
		for _, name := range []string{"a", "b", "a", "c", "a"} {
			get(name) // b makes room for c
		}
		l.want(t, 3)
		get("b")
		l.want(t, 4)
		if got := book.unserved.Load(); got != 2 || l.full != 2 {
			t.Errorf("got %d counted as not served and %d forgotten, want 2 and 2", got, l.full)
		}
		for i := range byte(3) {
			name := string('a' + i)
			if got, err := book.name([16]byte{i}, func() (string, error) { return name, nil }); got != name || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
		if got := book.names.Len(); got != 2 {
			t.Errorf("got %d names, want 2", got)
		}
	})
}
