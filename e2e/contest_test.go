package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// contest is a race of raw writers for the places 0 to places−1 of one
// partition. A writer never sends a record twice: each attempt has a value of
// its own.
type contest struct {
	topic   string
	places  int64
	proxies []*proxyProcess // writer i goes through proxy i mod len
	writers int
	// anywhere is how many more write without a condition; half of them say "end".
	anywhere int
	// batch makes a batch of an attempt's record; nil: encodeBatch.
	batch func(a attempt, record rawRecord) []byte

	mu       sync.Mutex
	attempts []attempt
	highest  int64                   // places known to be full
	waiting  map[int64]chan struct{} // closed when highest gets there
}

// run returns all attempts when every writer has seen the last place taken.
func (c *contest) run(t *testing.T, limit time.Duration) []attempt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	started := time.Now()
	var group sync.WaitGroup
	for i := range c.writers {
		group.Go(func() {
			w := writer{contest: c, id: i, bootstrap: c.proxies[i%len(c.proxies)].bootstrap}
			if err := w.run(ctx); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	for i := range c.anywhere {
		group.Go(func() {
			w := anywhere{end: i%2 == 0, writer: writer{contest: c, id: c.writers + i, bootstrap: c.proxies[i/2%len(c.proxies)].bootstrap}}
			if err := w.run(ctx); err != nil {
				t.Errorf("writer %d: %v", w.id, err)
			}
		})
	}
	group.Wait()
	c.report(t, time.Since(started))
	return c.attempts
}

func (c *contest) report(t *testing.T, took time.Duration) {
	t.Helper()
	counts := map[outcome]int{}
	examples := map[outcome]string{}
	wins := make([]int, c.writers+c.anywhere)
	for _, a := range c.attempts {
		counts[a.outcome]++
		if a.outcome == won {
			wins[a.writer]++
		}
		examples[a.outcome] = a.answer
	}
	t.Logf("%d places in %v: %d attempts, %v; wins by writer %v", c.places, took.Round(time.Millisecond), len(c.attempts), counts, wins)
	for _, o := range []outcome{taken, notReached, notWritten, unknown} {
		if examples[o] != "" {
			t.Logf("  %v, for example: %s", o, examples[o])
		}
	}
}

// add notes an attempt and how far the log is known to be because of it.
func (c *contest) add(a attempt, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, a)
	c.highest = max(c.highest, next)
	for place, reached := range c.waiting {
		if place <= c.highest {
			close(reached)
			delete(c.waiting, place)
		}
	}
}

// over reports whether all places are full.
func (c *contest) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest >= c.places
}

// reached is closed once the places below place are full.
func (c *contest) reached(place int64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(map[int64]chan struct{})
	}
	ch := c.waiting[place]
	if ch == nil {
		ch = make(chan struct{})
		if place <= c.highest {
			close(ch)
			return ch
		}
		c.waiting[place] = ch
	}
	return ch
}

// writer is one contender with one connection at a time.
type writer struct {
	contest   *contest
	id        int
	bootstrap string
	conn      *rawConn // to the leader as last known; nil: ask
	sent      int
}

