package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// holdViews keeps the views of partition 0 from being read until the function
// it returns is called.
func (l *leader) holdViews() (release func()) {
	gate := make(chan struct{})
	l.change(func() {
		l.onOther = func(r kmsg.Request) bool {
			// DescribeProducers is asked for views alone.
			if d, ok := r.(*kmsg.DescribeProducersRequest); ok && d.Topics[0].Partitions[0] == 0 {
				l.wait(gate)
			}
			return true
		}
	})
	return func() { close(gate) }
}

// awaitUndecided waits until the fence has n batches in work, held or in flight.
func (r *fencedRig) awaitUndecided(n int32) {
	r.t.Helper()
	r.await("batches are admitted", func() bool {
		r.fencing.mu.Lock()
		defer r.fencing.mu.Unlock()
		users := int32(0)
		for _, l := range r.fencing.lanes {
			users += l.users.Load()
		}
		return users == n
	})
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	release := l.holdViews()
	c := r.dial()
	var frames []byte
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	for i, request := range []kmsg.Request{
		listGroups(),
		produceOf(9, -1, part{topic: "fenced", records: conditional(0, "held")}),
		metadata,
		produceOf(9, -1, part{topic: "free", records: plain("x")}),
		produceOf(9, -1, part{topic: "fenced", records: plain("refused here")}),
		versionTooNew(), // answered here
		produceOf(9, -1, part{topic: "fenced", records: conditional(1, "next")}),
	} {
		c.id++
		frames = append(frames, kafkatest.RequestFrame(int32(i+1), request)...)
	}
	c.SendBytes(frames)
	if got := c.NextID(); got != 1 {
		t.Fatalf("got an answer to %d, want to the request before the held one", got)
	}
	r.awaitUndecided(1)
	if n := len(l.requests()); n != 0 {
		t.Errorf("got %d Produce requests at the broker, want none behind the held one", n)
	}
	release()
	wantResult(t, resultsOf(c.expect(2, 9))[0], 0, 0, "")
	c.Expect(3, func() kmsg.Response { a := kmsg.NewPtrMetadataResponse(); a.Version = 9; return a }())
	wantResult(t, resultsOf(c.expect(4, 9))[0], 0, 0, "")
	wantResult(t, resultsOf(c.expect(5, 9))[0], 87, -1, "the topic requires an expected-offset header on every record")
	if got := c.NextID(); got != 6 {
		t.Fatalf("got an answer to %d, want 6", got)
	}
	wantResult(t, resultsOf(c.expect(7, 9))[0], 0, 1, "")
}

func TestHeldBatchDelaysNoOtherConnection(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	release := l.holdViews()
	held := r.dial()
	id := held.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "held")}))
	r.awaitUndecided(1)
	other := r.dial()
	// No view of partition 1 can be read on the control connection behind the
	// held one, so what the fence has decided already counts.
	wantResult(t, resultsOf(other.produce(9, -1, part{topic: "free", records: plain("x")}))[0], 0, 0, "")
	wantResult(t, other.one(1, plain("refused")), 87, -1, "the topic requires an expected-offset header on every record")
	release()
	wantResult(t, resultsOf(held.expect(id, 9))[0], 0, 0, "")
}

// A partition that is held in the request does not hold up the others of it.
func TestHeldPartitionDelaysNoOtherOfItsRequest(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	warm(t, c)
	entered, release := l.withhold(fateAnswer)
	first := r.dial()
	firstID := first.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "first")}))
	<-entered // the fence waits for its answer
	id := c.send(produceOf(9, -1,
		part{topic: "fenced", partition: 0, records: conditional(1, "waits")},
		part{topic: "free", partition: 1, records: plain("x")},
		part{topic: "fenced", partition: 2, records: conditional(0, "goes")}))
	await(t, "the others are appended", func() bool { return l.end("free", 1) == 1 && l.end("fenced", 2) == 1 })
	if got := l.end("fenced", 0); got != 0 {
		t.Errorf("got end %d while the first is withheld, want 0", got)
	}
	release()
	wantResult(t, resultsOf(first.expect(firstID, 9))[0], 0, 0, "")
	results := resultsOf(c.expect(id, 9))
	for i, base := range []int64{1, 0, 0} {
		wantResult(t, results[i], 0, base, "")
	}
}

func TestLocalRefusalWaitsItsTurn(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	// What the client may write to is found out once, at the broker.
	const message = "the topic requires an expected-offset header on every record"
	wantResult(t, c.one(0, plain("refused")), 87, -1, message)
	entered, gate := make(chan struct{}), make(chan struct{})
	l.hook(func(*kmsg.ProduceRequest) fate {
		close(entered)
		l.wait(gate)
		return fateAnswer
	})
	first := c.send(produceOf(9, -1, part{topic: "free", records: plain("x")}))
	<-entered
	second := c.send(produceOf(9, -1, part{topic: "fenced", records: plain("refused")}))
	await(t, "the second is refused", func() bool { return r.outcomes(outcomeRefused) == 2 })
	close(gate)
	wantResult(t, resultsOf(c.expect(first, 9))[0], 0, 0, "")
	wantResult(t, resultsOf(c.expect(second, 9))[0], 87, -1, message)
}

