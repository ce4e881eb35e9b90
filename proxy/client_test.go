package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beforeKfake runs a proxy before an embedded cluster of three brokers.
func beforeKfake(t *testing.T) (*running, []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(3, "seeded"))
	if err != nil {
		t.Fatalf("kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return start(t, proxy.Config{Bootstrap: cluster.ListenAddrs()}), cluster.ListenAddrs()
}

func newClient(t *testing.T, p *running, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Addr())}, options...)...)
	if err != nil {
		t.Fatalf("kgo: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestAdminSeesTheProxyAlone(t *testing.T) {
	p, upstream := beforeKfake(t)
	ctx := within(t)
	admin := kadm.NewClient(newClient(t, p))
	created, err := admin.CreateTopics(ctx, 6, 3, nil, "made", "made-too")
	if err != nil || created.Error() != nil {
		t.Fatalf("create topics: %v, %v", err, created.Error())
	}
	metadata, err := admin.Metadata(ctx)
	if err != nil {
		t.Fatalf("metadata: %v", err)
	}
	told := p.BrokerAddrs()
	if len(metadata.Brokers) != 3 || len(told) != 3 {
		t.Fatalf("got %d brokers, the proxy knows %d, want 3", len(metadata.Brokers), len(told))
	}
	for _, b := range metadata.Brokers {
		address := fmt.Sprintf("%s:%d", b.Host, b.Port)
		if address != told[b.NodeID] || slices.Contains(upstream, address) {
			t.Errorf("broker %d is shown at %s, want %s", b.NodeID, address, told[b.NodeID])
		}
	}
	if got := len(metadata.Topics["made"].Partitions); got != 6 {
		t.Errorf("topic has %d partitions, want 6", got)
	}
	for group, c := range admin.FindGroupCoordinators(ctx, "g1", "g2") {
		if address := fmt.Sprintf("%s:%d", c.Host, c.Port); c.Err != nil || address != told[c.NodeID] {
			t.Errorf("coordinator of %s: %s, %v, want %s", group, address, c.Err, told[c.NodeID])
		}
	}
	cluster, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, newClient(t, p))
	if err != nil || len(cluster.Brokers) != 3 {
		t.Fatalf("describe cluster: %v, %v", cluster, err)
	}
	for _, b := range cluster.Brokers {
		if address := fmt.Sprintf("%s:%d", b.Host, b.Port); address != told[b.NodeID] {
			t.Errorf("broker %d is described at %s, want %s", b.NodeID, address, told[b.NodeID])
		}
	}
}

func TestProduceAndConsumeInAGroup(t *testing.T) {
	const records = 2000
	p, _ := beforeKfake(t)
	ctx := within(t)
	for name, options := range map[string][]kgo.Opt{
		"idempotent": nil,
		"acks_one":   {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
		"acks_none":  {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		"lz4":        {kgo.ProducerBatchCompression(kgo.Lz4Compression())},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "topic-" + name
			if _, err := kadm.NewClient(newClient(t, p)).CreateTopics(ctx, 3, 1, nil, topic); err != nil {
				t.Fatal(err)
			}
			producer := newClient(t, p, append(options, kgo.DefaultProduceTopic(topic))...)
			for i := range records {
				producer.Produce(ctx, kgo.StringRecord(fmt.Sprint(i, strings.Repeat("x", 500))), func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
			if err := producer.Flush(ctx); err != nil {
				t.Fatalf("flush: %v", err)
			}
			seen := map[string]bool{}
			var consumers [2]*kgo.Client
			for i := range consumers {
				consumers[i] = newClient(t, p, kgo.ConsumerGroup("group-"+name), kgo.ConsumeTopics(topic),
					kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond))
			}
			for len(seen) < records && ctx.Err() == nil {
				for _, consumer := range consumers {
					poll, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					consumer.PollFetches(poll).EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
					cancel()
				}
			}
			if got := len(seen); got != records {
				t.Errorf("got %d records, want %d", got, records)
			}
			if err := consumers[0].CommitUncommittedOffsets(ctx); err != nil {
				t.Errorf("commit: %v", err)
			}
		})
	}
}

func TestTransactions(t *testing.T) {
	p, _ := beforeKfake(t)
	ctx := within(t)
	producer := newClient(t, p, kgo.TransactionalID("txn"), kgo.DefaultProduceTopic("seeded"))
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatalf("begin: %v", err)
		}
		if err := producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("try ", i))).FirstErr(); err != nil {
			t.Fatalf("produce: %v", err)
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			t.Fatalf("end: %v", err)
		}
	}
	consumer := newClient(t, p, kgo.ConsumeTopics("seeded"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatalf("poll: %v", err)
	}
	var got []string
	fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	if !slices.Equal(got, []string{"try 1"}) {
		t.Errorf("got %q, want the committed record alone", got)
	}
}

func TestClientOutlivesItsLeader(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(1, "moving"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	p := start(t, proxy.Config{Bootstrap: cluster.ListenAddrs()})
	ctx := within(t)
	producer := newClient(t, p, kgo.DefaultProduceTopic("moving"), kgo.MetadataMinAge(10*time.Millisecond))
	for i := range 6 {
		leader := int32(i % 3)
		if err := cluster.MoveTopicPartition("moving", 0, leader); err != nil {
			t.Fatalf("move: %v", err)
		}
		if err := producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Errorf("produce at leader %d: %v", leader, err)
		}
	}
}
