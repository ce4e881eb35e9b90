package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a client sent and did not wait for is not sent on its behalf once it
// has gone, and leaves nothing behind.
func TestClientGoneWhileItsBatchIsHeld(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	release := l.holdViews()
	c := r.dial()
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	r.awaitUndecided(1)
	_ = c.Close()
	await(t, "the proxy can know", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for conn := range r.conns {
			return conn.clientGone()
		}
		return true
	})
	release()
	r.awaitQuiet()
	await(t, "the connection is gone and the lane put away", func() bool { return r.metrics.open.Load() == 0 && r.lanes() == 0 })
	if n := len(l.requests()); n != 0 {
		t.Errorf("got %d requests at the broker, want none", n)
	}
	if got := r.outcomes(outcomeWon); got != 0 {
		t.Errorf("got %d won, want none", got)
	}
}

// The batch waits for no other, but for its topic to be looked up.
func TestClientGoneWhileItsTopicIsLookedUp(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	gate, asked := make(chan struct{}), make(chan struct{}, 100)
	l.change(func() {
		l.onOther = func(request kmsg.Request) bool {
			if _, ok := request.(*kmsg.MetadataRequest); ok {
				asked <- struct{}{}
				l.wait(gate)
			}
			return true
		}
	})
	r.fencing.topics.forget("fenced")
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	<-asked
	_ = c.Close()
	await(t, "the proxy can know", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for conn := range r.conns {
			return conn.clientGone()
		}
		return true
	})
	close(gate)
	r.awaitQuiet()
	await(t, "the connection is gone", func() bool { return r.metrics.open.Load() == 0 })
	if got := l.end("fenced", 0); got != 1 {
		t.Errorf("the log ends at %d, want 1", got)
	}
}

// Clients that go at any moment leave no lane in use.
func TestManyClientsGone(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{AdmissionWait: time.Millisecond}, l)
	for i := range 60 {
		c := r.dial()
		parts := []part{{topic: "free", records: plain("x")}}
		for p := range int32(4) {
			parts = append(parts, part{topic: "fenced", partition: p, records: conditional(int64(i%3), fmt.Sprint(i))})
		}
		for range 1 + i%3 {
			c.send(produceOf(9, int16(i%2), parts...))
		}
		if i%4 == 0 {
			time.Sleep(time.Duration(i%7) * 100 * time.Microsecond) // some are further on the way
		}
		_ = c.Close()
	}
	r.awaitQuiet()
	await(t, "everything is put away", func() bool { return r.metrics.open.Load() == 0 && r.lanes() == 0 })
}

// A drain answers what it has taken: what is held as soon as it is decided,
// what is in flight when the broker answers.
func TestDrainAnswersWhatIsHeldAndInFlight(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{DrainTimeout: seamPatience}, l)
	entered, release := l.withhold(fateAnswer)
	a, b := r.dial(), r.dial()
	first := a.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	second := b.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	r.awaitUndecided(2)
	r.stop()
	await(t, "it drains", func() bool { return r.log.count("draining") > 0 })
	release()
	wantResult(t, resultsOf(a.expect(first, 9))[0], 0, 0, "")
	wantResult(t, resultsOf(b.expect(second, 9))[0], 0, 1, "")
	a.ExpectClosed()
	b.ExpectClosed()
	r.awaitEnd()
}

// What is left at the end of a drain is cut: unknown, as with a broker that
// dies. What was held is not sent any more.
func TestDrainTimeoutCutsWhatIsHeldAndInFlight(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{DrainTimeout: 50 * time.Millisecond, AdmissionWait: time.Minute}, l)
	entered, release := l.withhold(fateAnswer)
	a, b := r.dial(), r.dial()
	a.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	b.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	r.awaitUndecided(2)
	r.stop()
	r.awaitEnd()
	if rest := a.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x, want no answer", rest)
	}
	// The other may hear that its offset is not reached, if the first was cut
	// before it.
	b.ExpectClosed()
	release()
	if n := len(l.requests()); n != 1 {
		t.Errorf("got %d requests at the broker, want the one in flight", n)
	}
}

