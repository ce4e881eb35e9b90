package proxy

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// awaitStacks waits until so many goroutines are in a state within a function.
func awaitStacks(t *testing.T, n int, state, within string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	await(t, fmt.Sprintf("%d in %s", n, within), func() bool {
		found := 0
		for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if head, _, _ := strings.Cut(stack, "\n"); strings.Contains(head, "["+state) && strings.Contains(stack, within) {
				found++
			}
		}
		return found == n
	})
}

// awaitParked waits until the clientLoops of n exchanges wait.
func awaitParked(t *testing.T, n int) {
	t.Helper()
	awaitStacks(t, n, "select", "proxy.(*exchange).park(")
}

// countedUpstream counts what was written by another than the clientLoop.
type countedUpstream struct {
	ownUpstream
	driven *atomic.Int64
}

func (u countedUpstream) flushNow() bool {
	all := u.ownUpstream.flushNow()
	if all {
		u.driven.Add(1)
	}
	return all
}

// A batch that waits for another is sent by who hears that batch's answer, on its own
// connection as on another.
func TestBatchIsSentByWhoMakesItReady(t *testing.T) {
	for name, own := range map[string]bool{"own connection": true, "another connection": false} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
			var driven atomic.Int64
			r.fencing.carry = func(c *conn) carrier { return countedUpstream{ownUpstream{c}, &driven} }
			a := r.dial()
			b := a
			if !own {
				b = r.dial()
			}
			warm(t, a)
			warm(t, b)
			entered, release := l.withhold(fateAnswer)
			first := a.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
			<-entered
			second := b.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
			awaitParked(t, 1)
			release()
			wantResult(t, resultsOf(a.expect(first, 9))[0], 0, 0, "")
			wantResult(t, resultsOf(b.expect(second, 9))[0], 0, 1, "")
			if got := driven.Load(); got != 1 {
				t.Errorf("got %d batches sent by others than their clientLoops, want 1", got)
			}
		})
	}
}

// What one answer makes ready of a request goes in one request, as it came.
func TestWhatAnAnswerMakesReadyGoesTogether(t *testing.T) {
	const partitions = 4
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{AdmissionWait: time.Minute}, l).dial()
	warm(t, c)
	before := len(l.requests())
	entered, release := l.withhold(fateAnswer)
	requests := make([][]part, 2)
	for i := range requests {
		for p := range int32(partitions) {
			requests[i] = append(requests[i], part{topic: "fenced", partition: p, records: conditional(int64(i), "x")})
		}
	}
	ids := []int32{c.send(produceOf(9, -1, requests[0]...))}
	<-entered
	for _, parts := range requests[1:] {
		ids = append(ids, c.send(produceOf(9, -1, parts...)))
	}
	awaitParked(t, 1)
	release()
	for i, id := range ids {
		for _, got := range resultsOf(c.expect(id, 9)) {
			wantResult(t, got, 0, int64(i), "")
		}
	}
	if got := len(l.requests()) - before; got != len(requests) {
		t.Errorf("the broker got %d requests, want %d", got, len(requests))
	}
}

// scriptedConn is a connection to the broker of which the test says how much it takes
// without waiting, while now is set.
type scriptedConn struct {
	net.Conn
	now *atomic.Pointer[func(net.Conn, []byte) int]
}

func (c scriptedConn) writeNow(b []byte) int {
	if now := c.now.Load(); now != nil {
		return (*now)(c.Conn, b)
	}
	return writeNow(c.Conn, b)
}

// newScriptedRig is a rig with such connections.
func newScriptedRig(t *testing.T, l *leader, cfg Config, now func(net.Conn, []byte) int) *fencedRig {
	t.Helper()
	var p atomic.Pointer[func(net.Conn, []byte) int]
	p.Store(&now)
	cfg.AdmissionWait = time.Minute
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return scriptedConn{conn, &p}, err
	}
	return newFencedRig(t, cfg, l)
}

// Of a batch that its connection takes only in part the clientLoop writes the rest,
// before all that comes behind it.
func TestRestOfADrivenBatchIsWrittenByItsClientLoop(t *testing.T) {
	for _, c := range []struct {
		name string
		of   func(size int) int
	}{
		{"nothing", func(int) int { return 0 }},
		{"a byte", func(int) int { return 1 }},
		{"half", func(size int) int { return size / 2 }},
		{"all but a byte", func(size int) int { return size - 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const batches, ids = 5, 100
			var asked atomic.Int64
			l := newLeader(t, "fenced", "free")
			r := newScriptedRig(t, l, Config{}, func(conn net.Conn, b []byte) int {
				asked.Add(1)
				n, _ := conn.Write(b[:c.of(len(b))])
				return n
			})
			client := r.dial()
			warm(t, client)
			entered, release := l.withhold(fateAnswer)
			first := client.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "0")}))
			<-entered
			var frames []byte
			var want []string
			for i := range int32(batches) {
				if i > 0 {
					frames = append(frames, kafkatest.RequestFrame(ids+2*i, produceOf(9, -1, part{topic: "fenced", records: conditional(int64(i), fmt.Sprint(i))}))...)
				}
				frames = append(frames, kafkatest.RequestFrame(ids+2*i+1, produceOf(9, -1, part{topic: "free", records: plain(fmt.Sprint(i))}))...)
				want = append(want, fmt.Sprint(i))
			}
			client.SendBytes(frames)
			awaitParked(t, 1) // behind the first one without a rule
			release()
			wantResult(t, resultsOf(client.expect(first, 9))[0], 0, 0, "")
			for i := range int32(batches) {
				if i > 0 {
					wantResult(t, resultsOf(client.expect(ids+2*i, 9))[0], 0, int64(i), "")
				}
				wantResult(t, resultsOf(client.expect(ids+2*i+1, 9))[0], 0, int64(i), "")
			}
			for _, topic := range []string{"fenced", "free"} {
				if got := l.values(topic, 0); !slices.Equal(got, want) {
					t.Errorf("%s: got log %v, want %v", topic, got, want)
				}
			}
			if asked.Load() == 0 {
				t.Error("no batch was sent by another than its clientLoop")
			}
		})
	}
}

