package e2e

import (
	"fmt"
	"testing"
)

// TestEqualRecordsWithAppendTime has two writers, each through a proxy of its own,
// write equal records without a condition to topics with LogAppendTime, also to one
// that brokers compress anew: each that is told of a success has a record.
func TestEqualRecordsWithAppendTime(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	for _, codec := range []string{"producer", "gzip"} {
		t.Run(codec, func(t *testing.T) {
			topic := "equal-" + codec
			a, b := startProxy(t, "--enforce", topic), startProxy(t, "--enforce", topic)
			createConfiguredTopic(t, adminAt(t, a.bootstrap), topic, 1, map[string]*string{
				"message.timestamp.type": new("LogAppendTime"), "compression.type": new(codec),
			})
			conns := []*rawConn{dialLeader(t, a, topic), dialLeader(t, b, topic)}
			var want []string
			for i := range 20 {
				// Each proxy's view is old by what the other one has written.
				for _, conn := range conns {
					conn.mustTell(t, topic, encodeBatch(rawRecord{value: "tick"}), wonAt(int64(len(want))))
					want = append(want, "tick")
				}
				if i%5 == 0 {
					batch := encodeBatch(rawRecord{value: fmt.Sprint(i)}, rawRecord{value: "and another"})
					conns[1].mustTell(t, topic, batch, wonAt(int64(len(want))))
					want = append(want, fmt.Sprint(i), "and another")
				}
			}
			mustHold(t, topic, want...)
		})
	}
}
