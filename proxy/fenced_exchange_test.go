package proxy

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// What the fence makes ready after the last piece was taken has nobody left to
// send it, so the fence must be told at once. Else it waits for an answer, and
// gives it up with the whole connection.
func TestReadyAfterTheLastPieceIsNotTakenForSent(t *testing.T) {
	x := makeExchange(2)
	x.signal = make(chan struct{}, 1)
	for i := range x.entries {
		x.entries[i].x, x.entries[i].index, x.entries[i].records = x, i, []byte("in the frame")
	}
	sent, held := &x.entries[0], &x.entries[1]
	x.moveLocked(sent, entrySent)
	again := &fence.Effect{Kind: fence.Send}

	if _, waits := x.takeReady(); !waits {
		t.Fatal("got no held entry, want one")
	}
	if sendable, _ := sent.ready(again); !sendable {
		t.Error("got false while another is held, so that the frame is there still")
	}
	if ready, _ := x.takeReady(); len(ready) != 1 || ready[0] != 0 {
		t.Errorf("got %v to be sent, want the one that was made ready", ready)
	}
	x.moveLocked(held, entryDone) // decided meanwhile
	if ready, waits := x.takeReady(); waits || len(ready) > 0 {
		t.Fatalf("got %v and %v, want nothing left to do", ready, waits)
	}
	// The clientLoop has not let go of the frame yet.
	if sendable, _ := sent.ready(again); sendable {
		t.Error("got true: the batch counts as sent, and nobody sends it")
	}
}

// The same while the connection ends.
func TestReadyAfterCancelIsNotTakenForSent(t *testing.T) {
	x := makeExchange(1)
	x.signal = make(chan struct{}, 1)
	e := &x.entries[0]
	e.x, e.records = x, []byte("in the frame")
	x.moveLocked(e, entrySent)
	x.cancel()
	if sendable, _ := e.ready(&fence.Effect{Kind: fence.Send}); sendable {
		t.Error("got true: the batch counts as sent, and nobody sends it")
	}
}

// A dial can outlast a restart of the broker, so a view begun during it may be
// of before.
func TestConnectionCountsAsOpenOnlyOnceItIs(t *testing.T) {
	l := newLeader(t, "fenced")
	during := make(chan ps.Instant, 10)
	r := newFencedRig(t, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		during <- instant()
		return conn, err
	}}, l)
	<-during // discovery
	to, err := r.dialFor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.conn.Close()
	if during := <-during; to.openedAt < during {
		t.Errorf("got opened at %d, before the dial ended at %d", to.openedAt, during)
	}
}

// A batch that the fence has made ready when its connection ends was not sent,
// and the fence must hear so: else it waits for the answer, and holds its lane
// for a batch that nobody can have.
func TestReadyBatchOfAnEndingConnectionIsToldNotSent(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := newConn(r.Proxy, near, r.Proxy.topology.entrances[0], 0)
	defer c.cancel(errAborted)
	x := makeExchange(1)
	x.c, x.via, x.book, x.signal = c, ownUpstream{c}, newRuleBook(new(Config), nil), c.changed
	e := &x.entries[0]
	e.x, e.records, e.admitted = x, conditional(0, "a"), true
	e.ticket = fence.Ticket{Owner: e, Batch: fence.Batch{
		Records: []ps.Record{{Digest: 1}}, ConnOpened: instant(),
		HoldUntil: instant().Add(seamPatience), AnswerWithin: seamPatience,
	}}
	e.lane = r.fencing.lane(ps.Key{Topic: "fenced", ID: l.topics["fenced"].id})
	e.lane.admit(now(), &e.ticket)
	state := func() entryState {
		x.mu.Lock()
		defer x.mu.Unlock()
		return e.state
	}
	await(t, "it is ready", func() bool { return state() == entryReady })
	x.cancel()
	if got := state(); got != entryDone {
		t.Errorf("got state %d, want it done", got)
	}
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
}

// An event may come with a time that was read a while ago. What is overdue by it is
// given up as of now: until then its bytes may have been on their way.
func TestWhatIsOverdueIsGivenUpAsOfNow(t *testing.T) {
	u := newTouched(t, Config{})
	l := u.lane(ps.Key{Topic: "topic"})
	l.due = 1 // a timer that never fires
	old := now()
	hold := old.Instant.Add(time.Hour)
	for _, due := range []bool{false, true} {
		if due {
			hold = old.Instant
		}
		l.part.Admit(ps.Now{Instant: old.Instant - 1, Wall: old.Wall}, &fence.Ticket{
			Owner: &entry{}, Batch: fence.Batch{Records: []ps.Record{{Digest: 1}}, HoldUntil: hold},
		})
		before := instant()
		var got ps.Instant
		l.step(old, func(_ *fence.Partition, at ps.Now) []fence.Effect {
			got = at.Instant
			return nil
		})
		if due != (got >= before) || !due && got != old.Instant {
			t.Errorf("due %t: got %d for an event that came with %d, when it was %d", due, got, old.Instant, before)
		}
	}
}

// TestTimeIsReadAgainAfterAWaitForTheLane: who has it may be held up for long, and a
// view that is used for sending must not look younger than it is.
func TestTimeIsReadAgainAfterAWaitForTheLane(t *testing.T) {
	u := newTouched(t, Config{})
	l := u.lane(ps.Key{Topic: "topic"})
	old := now()
	got := make(chan ps.Instant)
	l.mu.Lock()
	begun := make(chan struct{})
	go func() {
		close(begun)
		l.step(old, func(_ *fence.Partition, at ps.Now) []fence.Effect {
			got <- at.Instant
			return nil
		})
	}()
	<-begun
	awaitBlocked(t, "proxy.(*lane).step")
	freed := instant()
	l.mu.Unlock()
	if at := <-got; at < freed {
		t.Errorf("the event came with %d, when the lane was free at %d", at, freed)
	}
}

// awaitBlocked waits until some goroutine waits for a lock within a function.
func awaitBlocked(t *testing.T, within string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(seamPatience); time.Now().Before(deadline); runtime.Gosched() {
		for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "sync.Mutex.Lock") && strings.Contains(stack, within) {
				return
			}
		}
	}
	t.Fatalf("nobody waits for a lock in %s", within)
}
