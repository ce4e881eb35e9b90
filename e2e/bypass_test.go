package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bypass has writers append to partition 0 at its leader, as fast as it takes
// them and past every proxy, until stop is called. That breaks a condition of the
// fence.
func bypass(t *testing.T, leader, topic string, writers int) (stop func() (appended int64)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var appended atomic.Int64
	for i := range writers {
		conn, err := dialRaw(leader)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer conn.close()
			for n := 0; ctx.Err() == nil; n++ {
				answer, err := conn.produce(topic, 0, encodeBatch(rawRecord{value: fmt.Sprintf("%s%d-%d", bypassed, i, n)}))
				if err != nil || answer.ErrorCode != 0 {
					t.Errorf("past the proxies: code %d, %v", answer.ErrorCode, err)
					return
				}
				appended.Add(1)
			}
		})
	}
	var once sync.Once
	stop = func() int64 {
		once.Do(cancel)
		group.Wait()
		return appended.Load()
	}
	t.Cleanup(func() { stop() })
	return stop
}

// bypassed begins the values that went past the proxies.
const bypassed = "bypass-"

// TestWritersThatBypassTheProxies: while they keep the log from coming to rest,
// what is taken is refused as ever, and nothing is told that is not so. An append
// that lands elsewhere than promised, which only they can bring about, is told
// with its place. Afterwards all is as it was, though offsets and sequences differ.
func TestWritersThatBypassTheProxies(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "bypassed"
	c := newContest(t, topic, 0)
	leader, _ := leaderAndFollower(t, adminAt(t, brokers.addresses()...), topic)
	dialLeader(t, c.proxies[0], topic).mustTell(t, topic, encodeBatch(conditional(0, "first")), wonAt(0))
	stop := bypass(t, cluster.Address(leader), topic, 4)
	// A proxy that knows nothing of the topic, and may get no view of it.
	began := time.Now()
	answer, err := dialLeader(t, startProxy(t, "--require", topic), topic).produce(topic, 0, encodeBatch(conditional(0, "x")))
	if err != nil {
		t.Fatal(err)
	}
	if a, _, err := judge(attempt{expected: 0}, answer); err != nil || a.outcome != taken {
		t.Errorf("for an offset that is taken: got %s, %v", a.answer, err)
	}
	t.Logf("refused after %v", time.Since(began).Round(time.Millisecond))
	attempts := appendWhileBypassed(t, c, 3*time.Second)
	t.Logf("%d records past the proxies", stop())
	at := map[string]int64{"first": 0}
	for _, record := range readLog(t, topic, 0) {
		at[record.value] = record.offset
	}
	counts := map[string]int{}
	for _, a := range attempts {
		counts[a.what()]++
		place, there := at[a.value]
		switch elsewhere, told := a.elsewhere(); {
		case told && (!there || place != elsewhere || place == a.expected):
			t.Errorf("%s, which expected %d, lies at %d (%v), and was told: %s", a.value, a.expected, place, there, a.answer)
		case !told && a.outcome == won && (!there || place != a.expected || a.offset != a.expected):
			t.Errorf("%s, which expected %d and won, lies at %d (%v)", a.value, a.expected, place, there)
		case !told && a.outcome != won && a.outcome != unknown && there:
			t.Errorf("%s was refused (%s) and lies at %d", a.value, a.answer, place)
		}
	}
	t.Logf("%d attempts: %v", len(attempts), counts)
	// Now that they have stopped.
	for _, p := range c.proxies {
		next := int64(len(readLog(t, topic, 0)))
		conn := dialLeader(t, p, topic)
		conn.mustTell(t, topic, encodeBatch(conditional(next, "after "+p.bootstrap)), wonAt(next))
		conn.mustTell(t, topic, encodeBatch(conditional(next, "x")), takenAt(next, next+1))
	}
}

// appendWhileBypassed has each of the contest's writers try for the end as it is
// told of, until the time is over.
func appendWhileBypassed(t *testing.T, c *contest, during time.Duration) []attempt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var group sync.WaitGroup
	for i := range c.writers {
		w := writer{contest: c, id: i, bootstrap: c.proxies[i%len(c.proxies)].bootstrap}
		group.Go(func() {
			defer w.hangUp()
			for next := int64(0); ctx.Err() == nil; {
				if w.conn == nil && !w.connect() {
					pause(ctx, 50*time.Millisecond)
					continue
				}
				a, following, err := w.attempt(next)
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				if elsewhere, told := a.elsewhere(); told {
					following = elsewhere + 1
				} else if a.outcome == unknown {
					w.hangUp()
				}
				c.add(a, following)
				next = following
			}
		})
	}
	group.Wait()
	return c.attempts
}

var elsewhereText = regexp.MustCompile(`appended at (\d+), expected`)

// elsewhere is where a writer was told that its record lies, if not where it was
// to be.
func (a attempt) elsewhere() (int64, bool) {
	parts := elsewhereText.FindStringSubmatch(a.answer)
	if parts == nil {
		return 0, false
	}
	at, err := strconv.ParseInt(parts[1], 10, 64)
	return at, err == nil
}

func (a attempt) what() string {
	if _, told := a.elsewhere(); told {
		return "elsewhere"
	}
	return a.outcome.String()
}

func TestElsewhereIsReadOutOfAnAnswer(t *testing.T) {
	for answer, want := range map[string]int64{
		"code -1: appended at 8, expected 7: another writer bypasses the proxy": 8,
		"code 1: expected-offset taken: expected=7 next=9":                      -1,
	} {
		got, told := attempt{answer: answer}.elsewhere()
		if told != (want >= 0) || told && got != want {
			t.Errorf("%q: got %d, %v, want %d", answer, got, told, want)
		}
	}
}
