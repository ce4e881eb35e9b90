package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// liveCluster is a cluster reached over TCP, with a client of its own for what
// a prober does not do.
type liveCluster struct {
	client    *kgo.Client
	addresses map[int32]string
	pool      *Pool
	leaders   map[string]int32 // of the topics it created
}

// dialCluster connects to a cluster and runs a Pool on it until the test ends.
func dialCluster(t *testing.T, cfg Config, seeds ...string) *liveCluster {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MaxVersions(kversion.V3_7_0()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := &liveCluster{client: client, addresses: make(map[int32]string), leaders: make(map[string]int32)}
	for _, b := range ask(t, c, kmsg.NewPtrMetadataRequest()).(*kmsg.MetadataResponse).Brokers {
		c.addresses[b.NodeID] = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	}
	cfg.FenceID = testFence
	cfg.Dial = func(ctx context.Context, node int32) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", c.addresses[node])
	}
	c.pool = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.pool.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// ask sends a request by the cluster's own client.
func ask(t *testing.T, c *liveCluster, req kmsg.Request) kmsg.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp, err := c.client.Request(ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

// topic creates a topic with one partition and returns it with its leader.
func (c *liveCluster) topic(t *testing.T, configs map[string]string) (Topic, int32) {
	t.Helper()
	name := fmt.Sprintf("%s-%d-%d", strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()), time.Now().UnixNano(), len(c.leaders))
	c.create(t, name, configs)
	var node int32
	for node = range c.addresses {
		break
	}
	// Each broker may hear of a topic a moment after it was created.
	for deadline := time.Now().Add(20 * time.Second); ; {
		info, err := c.pool.ReadTopic(t.Context(), node, name)
		if err == nil && info.Partitions[0].Leader >= 0 && c.allKnow(t, name) {
			leader := info.Partitions[0].Leader
			if _, err := c.pool.ReadView(t.Context(), leader, info.Topic, 0); err == nil {
				c.leaders[name] = leader
				return info.Topic, leader
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s did not come up: %v", name, err)
		}
	}
}

// allKnow tells whether every broker has heard of a topic.
func (c *liveCluster) allKnow(t *testing.T, topic string) bool {
	t.Helper()
	for node := range c.addresses {
		if _, err := c.pool.ReadTopic(t.Context(), node, topic); err != nil {
			return false
		}
	}
	return true
}

func (c *liveCluster) create(t *testing.T, name string, configs map[string]string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, int16(min(len(c.addresses), 3))
	for k, v := range configs {
		kv := kmsg.NewCreateTopicsRequestTopicConfig()
		kv.Name, kv.Value = k, kmsg.StringPtr(v)
		topic.Configs = append(topic.Configs, kv)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = append(req.Topics, topic)
	if code := ask(t, c, req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic: error code %d", code)
	}
}

// produce appends a batch as it stands and returns its base offset.
func (c *liveCluster) produce(t *testing.T, topic string, batch []byte) int64 {
	t.Helper()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, p)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	req.Topics = append(req.Topics, rt)
	// The client's own Request does not look for the leader.
	resp, err := c.client.Broker(int(c.leaders[topic])).Request(t.Context(), req)
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
	got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		t.Fatalf("produce: error code %d", got.ErrorCode)
	}
	return got.BaseOffset
}

// stamped is a batch of the fence, to be produced now.
func stamped(sequence int32, values ...string) []byte {
	return storedBatch(0, testFence, 0, sequence, time.Now().UnixMilli(), values...)
}

// plain is a batch of no producer.
func plain(values ...string) []byte {
	return storedBatch(0, -1, -1, -1, time.Now().UnixMilli(), values...)
}

// testLive is what every kind of broker must show.
func testLive(t *testing.T, c *liveCluster) {
	ctx := t.Context()
	t.Run("view", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		view := func() View {
			t.Helper()
			v, err := c.pool.ReadView(ctx, leader, topic, 0)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if v := view(); v.HasState || v.LogEnd != 0 || v.HighWatermark != 0 {
			t.Errorf("never written: got %+v", v)
		}
		batch := stamped(0, "a", "b", "c")
		c.produce(t, topic.Name, batch)
		if v := view(); !v.HasState || v.LogEnd != 3 || v.HighWatermark != 3 || v.LastSequence != 2 || v.ProducerEpoch != 0 || v.FromTail {
			t.Errorf("after a stamped batch: got %+v", v)
		}
		c.produce(t, topic.Name, stamped(3, "d"))
		if v := view(); !v.HasState || v.LogEnd != 4 || v.LastSequence != 3 {
			t.Errorf("after another: got %+v", v)
		}
	})
	t.Run("views while the fence writes", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(0, "first"))
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				tails, steady := 0, 0
				for last := int64(0); ; {
					v, err := c.pool.ReadView(ctx, leader, topic, 0)
					if err != nil {
						t.Error(err)
						return
					}
					if !v.HasState || int64(v.LastSequence)+1 != v.LogEnd {
						t.Errorf("not of one instant: %+v", v)
					}
					if !v.FromTail && v.LogEnd < last {
						t.Errorf("log end fell from %d to %d", last, v.LogEnd)
					}
					last = max(last, v.LogEnd)
					if v.FromTail {
						tails++
					} else {
						steady++
					}
					select {
					case <-stop:
						t.Logf("%d steady views, %d from the tail", steady, tails)
						return
					default:
					}
				}
			})
		}
		next := int32(1)
		for i := range 200 {
			values := strings.Split(strings.Repeat("v", 1+i%4), "")
			c.produce(t, topic.Name, stamped(next, values...))
			next += int32(len(values))
		}
		close(stop)
		readers.Wait()
	})
	t.Run("read back", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(0, "a", "b", "c"))
		c.produce(t, topic.Name, plain("b", "x"))
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		if want := []int64{1, 2, 3}; !equalOffsets(offsetsOf(got), want) || got.NextOffset != 4 || got.HighWatermark != 5 || got.LogEnd != 5 {
			t.Fatalf("got %+v, want offsets %v", got, want)
		}
		if got.Records[0].Digest != got.Records[2].Digest || got.Records[0].Digest == got.Records[1].Digest {
			t.Error("digests do not tell equal from different records")
		}
		if h := got.Records[1].Batch; h.ProducerID != testFence || h.BaseOffset != 0 || h.BaseSequence != 0 {
			t.Errorf("got batch %+v", h)
		}
		if got, err = c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 5, 6); err != nil || len(got.Records) != 0 || got.NextOffset != 5 {
			t.Errorf("at the end: got %+v and %v", got, err)
		}
		got, err = c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 6, 7)
		wantCode(t, err, codeOffsetOutOfRange)
		if got.LogEnd != 5 || got.HighWatermark != 5 {
			t.Errorf("beyond the end: got %+v", got)
		}
		_, err = c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch+1, 0, 1)
		wantCode(t, err, codeUnknownLeaderEpoch)
		if v.LeaderEpoch > 0 {
			_, err = c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch-1, 0, 1)
			wantCode(t, err, codeFencedLeaderEpoch)
		}
		// By name alone.
		if got, err = c.pool.ReadRecords(ctx, leader, Topic{Name: topic.Name}, 0, v.LeaderEpoch, 0, 5); err != nil || len(got.Records) != 5 {
			t.Errorf("by name: got %d records and %v, want 5", len(got.Records), err)
		}
	})
	t.Run("deleted records", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(0, "a", "b", "c"))
		c.produce(t, topic.Name, stamped(3, "d", "e"))
		c.deleteRecords(t, topic.Name, 4)
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.LogEnd != 5 || !v.HasState || v.LastSequence != 4 {
			t.Errorf("got %+v", v)
		}
		got, err := c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 1, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != 0 || got.LogStart != 4 || got.NextOffset != 4 {
			t.Errorf("got %+v", got)
		}
		if got, err = c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 4, 5); err != nil || !equalOffsets(offsetsOf(got), []int64{4}) {
			t.Errorf("from the log start: got %+v and %v", got, err)
		}
	})
	t.Run("topics", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		if topic.ID == ([16]byte{}) {
			t.Error("the topic has no id")
		}
		byID, err := c.pool.ReadTopicByID(ctx, leader, topic.ID)
		if err != nil {
			t.Fatal(err)
		}
		if byID.Topic != topic {
			t.Errorf("got %+v by id, want %+v", byID.Topic, topic)
		}
		_, err = c.pool.ReadTopic(ctx, leader, topic.Name+"-missing")
		wantCode(t, err, codeUnknownTopic)
		_, err = c.pool.ReadTopicByID(ctx, leader, [16]byte{1, 2, 3})
		wantCode(t, err, codeUnknownTopicID)
		for node := range c.addresses {
			if node == leader {
				continue
			}
			_, err = c.pool.ReadView(ctx, node, topic, 0)
			wantCode(t, err, codeNotLeader)
		}
		_, err = c.pool.ReadView(ctx, leader, Topic{topic.Name, [16]byte{1}}, 0)
		wantCode(t, err, codeUnknownTopicID)
	})
	t.Run("configs", func(t *testing.T) {
		topic, leader := c.topic(t, map[string]string{"min.insync.replicas": "1"})
		got, err := c.pool.ReadTopicConfigs(ctx, leader, topic.Name, "min.insync.replicas", "message.timestamp.type")
		if err != nil {
			t.Fatal(err)
		}
		if got["min.insync.replicas"] != "1" || got["message.timestamp.type"] != "CreateTime" {
			t.Errorf("got topic configs %v", got)
		}
		if got, err = c.pool.ReadBrokerConfigs(ctx, leader, "no.such.config"); err != nil || len(got) != 0 {
			t.Errorf("got %v and %v for a config that does not exist", got, err)
		}
		_, err = c.pool.ReadTopicConfigs(ctx, leader, topic.Name+"-missing")
		wantCode(t, err, codeUnknownTopic)
	})
	t.Run("a wrong topic id", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		id := topic.ID
		if _, err := c.pool.ReadRecords(ctx, leader, Topic{topic.Name, [16]byte{1}}, 0, 0, 0, 1); err == nil {
			t.Error("a Fetch by a wrong id succeeded")
		} else if errors.Is(err, ErrUnreachable) {
			t.Errorf("a Fetch by a wrong id broke the connection: %v", err)
		}
		if _, err := c.pool.ReadView(ctx, leader, Topic{topic.Name, id}, 0); err != nil {
			t.Error(err)
		}
	})
}

func (c *liveCluster) deleteRecords(t *testing.T, topic string, before int64) {
	t.Helper()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = before
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, p)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = append(req.Topics, rt)
	if code := ask(t, c, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("delete records: error code %d", code)
	}
}

// addProbePartition makes sure that a node leads a partition of the topic, and
// waits until it knows.
func (c *liveCluster) addProbePartition(t *testing.T, topic string, node int32, nodes []int32) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, _, err := c.pool.Probe(t.Context(), node, topic)
		var none *NoProbePartitionError
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			t.Fatalf("no partition for node %d: %v", node, err)
		case !errors.As(err, &none) || none.Replica:
			continue
		}
		for _, at := range nodes {
			if err = c.pool.AddPartition(t.Context(), at, topic, none.Partitions, node); err == nil {
				break
			}
		}
	}
}