// A drain while topics are looked up and views are read.
func TestDrainWhileReading(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.DescribeConfigs, kmsg.DescribeProducers, kmsg.Metadata} {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{DrainTimeout: 50 * time.Millisecond}, l)
		asked, gate := make(chan struct{}, 100), make(chan struct{})
		l.change(func() {
			l.onOther = func(q kmsg.Request) bool {
				if m, ok := q.(*kmsg.MetadataRequest); ok && len(m.Topics) == 0 {
					return true
				}
				if kmsg.Key(q.Key()) == key {
					asked <- struct{}{}
					l.wait(gate)
				}
				return true
			}
		})
		c := r.dial()
		c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
		<-asked
		r.stop()
		r.awaitEnd()
		c.ExpectClosed()
		close(gate)
	}
}

// Idle lanes are put away, and taken up again with what is known.
func TestIdleLanesKeepTheirViews(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
	views := l.count(kmsg.DescribeProducers)
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
	// Its own records too: no reading is needed to recognise one.
	wantResult(t, c.one(0, conditional(1, "other")), 1, -1, "expected-offset taken: expected=1 next=2")
	if got := l.count(kmsg.DescribeProducers); got != views {
		t.Errorf("got %d views read after the lane was taken up again, want none", got-views)
	}
	if got := l.count(kmsg.Fetch); got != 0 {
		t.Errorf("got %d read-backs, want none", got)
	}
}

func TestIdleViewsAreBounded(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{IdleViews: 2}, l)
	c := r.dial()
	for p := range int32(4) {
		wantResult(t, c.one(p, conditional(0, "a")), 0, 0, "")
	}
	await(t, "the lanes are put away", func() bool { return r.lanes() == 0 })
	if got, want := r.metrics.evicted.Load(), int64(2); got != want {
		t.Errorf("got %d evicted, want %d", got, want)
	}
	for p := range int32(4) {
		wantResult(t, c.one(p, conditional(1, "b")), 0, 1, "")
	}
}

// A lane with a batch in it, or with one of unknown fate, stays.
func TestBusyLanesAreNotPutAway(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	release := l.holdViews()
	c := r.dial()
	id := c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	r.awaitUndecided(1)
	r.fencing.sweep()
	if got := r.lanes(); got != 1 {
		t.Fatalf("got %d lanes while a batch is held, want 1", got)
	}
	release()
	wantResult(t, resultsOf(c.expect(id, 9))[0], 0, 0, "")

	l.hook(func(*kmsg.ProduceRequest) fate { return fateCutBefore })
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")})
	request.TimeoutMillis = 100
	wantResult(t, resultsOf(c.expect(c.send(request), 9))[0], -1, -1, "outcome unknown: expected=1 next=1; read the partition from 1")
	r.awaitQuiet()
	r.fencing.sweep()
	if got := r.lanes(); got != 1 {
		t.Fatalf("got %d lanes while a batch is unknown, want 1", got)
	}
	// Sent again it is stamped as before, so the earlier copy can do no harm.
	l.hook(nil)
	c = r.dial()
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
	requests := l.requests()
	for _, q := range requests[1:] {
		if got := headerOf(t, q.Topics[0].Partitions[0].Records).BaseSequence; got != 1 {
			t.Errorf("got sequence %d, want the same as before, 1", got)
		}
	}
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
}

// Views are not used by connections that are younger, lest they be of before a
// restart of the broker.
func TestNewConnectionReadsTheViewAnew(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
	views := l.count(kmsg.DescribeProducers)
	wantResult(t, r.dial().one(0, conditional(1, "b")), 0, 1, "")
	if got := l.count(kmsg.DescribeProducers); got != views+1 {
		t.Errorf("got %d views read for a new connection, want 1", got-views)
	}
}

// Past ViewMaxAge a view is read anew.
func TestOldViewIsReadAnew(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{ViewMaxAge: 100 * time.Millisecond}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	views := l.count(kmsg.DescribeProducers)
	old := instant().Add(100 * time.Millisecond)
	await(t, "the view is old", func() bool { return instant() > old })
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
	if got := l.count(kmsg.DescribeProducers); got == views {
		t.Error("got no view read, want the old one not used")
	}
}
