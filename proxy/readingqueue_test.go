package proxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// queueLog notes what readings do, in order.
type queueLog struct {
	mu            sync.Mutex
	done          []string
	running, most int
	waited        int
}

func (l *queueLog) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, what)
}

func (l *queueLog) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited++
}

// taking is a reading that takes d, and then comes to err.
func (l *queueLog) taking(name string, d time.Duration, err error) reading {
	return reading{
		read: func(ctx context.Context) error {
			l.mu.Lock()
			l.running++
			l.most = max(l.most, l.running)
			l.mu.Unlock()
			defer func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.running--
			}()
			select {
			case <-time.After(d):
				l.note(name)
				return err
			case <-ctx.Done():
				l.note(name + " cut short")
				return ctx.Err()
			}
		},
		fail: func(error) { l.note(name + " failed") },
	}
}

func (l *queueLog) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.done, want) {
		t.Errorf("got %q, want %q", l.done, want)
	}
}

func runQueues(t *testing.T, atOnce int, fn func(*testing.T, *queueLog, *readingQueues)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &queueLog{}
		q := newReadingQueues(atOnce, time.Minute, l.wait, func(readingKey, error, bool) {})
		fn(t, l, q)
		q.stop()
		q.wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.queues) != 0 {
			t.Errorf("%d queues are left", len(q.queues))
		}
	})
}

func TestReadingsOfABrokerAreBounded(t *testing.T) {
	runQueues(t, 2, func(t *testing.T, l *queueLog, q *readingQueues) {
		for i, seconds := range []time.Duration{10, 7, 2, 5, 1} {
			q.start(readingKey{node: 1}, l.taking(fmt.Sprint(i), seconds*time.Second, nil))
		}
		time.Sleep(time.Minute)
		// 0 and 1 begin; each that ends lets the next one begin: 2 at 7 s, 3 at
		// 9 s, 4 at 10 s.
		l.want(t, "1", "2", "0", "4", "3")
		if l.most != 2 || l.waited != 3 {
			t.Errorf("got %d at once and %d that waited, want 2 and 3", l.most, l.waited)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.queues) != 0 {
			t.Errorf("%d queues are kept on which nothing goes on", len(q.queues))
		}
	})
}

// A broker that does not answer holds up its own readings only, and what is
// asked about partitions nothing that is asked about topics.
func TestReadingsOfOthersDoNotWait(t *testing.T) {
	runQueues(t, 1, func(t *testing.T, l *queueLog, q *readingQueues) {
		q.start(readingKey{node: 1}, l.taking("hangs", time.Hour, nil))
		q.start(readingKey{node: 1}, l.taking("behind it", time.Second, nil))
		q.start(readingKey{node: 2}, l.taking("other broker", time.Second, nil))
		q.start(readingKey{node: 1, topics: true}, l.taking("topic", 2*time.Second, nil))
		time.Sleep(3 * time.Second)
		l.want(t, "other broker", "topic")
		time.Sleep(time.Hour)
		l.want(t, "other broker", "topic", "hangs cut short", "behind it")
	})
}

// What waits for a broker that cannot be reached is told so at once: each would
// take a timeout of its own to find the same.
func TestReadingsFailWithTheirBroker(t *testing.T) {
	unreachable := fmt.Errorf("dial: %w", prober.ErrUnreachable)
	runQueues(t, 1, func(t *testing.T, l *queueLog, q *readingQueues) {
		for i, err := range []error{&prober.BrokerError{Code: 6}, unreachable, nil, nil} {
			q.start(readingKey{node: 1}, l.taking(fmt.Sprint(i), time.Second, err))
		}
		q.start(readingKey{node: 2}, l.taking("other", 3*time.Second, nil))
		time.Sleep(time.Minute)
		l.want(t, "0", "1", "2 failed", "3 failed", "other")
		q.start(readingKey{node: 1}, l.taking("later", time.Second, nil))
		time.Sleep(time.Minute)
		l.want(t, "0", "1", "2 failed", "3 failed", "other", "later")
	})
}

func TestReadingsEnd(t *testing.T) {
	runQueues(t, 1, func(t *testing.T, l *queueLog, q *readingQueues) {
		q.start(readingKey{node: 1}, l.taking("running", time.Minute/2, nil))
		q.start(readingKey{node: 1}, l.taking("waiting", time.Second, nil))
		synctest.Wait()
		q.stop()
		q.wait()
		q.start(readingKey{node: 1}, l.taking("after the end", time.Second, nil))
		time.Sleep(time.Hour)
		l.want(t, "running cut short")
	})
}
