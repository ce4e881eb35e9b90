package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createPlaced makes a topic of one partition on these brokers, the first of which
// leads.
func createPlaced(t *testing.T, topic string, configs map[string]string, replicas ...int32) {
	t.Helper()
	conn, err := dialRaw(brokers.addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, -1, -1
	wanted.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: replicas}}
	for name, value := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		wanted.Configs = append(wanted.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Version, request.TimeoutMillis, request.Topics = 7, 20_000, append(request.Topics, wanted)
	response, err := conn.roundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("create topic %s: code %d", topic, got.ErrorCode)
	}
	awaitLeaders(t, topic, 1, [16]byte{})
}

// TestSickPartitionStopsNoOther: a request names a partition whose replica does not
// answer, and one that is well. The broker answers both together, so that the
// second append is not acknowledged either; others go on behind it all the same.
// Below the replicas that the topic asks for, the first is refused and the second
// appended.
func TestSickPartitionStopsNoOther(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	const sick, well = "sick-partition", "well-partition"
	const leader, frozen, third = 1, 2, 3
	createPlaced(t, sick, map[string]string{"min.insync.replicas": "2"}, leader, frozen)
	createPlaced(t, well, nil, leader, third)
	p := startProxy(t, "--require", sick, "--require", well)
	stuck, others := dialLeader(t, p, well), dialLeader(t, p, well)
	both := func(onSick, onWell rawRecord) *kmsg.ProduceRequest {
		request := produceParts(9, -1,
			producePart{topic: sick, batch: encodeBatch(onSick)}, producePart{topic: well, batch: encodeBatch(onWell)})
		// Longer than brokers take to notice one that is frozen.
		request.TimeoutMillis = 8_000
		return request
	}
	answers, err := stuck.produceParts(both(conditional(0, "a"), conditional(0, "a")))
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if got := toldOf(answer); got != wonAt(0) {
			t.Fatalf("got %+v before anything is wrong", got)
		}
	}
	others.mustTell(t, well, encodeBatch(conditional(1, "b")), wonAt(1))

	thaw := freeze(t, cluster, frozen)
	request := both(conditional(1, "waits"), conditional(2, "c"))
	if err := stuck.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := stuck.Write(stuck.frame(request)); err != nil {
		t.Fatal(err)
	}
	bodies := make(chan []byte, 1) // one send, or closed
	go func() {
		defer close(bodies)
		if body, err := stuck.answer(); err == nil {
			bodies <- body
		}
	}()
	awaitLogEnd(t, cluster.Address(leader), well, 3)
	next := int64(3)
	for ; next < 23; next++ {
		others.mustTell(t, well, encodeBatch(conditional(next, "on")), wonAt(next))
		if next == 3 && len(bodies) > 0 {
			t.Error("nobody went on before the request was answered")
		}
	}
	// The frozen one is not in sync any more after a while.
	response, err := decodeAnswer(request, <-bodies)
	if err != nil {
		t.Fatal(err)
	}
	topics := response.(*kmsg.ProduceResponse).Topics
	if got := toldOf(topics[0].Partitions[0]); got != unknownAt(1, 1) && got != wonAt(1) {
		t.Errorf("sick: got %+v, want unknown, or won if the record can be read", got)
	}
	if got := toldOf(topics[1].Partitions[0]); got != wonAt(2) {
		t.Errorf("well: got %+v, want won", got)
	}

	admin := adminAt(t, brokers.addresses()...)
	awaitInSync(t, admin, sick, 1)
	again := dialLeader(t, p, well)
	answers, err = again.produceParts(both(conditional(2, "refused"), conditional(next, "d")))
	if err != nil {
		t.Fatal(err)
	}
	if got := toldOf(answers[0]); got.code == 0 || got.offset != -1 {
		t.Errorf("sick: got %+v, want a refusal such as %v", got, kerr.NotEnoughReplicas)
	}
	if got := toldOf(answers[1]); got != wonAt(next) {
		t.Errorf("well: got %+v, want won", got)
	}
	others.mustTell(t, well, encodeBatch(conditional(next+1, "e")), wonAt(next+1))
	thaw()
	awaitInSync(t, admin, sick, 2)
}
