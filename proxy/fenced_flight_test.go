package proxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"

	"github.com/offsetproxy/offsetproxy/wire"
)

// upstreams makes upstream connections that a test can break.
type upstreams struct {
	mu    sync.Mutex
	conns []*upstreamConn
}

func (u *upstreams) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &upstreamConn{Conn: conn}
	u.mu.Lock()
	u.conns = append(u.conns, c)
	u.mu.Unlock()
	return c, nil
}

// last is the connection that was opened last.
func (u *upstreams) last() *upstreamConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conns[len(u.conns)-1]
}

// upstreamConn cuts itself within a write once it is told to.
type upstreamConn struct {
	net.Conn
	mu       sync.Mutex
	cutAfter int // bytes of the next write that has more; 0: none is cut
}

var errCut = errors.New("cut by the test")

func (c *upstreamConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	cut := c.cutAfter
	c.mu.Unlock()
	if cut == 0 || cut > len(b) {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:cut])
	_ = c.Close()
	return n, errCut
}

func (c *upstreamConn) cutWithin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutAfter = n
}

// asOtherProxy appends a batch as another proxy would have stamped it.
func (l *leader) asOtherProxy(p int, sequence int32, batch []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wire.Stamp(batch, defaultFenceID, 0, sequence, time.Now().UnixMilli())
	answer := kmsg.NewProduceResponseTopicPartition()
	l.partition("fenced", p).append(batch, l.topics["fenced"].appendTime, &answer)
	if answer.ErrorCode != 0 {
		l.t.Errorf("the other proxy got code %d", answer.ErrorCode)
	}
}

const unknownAt0 = "outcome unknown: expected=0 next=0; read the partition from 0"

// Wherever the upstream connection is cut, the client is told what is certain,
// and then its connection ends too.
func TestUpstreamCut(t *testing.T) {
	for _, c := range []struct {
		name    string
		batch   []byte
		cut     int // bytes of the request that are written; 0: all
		do      fate
		before  func(l *leader) // called when the request has arrived
		code    int16
		base    int64
		message string
		log     string
	}{
		{name: "within the request's frame", batch: conditional(0, "a"), cut: 90, code: -1, base: -1, message: unknownAt0},
		{name: "within the request's frame, identified", batch: identified(0, "a"), cut: 90, code: -1, base: -1, message: unknownAt0},
		{name: "sent, not appended", batch: conditional(0, "a"), do: fateCutBefore, code: -1, base: -1, message: unknownAt0},
		{name: "sent, appended", batch: conditional(0, "a"), do: fateCutAfter, code: -1, base: -1,
			message: "outcome unknown: expected=0 next=1; read the partition from 0", log: "a"},
		{name: "sent, appended, identified", batch: identified(0, "a", "b"), do: fateCutAfter, code: 0, base: 0, log: "a b"},
		{name: "within the answer", batch: conditional(0, "a"), do: fateCutMid, code: -1, base: -1,
			message: "outcome unknown: expected=0 next=1; read the partition from 0", log: "a"},
		{name: "within the answer, identified", batch: identified(0, "a"), do: fateCutMid, code: 0, base: 0, log: "a"},
		{name: "behind the answer", batch: conditional(0, "a"), do: fateAnswerCut, code: 0, base: 0, log: "a"},
		{name: "sent, another proxy used its sequence up", batch: conditional(0, "a"), do: fateCutBefore,
			before: func(l *leader) { l.asOtherProxy(0, 0, conditional(0, "theirs")) },
			code:   1, base: -1, message: "expected-offset taken: expected=0 next=1", log: "theirs"},
		{name: "sent, another proxy wrote with another sequence", batch: conditional(0, "a"), do: fateCutBefore,
			before: func(l *leader) { l.asOtherProxy(0, 5, conditional(0, "theirs")) },
			code:   -1, base: -1, message: "outcome unknown: expected=0 next=1; read the partition from 0", log: "theirs"},
		{name: "sent, an equal record of another's", batch: conditional(0, "a"), do: fateCutBefore,
			before: func(l *leader) { l.asOtherProxy(0, 0, conditional(0, "a")) },
			code:   -1, base: -1, message: "outcome unknown: expected=0 next=1; read the partition from 0", log: "a"},
		{name: "sent, one who bypasses wrote", batch: conditional(0, "a"), do: fateCutBefore,
			before: func(l *leader) { l.bypass("fenced", 0, "around") },
			code:   -1, base: -1, message: "outcome unknown: expected=0 next=1; read the partition from 0", log: "around"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLeader(t, "fenced")
			u := &upstreams{}
			r := newFencedRig(t, Config{Dial: u.dial}, l)
			client := r.dial()
			client.send(listGroups())
			client.Next()
			u.last().cutWithin(c.cut)
			l.hook(func(*kmsg.ProduceRequest) fate {
				if c.before != nil {
					c.before(l)
				}
				return c.do
			})
			request := produceOf(9, -1, part{topic: "fenced", records: c.batch})
			if c.log == "" {
				request.TimeoutMillis = 400 // it is looked for in vain for half of this
			}
			wantResult(t, resultsOf(client.expect(client.send(request), 9))[0], c.code, c.base, c.message)
			client.ExpectClosed()
			if got := strings.Join(l.values("fenced", 0), " "); got != c.log {
				t.Errorf("got log %q, want %q", got, c.log)
			}
			if got, want := len(l.requests()), 1; c.cut == 0 && got != want {
				t.Errorf("got %d transmissions, want %d", got, want)
			}
			r.awaitQuiet()
		})
	}
}

