package prober

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestKfake(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	testLive(t, dialCluster(t, Config{StateFrom: TailBatch}, cluster.ListenAddrs()...))
}

// A topic under its old name, in the same leader epoch, is told apart by its
// id as soon as the epoch is not remembered.
func TestKfakeRecreatedTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := dialCluster(t, Config{StateFrom: TailBatch, EpochMaxAge: time.Nanosecond}, cluster.ListenAddrs()...)
	was, leader := c.topic(t, nil)
	before, err := c.pool.ReadView(t.Context(), leader, was, 0)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(was.Name)
	req.TopicNames, req.Topics = []string{was.Name}, append(req.Topics, topic)
	if code := ask(t, c, req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("delete topic: error code %d", code)
	}
	c.create(t, was.Name, nil)
	info, err := c.pool.ReadTopic(t.Context(), leader, was.Name)
	if err != nil {
		t.Fatal(err)
	}
	after, err := c.pool.ReadView(t.Context(), leader, info.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if after.LeaderEpoch != before.LeaderEpoch {
		t.Errorf("got epoch %d, want %d again: the test shows nothing", after.LeaderEpoch, before.LeaderEpoch)
	}
	_, err = c.pool.ReadView(t.Context(), leader, was, 0)
	wantCode(t, err, codeUnknownTopicID)
}
