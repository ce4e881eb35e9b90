package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// TestBrokerThatComesBackIsProbedAgain, since it may be another version. Until
// that has been done its clients send again: none is told for good that it needs
// append-ids.
func TestBrokerThatComesBackIsProbedAgain(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	const topic, victim = "comes-back", kafkacluster.NodeID(2)
	p := startProxy(t, "--require", topic)
	createOn(t, topic, int32(victim))
	next := int64(0)
	appendSoon := func() {
		t.Helper()
		waitFor(t, fmt.Sprintf("append at %d", next), time.Minute, func() error {
			conn, err := dialRaw(p.brokerAddresses(t)[int32(victim)])
			if err != nil {
				return err
			}
			defer conn.close()
			answer, err := conn.produce(topic, 0, encodeBatch(conditional(next, fmt.Sprint(next))))
			if err != nil {
				return err
			}
			switch got := toldOf(answer); {
			case got == wonAt(next):
				next++
				return nil
			case got.code == kerr.NotLeaderForPartition.Code, got.code == kerr.UnknownTopicOrPartition.Code:
				return kerr.ErrorForCode(got.code)
			default:
				t.Fatalf("got %+v, want an append or a retriable error", got)
				return nil
			}
		})
	}
	// The second time shows what the first does, at the price of another start.
	rounds := 1
	if longRuns {
		rounds = 2
	}
	for range rounds {
		appendSoon()
		if err := cluster.Kill(victim); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Revive(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		appendSoon()
		appendSoon()
	}
	var values []string
	for at := range next {
		values = append(values, fmt.Sprint(at))
	}
	mustHold(t, topic, values...)
	if p.output.contains("cannot be probed") {
		t.Error("a broker was given up")
	}
}

// createOn makes a topic with one partition that one broker has alone.
func createOn(t *testing.T, name string, broker int32) {
	t.Helper()
	assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	assignment.Replicas = []int32{broker}
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = "min.insync.replicas", new("1")
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	topic.ReplicaAssignment, topic.Configs = append(topic.ReplicaAssignment, assignment), append(topic.Configs, config)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Version, request.TimeoutMillis, request.Topics = 5, 20_000, append(request.Topics, topic)
	conn, err := dialRaw(brokers.addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	response, err := conn.roundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if code := response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic %s: %v", name, kerr.ErrorForCode(code))
	}
}
