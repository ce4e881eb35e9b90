package proxy

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// goesOn appends n records to partition 0 of the topic "fenced", one after the
// other, and checks that the proxy reads no view for each.
func (c *fencedClient) goesOn(t *testing.T, l *leader, from, n int64) {
	t.Helper()
	before := l.count(kmsg.DescribeProducers)
	for at := from; at < from+n; at++ {
		wantResult(t, c.one(0, conditional(at, fmt.Sprint("goes on ", at))), 0, at, "")
	}
	// One for its connection, one that is begun after the admission wait, and one
	// should that have been begun too early.
	if got := l.count(kmsg.DescribeProducers) - before; got > 3 {
		t.Errorf("%d views were read for %d appends", got, n)
	}
}

func takenMessage(expected, next int64) string {
	return fmt.Sprintf("expected-offset taken: expected=%d next=%d", expected, next)
}

// TestClientThatStopsReadingStopsNobody: its socket is full of other answers, so
// that the broker's to its batch does not come through. Others wait for it once,
// and then go on.
func TestClientThatStopsReadingStopsNobody(t *testing.T) {
	const fetches, size, appends = 64, 1 << 20, 20
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{AdmissionWait: 20 * time.Millisecond}, l)
	l.bypass("free", 0, strings.Repeat("x", size))
	other := r.dial()
	warm(t, other)
	stuck := r.dial()
	warm(t, stuck) // what it may write is known
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 4
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "free"
	topic.Partitions = append(topic.Partitions, kmsg.NewFetchRequestTopicPartition())
	fetch.Topics = append(fetch.Topics, topic)
	for range fetches {
		stuck.send(fetch)
	}
	produce := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "stuck")})
	produce.TimeoutMillis = 60_000
	id := stuck.send(produce)
	r.awaitUndecided(1)
	other.goesOn(t, l, 0, appends)
	if got := l.count(kmsg.Fetch); got >= fetches {
		t.Fatalf("the broker has answered all %d fetches, so nothing is stuck", got)
	}
	for want := id - fetches; want < id; want++ {
		if got := stuck.NextID(); got != want {
			t.Fatalf("got an answer to %d, want to the fetch %d", got, want)
		}
	}
	wantResult(t, resultsOf(stuck.expect(id, 9))[0], 1, -1, takenMessage(0, appends))
}

// TestClientThatReadsNoRefusalsStopsNobody: its own answers fill its socket.
func TestClientThatReadsNoRefusalsStopsNobody(t *testing.T) {
	const refusals, appends = 3000, 20
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
	other := r.dial()
	wantResult(t, other.one(0, conditional(0, "first")), 0, 0, "")
	stuck := r.dial()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		frame := kafkatest.RequestFrame(1, produceOf(9, -1, part{topic: "fenced", records: conditional(0, "refused")}))
		for range refusals {
			if _, err := stuck.Write(frame); err != nil {
				return // closed below
			}
		}
	}()
	r.await("some are refused", func() bool { return r.outcomes(outcomeTaken) > 10 })
	other.goesOn(t, l, 1, appends)
	_ = stuck.Close()
	<-sent
}

// TestMutedConnectionStopsNobody: the broker does not read what was sent on it, as
// when a quota is exceeded. When it does, the place is taken.
func TestMutedConnectionStopsNobody(t *testing.T) {
	const appends = 20
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{AdmissionWait: 20 * time.Millisecond}, l)
	other := r.dial()
	warm(t, other)
	entered, release := l.withhold(fateAnswer)
	muted := r.dial()
	id := muted.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "muted")}))
	<-entered
	other.goesOn(t, l, 0, appends)
	release()
	wantResult(t, resultsOf(muted.expect(id, 9))[0], 1, -1, takenMessage(0, appends))
}

// TestHalfARequestStopsNobody: its client froze while it wrote.
func TestHalfARequestStopsNobody(t *testing.T) {
	const appends = 20
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
	frozen := r.dial()
	frame := kafkatest.RequestFrame(1, produceOf(9, -1, part{topic: "fenced", records: conditional(0, "late")}))
	half := len(frame) / 2
	frozen.SendBytes(frame[:half])
	r.dial().goesOn(t, l, 0, appends)
	frozen.SendBytes(frame[half:])
	wantResult(t, resultsOf(frozen.expect(1, 9))[0], 1, -1, takenMessage(0, appends))
}

// TestOnlyNeighboursInARequestWait: partitions without a rule are appended at once
// and answered with the held one of their request, as in Kafka, and so is what
// their client sends behind it. Nothing else waits.
func TestOnlyNeighboursInARequestWait(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{AdmissionWait: time.Minute}, l)
	neighbour, other := r.dial(), r.dial()
	warm(t, neighbour)
	warm(t, other)
	entered, release := l.withhold(fateAnswer)
	first := r.dial()
	firstID := first.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "first")}))
	<-entered
	id := neighbour.send(produceOf(9, -1,
		part{topic: "free", records: plain("neighbour")},
		part{topic: "fenced", records: conditional(1, "held")}))
	behind := neighbour.send(produceOf(9, -1, part{topic: "free", records: plain("behind")}))
	await(t, "the neighbour is appended", func() bool { return l.end("free", 0) == 1 })
	for i := range int64(5) {
		results := resultsOf(other.produce(9, -1,
			part{topic: "free", partition: 1, records: plain("x")}, part{topic: "fenced", partition: 2, records: conditional(i, "x")}))
		for _, got := range results {
			wantResult(t, got, 0, i, "")
		}
		other.Expect(other.send(listGroups()), kmsg.NewPtrListGroupsResponse())
	}
	if got := l.end("free", 0); got != 1 {
		t.Errorf("the free partition ends at %d, want 1: what is sent behind waits", got)
	}
	if err := neighbour.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := neighbour.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes, %v before the held one was decided; want none", n, err)
	}
	release()
	wantResult(t, resultsOf(first.expect(firstID, 9))[0], 0, 0, "")
	for i, got := range resultsOf(neighbour.expect(id, 9)) {
		wantResult(t, got, 0, int64(i), "")
	}
	wantResult(t, resultsOf(neighbour.expect(behind, 9))[0], 0, 1, "")
}
