package proxy

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client that does not read its long answers keeps its broker from taking in what it
// sends behind them. Its batch is in flight all that time, and nobody else waits for it:
// who comes to the partition is decided by a view of its own (admission_wait).
func TestClientThatDoesNotReadHoldsUpNobodyElse(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	l.bypass("free", 0, strings.Repeat("x", 8<<20))
	const fetches = 10
	c := r.dial()
	wantResult(t, c.one(1, conditional(0, "w")), 0, 0, "") // it may write, which is known from here on
	for range fetches {
		fetch := kmsg.NewPtrFetchRequest()
		fetch.Version = 12
		topic, partition := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		topic.Topic, topic.Partitions = "free", append(topic.Partitions, partition)
		fetch.Topics = append(fetch.Topics, topic)
		c.send(fetch)
	}
	request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
	request.TimeoutMillis = 60_000
	id := c.send(request)
	r.awaitUndecided(1)
	wantResult(t, r.dial().one(0, conditional(0, "b")), 0, 0, "")
	for range fetches {
		c.Next()
	}
	wantResult(t, resultsOf(c.expect(id, 9))[0], 1, -1, "expected-offset taken: expected=0 next=1")
	if got := l.values("fenced", 0); len(got) != 1 || got[0] != "b" {
		t.Errorf("the partition has %q, want b alone", got)
	}
}