// A batch that was not sent is not appended later, and leaves nothing behind.
// Its client's connection ends, as it would with a broker that dies.
func TestUpstreamCutWhileHeld(t *testing.T) {
	l := newLeader(t, "fenced")
	u := &upstreams{}
	r := newFencedRig(t, Config{Dial: u.dial}, l)
	c := r.dial()
	c.send(listGroups())
	c.Next()
	upstream := u.last()
	release := l.holdViews()
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	r.awaitUndecided(1)
	_ = upstream.Close()
	c.ExpectClosed()
	r.awaitQuiet()
	release()
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
	if n := len(l.requests()); n != 0 {
		t.Errorf("got %d requests at the broker, want none", n)
	}
}

// A broker marks a batch sent again by its timestamp. Another proxy appended
// one of the same length with the same sequence: this one's was not appended,
// although it was answered with its own offset and no error.
func TestDuplicateOfAnothersBatchIsNotASuccess(t *testing.T) {
	for _, unsafe := range []bool{false, true} {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{Unsafe: unsafe}, l)
		c := r.dial()
		wantResult(t, c.one(0, conditional(1, "beyond")), 1, -1, "expected-offset not reached: expected=1 next=0")
		l.asOtherProxy(0, 0, conditional(0, "theirs"))
		got := c.one(0, conditional(0, "mine"))
		if unsafe { // the twin: appended behind the other, and called a success
			wantResult(t, got, 0, 1, "")
			continue
		}
		wantResult(t, got, 1, -1, "expected-offset taken: expected=0 next=1")
		if got := strings.Join(l.values("fenced", 0), " "); got != "theirs" {
			t.Errorf("got log %q, want theirs alone", got)
		}
		// The next one is stamped from what was learnt.
		wantResult(t, c.one(0, conditional(1, "next")), 0, 1, "")
	}
}

// A view that is old by a batch of another length is refused by its sequence.
func TestStaleViewIsRefusedByTheBroker(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	l.asOtherProxy(0, 1, conditional(1, "b", "c"))
	wantResult(t, c.one(0, conditional(1, "mine")), 1, -1, "expected-offset taken: expected=1 next=3")
	wantResult(t, c.one(0, conditional(3, "d")), 0, 3, "")
	if got := strings.Join(l.values("fenced", 0), " "); got != "a b c d" {
		t.Errorf("got log %q, want a b c d", got)
	}
}

