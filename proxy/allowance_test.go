package proxy

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

func TestAllowance(t *testing.T) {
	a := allowance{perSecond: 10}
	now := ps.Instant(time.Hour)
	taken := func() (n int) {
		for a.take(now) {
			n++
		}
		return n
	}
	if got := taken(); got != 20 {
		t.Errorf("at once: got %d, want 20", got)
	}
	if got, want := a.next(now).Sub(now), 100*time.Millisecond; got != want {
		t.Errorf("the next one: got in %v, want in %v", got, want)
	}
	now = now.Add(50 * time.Millisecond)
	if a.take(now) {
		t.Error("got one before its time")
	}
	now = a.next(now)
	if !a.take(now) || a.take(now) {
		t.Error("at its time: want one")
	}
	now = now.Add(time.Second)
	if got := taken(); got != 10 {
		t.Errorf("in a second: got %d, want 10", got)
	}
	now = now.Add(time.Hour)
	if got := taken(); got != 20 {
		t.Errorf("after an hour: got %d, want 20", got)
	}
}

// manyOld fills partition 0 so that offset 0 is far behind the end, and returns a
// client that has just appended there.
func manyOld(t *testing.T, r *fencedRig) *fencedClient {
	t.Helper()
	c := r.dial()
	const each = 500
	for at := int64(0); at < 9000; at += each {
		var values []string
		for i := range int64(each) {
			values = append(values, fmt.Sprint(at+i))
		}
		wantResult(t, c.one(0, conditional(at, values...)), 0, at, "")
	}
	return c
}

const oldRefused = "expected-offset taken: expected=%d next=9000"

// A connection that asks for old offsets has as many answers as it is allowed,
// then waits for each. Nobody else waits, and it loses nothing.
func TestOldOffsetsOfAConnectionAreRationed(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{OldReadsPerSecond: 1}, l)
	greedy := manyOld(t, r)
	other := r.dial()
	limited := func() int64 { return r.metrics.limits.counted[limitOldReads].Load() }
	began := time.Now()
	var ids []int32
	for i := range int64(5) {
		ids = append(ids, greedy.send(produceOf(9, -1, part{topic: "fenced", records: conditional(i, "x")})))
	}
	r.await("one of them is put off", func() bool { return limited() > 0 })
	wantResult(t, other.one(0, conditional(7, "x")), 1, -1, fmt.Sprintf(oldRefused, 7))
	wantResult(t, other.one(0, conditional(9000, "y")), 0, 9000, "")
	for i, id := range ids {
		if got := resultsOf(greedy.expect(id, 9))[0]; got.Code != 1 {
			t.Errorf("%d: got %+v, want a refusal", i, got)
		}
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("5 were answered within %v, want the last three rationed", took)
	}
	// What can be told from memory costs nothing.
	before := limited()
	for range 10 {
		wantResult(t, greedy.one(0, conditional(8999, "x")), 1, -1, "expected-offset taken: expected=8999 next=9001")
	}
	if got := limited(); got != before {
		t.Errorf("got %d put off for an offset near the end", got-before)
	}
}

// It waits for no longer than a batch is held: then it is told to send again.
// Partitions of the same request that can go do not wait with it.
func TestOldOffsetsWaitNoLongerThanABatchIsHeld(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{OldReadsPerSecond: 1}, l)
	c := manyOld(t, r)
	for i := range int64(2) {
		wantResult(t, c.one(0, conditional(i, "x")), 1, -1, fmt.Sprintf(oldRefused, i))
	}
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(2, "x")},
		part{topic: "fenced", partition: 1, records: conditional(0, "b")})
	request.TimeoutMillis = 200
	id := c.send(request)
	r.await("the other partition's batch is in the log", func() bool { return l.end("fenced", 1) == 1 })
	results := resultsOf(c.expect(id, 9))
	wantResult(t, results[0], 6, -1, "not appended, send again: hold expired")
	wantResult(t, results[1], 0, 0, "")
	if fetched := l.count(kmsg.Fetch); fetched != 2 {
		t.Errorf("got %d readings, want 2", fetched)
	}
}

// A client that leaves meanwhile leaves nothing behind.
func TestClientGoneWhileItsOldOffsetsWait(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{OldReadsPerSecond: 1}, l)
	c := manyOld(t, r)
	for i := range int64(2) {
		wantResult(t, c.one(0, conditional(i, "x")), 1, -1, fmt.Sprintf(oldRefused, i))
	}
	c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(2, "x")}))
	r.await("it is put off", func() bool { return r.metrics.limits.counted[limitOldReads].Load() > 0 })
	c.Close()
	r.await("it is gone", func() bool { return !r.busy() && r.lanes() == 0 })
	if got := l.end("fenced", 0); got != 9000 {
		t.Errorf("the log ends at %d, want 9000", got)
	}
}

// A drain answers what was put off.
func TestDrainWhileOldOffsetsWait(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{OldReadsPerSecond: 1, DrainTimeout: seamPatience}, l)
	c := manyOld(t, r)
	var ids []int32
	for i := range int64(3) {
		ids = append(ids, c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(i, "x")})))
	}
	r.await("it is put off", func() bool { return r.metrics.limits.counted[limitOldReads].Load() > 0 })
	r.stop()
	for i, id := range ids {
		wantResult(t, resultsOf(c.expect(id, 9))[0], 1, -1, fmt.Sprintf(oldRefused, i))
	}
	r.awaitEnd()
}