func (w *writer) run(ctx context.Context) error {
	defer w.hangUp()
	for next := int64(0); next < w.contest.places; {
		if ctx.Err() != nil {
			return fmt.Errorf("at place %d: %w", next, ctx.Err())
		}
		if w.conn == nil && !w.connect() {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		a, following, err := w.attempt(next)
		if err != nil {
			return err
		}
		switch a.outcome {
		case notReached:
			following = next // what is missing there comes soon
			pause(ctx, 5*time.Millisecond)
		case notWritten:
			w.hangUp() // the leader may have moved
			pause(ctx, 20*time.Millisecond)
		case unknown:
			w.hangUp()
			pause(ctx, 20*time.Millisecond)
		case won, taken:
		}
		w.contest.add(a, following)
		next = following
	}
	return nil
}

// connect finds the leader through the proxy.
func (w *writer) connect() bool {
	w.conn = findLeader(w.bootstrap, w.contest.topic)
	return w.conn != nil
}

// findLeader connects to the leader of a topic's only partition, as a proxy or
// broker tells it; nil: not now.
func findLeader(bootstrap, topic string) *rawConn {
	conn, err := dialRaw(bootstrap)
	if err != nil {
		return nil
	}
	defer conn.close()
	metadata, err := conn.metadata(topic)
	if err != nil || len(metadata.Topics) != 1 || len(metadata.Topics[0].Partitions) != 1 {
		return nil
	}
	leader, ok := brokerMap(metadata)[metadata.Topics[0].Partitions[0].Leader]
	if !ok {
		return nil
	}
	conn, err = dialRaw(leader)
	if err != nil {
		return nil
	}
	return conn
}

func (w *writer) hangUp() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

// attempt sends one record for a place and says where to go on.
func (w *writer) attempt(place int64) (a attempt, following int64, err error) {
	w.sent++
	a = attempt{writer: w.id, value: fmt.Sprintf("w%d-%d", w.id, w.sent), expected: place}
	batch := encodeBatch(conditional(place, a.value))
	if w.contest.batch != nil {
		batch = w.contest.batch(a, conditional(place, a.value))
	}
	answer, err := w.conn.produce(w.contest.topic, 0, batch)
	if err != nil {
		a.outcome, a.answer = unknown, err.Error()
		return a, place, nil
	}
	return judge(a, answer)
}

// The texts that a client may rely on.
var (
	refusal     = regexp.MustCompile(`^expected-offset (taken|not reached): expected=(\d+) next=(\d+)(?: log_start=\d+)?$`)
	unknownText = regexp.MustCompile(`^outcome unknown: expected=(\d+) next=-?\d+; read the partition from (\d+)$`)
	// violationText comes without the fence only.
	violationText = regexp.MustCompile(`^appended at \d+, expected (\d+): another writer bypasses the proxy$`)
)

var (
	errBadRefusal = errors.New("refusal is not as documented")
	errBadUnknown = errors.New("unknown outcome is not told as documented")
	errUnexpected = errors.New("answer is none that a writer may get")
)

// judge turns an answer into an outcome; an answer that the proxy must not give
// is an error.
func judge(a attempt, answer kmsg.ProduceResponseTopicPartition) (attempt, int64, error) {
	message := ""
	if answer.ErrorMessage != nil {
		message = *answer.ErrorMessage
	}
	code := kerr.ErrorForCode(answer.ErrorCode)
	a.answer = fmt.Sprintf("code %d: %s", answer.ErrorCode, message)
	switch {
	case code == nil:
		a.outcome, a.offset = won, answer.BaseOffset
		return a, max(a.expected+1, answer.BaseOffset+1), nil
	case errors.Is(code, kerr.OffsetOutOfRange):
		return judgeRefusal(a, message)
	case errors.Is(code, kerr.UnknownServerError):
		a.outcome = unknown
		return a, a.expected, checkUnknown(a, message)
	case kerr.IsRetriable(code):
		a.outcome = notWritten
		return a, a.expected, nil
	default:
		return a, a.expected, fmt.Errorf("%w: %s", errUnexpected, a.answer)
	}
}

func checkUnknown(a attempt, message string) error {
	want := strconv.FormatInt(a.expected, 10)
	if parts := unknownText.FindStringSubmatch(message); parts != nil && parts[1] == want && parts[2] == want {
		return nil
	}
	if parts := violationText.FindStringSubmatch(message); parts != nil && parts[1] == want {
		return nil
	}
	return fmt.Errorf("%w for place %d: %q", errBadUnknown, a.expected, message)
}

func judgeRefusal(a attempt, message string) (attempt, int64, error) {
	parts := refusal.FindStringSubmatch(message)
	if parts == nil {
		return a, a.expected, fmt.Errorf("%w: %q", errBadRefusal, message)
	}
	expected, _ := strconv.ParseInt(parts[2], 10, 64)
	next, _ := strconv.ParseInt(parts[3], 10, 64)
	a.outcome = taken
	if parts[1] == "not reached" {
		a.outcome = notReached
	}
	if expected != a.expected || (a.outcome == taken) != (next > expected) || next == expected {
		return a, a.expected, fmt.Errorf("%w for place %d: %q", errBadRefusal, a.expected, message)
	}
	return a, next, nil
}

// pause keeps a writer that has nothing to wait on from spinning.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func TestUnknownOutcomesAreJudged(t *testing.T) {
	for message, want := range map[string]error{
		"outcome unknown: expected=7 next=9; read the partition from 7": nil,
		"appended at 8, expected 7: another writer bypasses the proxy":  nil,
		"outcome unknown: expected=7 next=9; read the partition from 8": errBadUnknown,
		"appended at 8, expected 6: another writer bypasses the proxy":  errBadUnknown,
		"outcome unknown": errBadUnknown,
		"":                errBadUnknown,
	} {
		if err := checkUnknown(attempt{expected: 7}, message); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", message, err, want)
		}
	}
}

func TestRefusalsAreJudged(t *testing.T) {
	for _, c := range []struct {
		message   string
		outcome   outcome
		following int64
		err       error
	}{
		{"expected-offset taken: expected=7 next=9", taken, 9, nil},
		{"expected-offset taken: expected=7 next=9 log_start=8", taken, 9, nil},
		{"expected-offset not reached: expected=7 next=3", notReached, 3, nil},
		{"expected-offset taken: expected=7 next=7", taken, 7, errBadRefusal},
		{"expected-offset taken: expected=7 next=3", taken, 7, errBadRefusal},
		{"expected-offset not reached: expected=7 next=9", notReached, 7, errBadRefusal},
		{"expected-offset taken: expected=6 next=9", taken, 7, errBadRefusal},
		{"taken", won, 7, errBadRefusal},
		{"", won, 7, errBadRefusal},
	} {
		a, following, err := judgeRefusal(attempt{expected: 7}, c.message)
		if !errors.Is(err, c.err) || following != c.following || a.outcome != c.outcome {
			t.Errorf("%q: got %v, %d, %v; want %v, %d, %v", c.message, a.outcome, following, err, c.outcome, c.following, c.err)
		}
	}
}
