package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// While there is no memory for an answer, one behind it that the fence waits for must
// come through: others wait for what the fence decides by it, and may have the memory.
func TestAnswerOwedToTheFenceDoesNotWaitForMemory(t *testing.T) {
	told := make(chan error, 1)
	r := newRig(t, Config{MaxBufferedBytes: 1 << 20}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		if q.APIKey == int16(kmsg.Metadata) {
			answer := kafkatest.Metadata()
			for range 1000 {
				topic := kmsg.NewMetadataResponseTopic()
				topic.Topic = kmsg.StringPtr(strings.Repeat("t", 249))
				answer.Topics = append(answer.Topics, topic)
			}
			c.Answer(q, answer)
			return true
		}
		c.Answer(q, kmsg.NewPtrProduceResponse())
		return true
	}, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		return c.sendUpstream(frame, func(_ []byte, err error) {
			told <- err
			s.complete(make([]byte, 16))
		})
	})
	b := &r.conn.p.memory.answers
	all := b.room
	b.overdraw(all) // as if others held it
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 5
	r.client.Send(1, metadata)
	deadline := time.Now().Add(seamPatience)
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		waiting = len(b.waiting)
		b.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the answer does not wait for memory")
		}
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks = 9, -1
	r.client.Send(2, produce)
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(seamPatience):
		t.Fatal("the answer that is owed does not come")
	}
	r.expect(1, 2)
	b.give(all)
	r.conn.abort(errAborted)
	r.awaitEnd()
	if got := b.used.Load(); got != 0 {
		t.Errorf("%d bytes are not given back", got)
	}
}
