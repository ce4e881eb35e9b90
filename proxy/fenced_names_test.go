package proxy

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The proxy's own principal may not be allowed to describe a topic that is
// under no rule; a client that is gets its id through the proxy.
func TestTopicNamesAreLearntFromAnswersToClients(t *testing.T) {
	l := newLeader(t, "fenced", "plain")
	l.change(func() {
		l.onOther = func(r kmsg.Request) bool {
			m, ok := r.(*kmsg.MetadataRequest)
			byID := ok && len(m.Topics) > 0 && m.Topics[0].Topic == nil
			return !byID
		}
	})
	r := newFencedRig(t, Config{}, l)
	to := part{topic: "plain", id: l.topics["plain"].id, records: plain("a")}

	c := r.dial()
	if got := resultsOf(c.produce(13, -1, to)); got[0].Code != 6 {
		t.Errorf("before its name is known: got code %d, want 6", got[0].Code)
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 12
	request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr("plain")})
	answer := kmsg.NewPtrMetadataResponse()
	answer.Version = 12
	c.Expect(c.send(request), answer)
	if got := resultsOf(c.produce(13, -1, to)); got[0].Code != 0 {
		t.Errorf("after it was told to a client: got code %d, want 0", got[0].Code)
	}
}

func TestAppendTimeIsToldToClients(t *testing.T) {
	l := newLeader(t, "fenced")
	l.change(func() { l.topics["fenced"].appendTime = true })
	c := newFencedRig(t, Config{}, l).dial()
	answer := c.produce(9, -1, part{topic: "fenced", records: identified(0, "a")})
	p := answer.Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LogAppendTime <= 0 {
		t.Errorf("got code %d log append time %d, want 0 and the broker's time", p.ErrorCode, p.LogAppendTime)
	}
}

// A topic that was LogAppendTime and is CreateTime now must not go on taking old
// timestamps: the fence's state would expire with them.
func TestTimestampTypeThatChangedBackIsNoticed(t *testing.T) {
	l := newLeader(t, "fenced")
	l.change(func() { l.topics["fenced"].appendTime = true })
	c := newFencedRig(t, Config{}, l).dial()
	wantResult(t, c.one(0, identified(0, "a")), 0, 0, "")
	l.change(func() { l.topics["fenced"].appendTime = false })
	wantResult(t, c.one(0, identified(1, "b")), 0, 1, "")
	old := batchOf(batchOptions{timestamp: 1}, record{value: "c", expected: "2", appendID: "x"})
	if got := c.one(0, old); got.Code != 32 {
		t.Errorf("got code %d, want 32 INVALID_TIMESTAMP", got.Code)
	}
}