// A write that fails leaves the fate of a batch open, whoever writes.
func TestDrivenBatchWhoseConnectionFailsIsUnknown(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newScriptedRig(t, l, Config{}, func(conn net.Conn, b []byte) int {
		n, _ := conn.Write(b[:len(b)/2])
		_ = conn.Close()
		return n
	})
	c := r.dial()
	warm(t, c) // the first batch waits for nothing
	entered, release := l.withhold(fateAnswer)
	first := c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")})
	request.TimeoutMillis = 200
	second := c.send(request)
	third := c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(2, "c")}))
	awaitParked(t, 1)
	release()
	wantResult(t, resultsOf(c.expect(first, 9))[0], 0, 0, "")
	wantResult(t, resultsOf(c.expect(second, 9))[0], -1, -1, "outcome unknown: expected=1 next=1; read the partition from 1")
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x behind the answer, want none to request %d", rest, third)
	}
	r.awaitQuiet()
}

// A client that has gone is found out by whoever would send its batch.
func TestDrivenBatchOfAClientThatHasGoneIsNotSent(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
	a, b := r.dial(), r.dial()
	warm(t, a)
	entered, release := l.withhold(fateAnswer)
	first := a.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	b.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	awaitParked(t, 1)
	_ = b.Close()
	await(t, "the proxy can know", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for conn := range r.conns {
			if conn.clientGone() {
				return true
			}
		}
		return false
	})
	release()
	wantResult(t, resultsOf(a.expect(first, 9))[0], 0, 0, "")
	wantResult(t, a.one(0, conditional(1, "c")), 0, 1, "")
	r.awaitQuiet()
	await(t, "its connection is gone", func() bool { return r.metrics.open.Load() == 1 })
	if got, want := l.values("fenced", 0), []string{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("got log %v, want %v", got, want)
	}
}

// A connection that is cut while its batch is driven ends when that is over.
func TestConnectionIsCutWhileItsBatchIsDriven(t *testing.T) {
	l := newLeader(t, "fenced")
	driving, gate := make(chan struct{}), make(chan struct{})
	r := newScriptedRig(t, l, Config{DrainTimeout: time.Millisecond}, func(net.Conn, []byte) int {
		close(driving)
		<-gate
		return 0
	})
	c := r.dial()
	warm(t, c) // the first batch waits for nothing
	entered, release := l.withhold(fateAnswer)
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	awaitParked(t, 1)
	release()
	<-driving
	r.stop()
	awaitStacks(t, 1, "chan receive", "proxy.(*exchange).unpark(")
	close(gate)
	r.awaitEnd()
	if got, want := l.values("fenced", 0), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("got log %v, want %v", got, want)
	}
}

// What is not written counts as not sent, so that it can be told so.
func TestWritingNowCountsAsSentWhatIsWritten(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	for _, n := range []int{0, 1, 3} {
		near, far := net.Pipe()
		c := newConn(r.Proxy, near, r.topology.entrances[0], 0)
		now := func(net.Conn, []byte) int { return n }
		var script atomic.Pointer[func(net.Conn, []byte) int]
		script.Store(&now)
		c.upstream = scriptedConn{far, &script}
		c.up = fast(c.upstream)
		c.queued, c.out = 1, append(c.out, []byte("abc"))
		all := c.flushUpstreamNow()
		if want := n == 3; all != want {
			t.Errorf("%d of 3 bytes: got %t for all", n, all)
		}
		if got, want := c.written == 1, n > 0; got != want {
			t.Errorf("%d of 3 bytes: got %t for written", n, got)
		}
		if got, want := len(c.out) == 1 && string(c.out[0]) == "abc"[n:], n < 3; got != want {
			t.Errorf("%d of 3 bytes: got %q left to write", n, c.out)
		}
		c.cancel(errAborted)
		_, _ = near.Close(), far.Close()
	}
}

// A client that reads nothing must not keep its own clientLoop from going on.
func TestDrivenExchangeIsHandedBackBeforeTheClientIsWaitedFor(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	near, far := net.Pipe()
	c := newConn(r.Proxy, near, r.Proxy.topology.entrances[0], 0)
	defer c.cancel(errAborted)
	x := makeExchange(1)
	x.c, x.signal, x.attention = c, c.changed, driven
	c.resume = x
	d := &downlink{c: c, in: wire.NewInbox(strings.NewReader("answer"), inboxBytes, inboxBytes), ready: 6}
	if err := d.in.Fill(d.ready); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		d.write()
	}()
	select {
	case <-x.signal:
	case <-time.After(seamPatience):
		t.Error("the clientLoop waits for the client")
	}
	_, _ = far.Close(), near.Close()
	<-written
	if x.attention != attended {
		t.Errorf("got attention %d, want it attended", x.attention)
	}
}