func TestLogAppendTimeTopic(t *testing.T) {
	l := newLeader(t, "fenced")
	l.change(func() { l.topics["fenced"].appendTime = true })
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 87, -1, "the topic has LogAppendTime, where equal records cannot be told apart: give every record an append-id header")
	wantResult(t, c.one(0, identified(0, "a")), 0, 0, "")
	wantResult(t, c.one(0, identified(1, "b", "c")), 0, 1, "")
	old := batchOf(batchOptions{timestamp: 1}, record{value: "d", expected: "3", appendID: "x"})
	wantResult(t, c.one(0, old), 0, 3, "")
	// A duplicate of another's.
	l.asOtherProxy(0, 4, identified(4, "theirs"))
	wantResult(t, c.one(0, identified(4, "mine")), 1, -1, "expected-offset taken: expected=4 next=5")
	// And of one's own, sent through another proxy and by this one again.
	l.asOtherProxy(0, 5, identified(5, "own"))
	wantResult(t, c.one(0, identified(5, "own")), 0, 5, "")
	if got := strings.Join(l.values("fenced", 0), " "); got != "a b c d theirs own" {
		t.Errorf("got log %q", got)
	}
	if got := l.count(kmsg.Fetch); got == 0 {
		t.Error("got no read-back of what was appended")
	}
}

// The type can be changed while the proxy still takes it for CreateTime. Then it
// is asked for again, so that the next batch is told what it lacks.
func TestTimestampTypeThatChangedIsSeenInTheLog(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	l.change(func() { l.topics["fenced"].appendTime = true })
	r.fencing.topics.mu.Lock() // what was learnt just now is beyond doubt
	r.fencing.topics.now = func() ps.Instant { return instant().Add(2 * suspectAge) }
	r.fencing.topics.mu.Unlock()
	wantResult(t, c.one(0, conditional(1, "b")), -1, -1, "outcome unknown: expected=1 next=2; read the partition from 1")
	wantResult(t, c.one(0, conditional(2, "c")), 87, -1, "the topic has LogAppendTime, where equal records cannot be told apart: give every record an append-id header")
	wantResult(t, c.one(0, identified(2, "c")), 0, 2, "")
}

func wantViolation(t *testing.T, r *fencedRig) {
	t.Helper()
	if got := r.outcomes(outcomeViolation); got != 1 {
		t.Errorf("got %d violations counted, want 1", got)
	}
	if got := r.log.count("level=ERROR msg=\"batch was appended at another offset than promised"); got != 1 {
		t.Errorf("got %d lines logged as errors, want 1", got)
	}
}

func TestAppendedElsewhereIsAViolation(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	// The view is read, then another writer goes around the proxies before the
	// first stamped batch: without state a broker takes any sequence.
	wantResult(t, c.one(0, conditional(9, "beyond")), 1, -1, "expected-offset not reached: expected=9 next=0")
	l.bypass("fenced", 0, "around", "the", "fence")
	wantResult(t, c.one(0, conditional(0, "a")), -1, -1, "appended at 3, expected 0: another writer bypasses the proxy")
	wantViolation(t, r)
	// The view was dropped; with drift the fence goes on.
	wantResult(t, c.one(0, conditional(4, "b")), 0, 4, "")
}

func TestMisplacedAnswerIsAViolation(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	l.change(func() {
		l.edit = func(a *kmsg.ProduceResponse) { a.Topics[0].Partitions[0].BaseOffset += 5 }
	})
	wantResult(t, r.dial().one(0, conditional(0, "a")), -1, -1, "appended at 5, expected 0: another writer bypasses the proxy")
	wantViolation(t, r)
}

// What the broker says of a batch that it did not append is passed on; what
// leaves the batch open is not taken for a refusal.
func TestBrokersErrors(t *testing.T) {
	for _, c := range []struct {
		code, want int16
		message    string
	}{
		{code: 6, want: 6}, {code: 19, want: 19}, {code: 10, want: 10}, {code: 29, want: 29},
		{code: 7, want: -1, message: unknownAt0}, {code: 20, want: -1, message: unknownAt0},
		{code: 56, want: -1, message: unknownAt0}, {code: 999, want: -1, message: unknownAt0},
	} {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{}, l)
		l.change(func() {
			l.edit = func(a *kmsg.ProduceResponse) {
				p := &a.Topics[0].Partitions[0]
				p.ErrorCode, p.BaseOffset = c.code, -1
				l.topics["fenced"] = newTopicLog(1) // and indeed nothing is there
			}
		})
		request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
		request.TimeoutMillis = 1600 // half of it is for the first view, on a busy machine too
		client := r.dial()
		wantResult(t, resultsOf(client.expect(client.send(request), 9))[0], c.want, -1, c.message)
	}
}