// withheld has the first batch for partition 0 wait at the broker: what the
// hook does then is up to do.
func (l *leader) withhold(do fate) (entered chan struct{}, release func()) {
	entered, gate := make(chan struct{}), make(chan struct{})
	first := true
	l.hook(func(*kmsg.ProduceRequest) fate {
		l.mu.Lock()
		mine := first
		first = false
		l.mu.Unlock()
		if !mine {
			return fateAnswer
		}
		close(entered)
		l.wait(gate)
		return do
	})
	return entered, func() { close(gate) }
}

func TestSecondBatchWaitsForTheFirst(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
	entered, release := l.withhold(fateAnswer)
	a, b, c := r.dial(), r.dial(), r.dial()
	first := a.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	<-entered
	second := b.send(produceOf(9, -1, part{topic: "fenced", records: conditional(1, "b")}))
	r.awaitUndecided(2)
	third := c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(2, "c")}))
	r.awaitUndecided(3)
	if n := len(l.requests()); n != 1 {
		t.Errorf("got %d requests at the broker, want one in flight", n)
	}
	release()
	wantResult(t, resultsOf(a.expect(first, 9))[0], 0, 0, "")
	wantResult(t, resultsOf(b.expect(second, 9))[0], 0, 1, "")
	wantResult(t, resultsOf(c.expect(third, 9))[0], 0, 2, "")
	for i, q := range l.requests() {
		if got := headerOf(t, q.Topics[0].Partitions[0].Records).BaseSequence; got != int32(i) {
			t.Errorf("request %d: got sequence %d, want %d", i, got, i)
		}
	}
}

// Pipelined by one client, as libraries do.
func TestPipelinedConditionalBatches(t *testing.T) {
	const n = 50
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{}, l).dial()
	var frames []byte
	for i := range int32(n) {
		frames = append(frames, kafkatest.RequestFrame(i, produceOf(9, -1, part{topic: "fenced", records: conditional(int64(2*i), "x", "y")}))...)
	}
	c.SendBytes(frames)
	for i := range int32(n) {
		wantResult(t, resultsOf(c.expect(i, 9))[0], 0, int64(2*i), "")
	}
}

// After the admission wait the next batch goes by a fresh view, whatever is in
// flight. What is in flight is appended and not answered; its client is told
// once the answer is overdue.
func TestOverdueAnswerIsOvertakenAndGivenUp(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AdmissionWait: 20 * time.Millisecond}, l)
	entered, release := l.withhold(fateSilent)
	a, b := r.dial(), r.dial()
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
	request.TimeoutMillis = 100
	first := a.send(request)
	<-entered
	release() // appended, and no answer comes
	begun := time.Now()
	wantResult(t, b.one(0, conditional(1, "b")), 0, 1, "")
	if took := time.Since(begun); took > answerGrace/2 {
		t.Errorf("overtaking took %s", took)
	}
	got := resultsOf(a.expect(first, 9))[0]
	wantResult(t, got, -1, -1, "outcome unknown: expected=0 next=2; read the partition from 0")
	if rest := a.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x behind the answer", rest)
	}
	if got := strings.Join(l.values("fenced", 0), " "); got != "a b" {
		t.Errorf("got log %q, want a b", got)
	}
	// Read back though its client has gone, so that nothing stays open.
	await(t, "the lane is put away", func() bool { return r.lanes() == 0 })
}

// The answer that comes after a batch was given up is nobody's.
func TestLateAnswerIsNotJudged(t *testing.T) {
	t.Parallel()
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	entered, release := l.withhold(fateAnswer)
	c := r.dial()
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
	request.TimeoutMillis = 100
	id := c.send(request)
	<-entered
	wantResult(t, resultsOf(c.expect(id, 9))[0], -1, -1, "outcome unknown: expected=0 next=0; read the partition from 0")
	c.ExpectClosed()
	// It is appended now. A client that sends it again hears what is known.
	release()
	await(t, "the late batch is appended", func() bool { return l.end("fenced", 0) == 1 })
	wantResult(t, r.dial().one(0, conditional(0, "a")), -1, -1, "outcome unknown: expected=0 next=1; read the partition from 0")
	wantResult(t, r.dial().one(0, conditional(1, "b")), 0, 1, "")
	if got, want := r.outcomes(outcomeWon), int64(1); got != want {
		t.Errorf("got %d won, want %d", got, want)
	}
	if got, want := len(l.requests()), 2; got != want {
		t.Errorf("got %d transmissions, want %d", got, want)
	}
}
