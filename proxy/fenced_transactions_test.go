package proxy

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// addTopics makes an AddPartitionsToTxn request of one transaction.
func addTopics(version int16, topics ...string) *kmsg.AddPartitionsToTxnRequest {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID = version, "tx"
	tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
	tx.TransactionalID = "tx"
	for _, name := range topics {
		r.Topics = append(r.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: name, Partitions: []int32{0, 2}})
		tx.Topics = append(tx.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: name, Partitions: []int32{0, 2}})
	}
	if version >= 4 {
		r.Transactions = append(r.Transactions, tx)
	}
	return r
}

// codesOf lists topic, partition and code of an answer.
func codesOf(a *kmsg.AddPartitionsToTxnResponse) []string {
	var codes []string
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			codes = append(codes, fmt.Sprint(t.Topic, " ", p.Partition, " ", p.ErrorCode))
		}
	}
	for _, tx := range a.Transactions {
		for _, t := range tx.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, fmt.Sprint(t.Topic, " ", p.Partition, " ", p.ErrorCode))
			}
		}
	}
	return codes
}

func TestAddPartitionsToTxn(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		l := newLeader(t, "fenced", "free")
		c := newFencedRig(t, Config{}, l).dial()
		ask := func(topics ...string) []string {
			a := kmsg.NewPtrAddPartitionsToTxnResponse()
			a.Version = version
			c.Expect(c.send(addTopics(version, topics...)), a)
			return codesOf(a)
		}
		want := []string{"free 0 55", "free 2 55", "fenced 0 29", "fenced 2 29"}
		if diff := cmp.Diff(want, ask("free", "fenced")); diff != "" {
			t.Errorf("v%d (-want +got):\n%s", version, diff)
		}
		if got := l.count(kmsg.AddPartitionsToTxn); got != 0 {
			t.Errorf("v%d: got %d requests at the broker, want none", version, got)
		}
		ask("free") // relayed; the scripted broker's answer is empty
		if got := l.count(kmsg.AddPartitionsToTxn); got != 1 {
			t.Errorf("v%d: got %d requests at the broker, want 1", version, got)
		}
	}
}

func TestAddPartitionsToTxnThatIsNone(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"cut":   func(b []byte) []byte { return b[:len(b)-5] },
		"bytes": func(b []byte) []byte { return append(b[:20], 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff) },
		"large": func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) },
	} {
		l := newLeader(t, "fenced")
		c := newFencedRig(t, Config{}, l).dial()
		frame := spoil(kmsg.NewRequestFormatter().AppendRequest(nil, addTopics(1, "fenced"), 1))
		n := len(frame) - 4
		frame[0], frame[1], frame[2], frame[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
		_, _ = c.Write(frame) // the proxy may close before it has read all
		if rest := c.ExpectClosed(); len(rest) > 0 {
			t.Errorf("%s: got %x, want no answer", name, rest)
		}
		if got := l.count(kmsg.AddPartitionsToTxn); got != 0 {
			t.Errorf("%s: got %d requests at the broker, want none", name, got)
		}
	}
}

// endOf asks for the end of partition 0.
func endOf(t *testing.T, address, topic string) int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	return end.Offset
}

// A client library's transaction fails cleanly on a fenced topic, and the
// producer works on.
func TestTransactionalProducerOnAFencedTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "fenced", "free"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := startFenced(t, Config{Bootstrap: cluster.ListenAddrs(), BrokerKind: EmbeddedKfake})
	producer, err := kgo.NewClient(kgo.SeedBrokers(r.Addr()), kgo.TransactionalID("tx"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	ctx := t.Context()
	for _, c := range []struct {
		topic string
		want  error
	}{{"free", nil}, {"fenced", kerr.TopicAuthorizationFailed}, {"free", nil}} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatalf("%s: begin: %v", c.topic, err)
		}
		err := producer.ProduceSync(ctx, &kgo.Record{Topic: c.topic, Value: []byte("x")}).FirstErr()
		if !errors.Is(err, c.want) {
			t.Errorf("%s: produce: got %v, want %v", c.topic, err, c.want)
		}
		end := kgo.TryCommit
		if c.want != nil {
			end = kgo.TryAbort
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			t.Fatalf("%s: end: %v", c.topic, err)
		}
	}
	ends := map[string]int64{}
	for _, topic := range []string{"fenced", "free"} {
		ends[topic] = endOf(t, r.Addr(), topic)
	}
	// The markers of the two commits stand in the one, nothing in the other.
	if diff := cmp.Diff(map[string]int64{"fenced": 0, "free": 4}, ends); diff != "" {
		t.Errorf("log ends (-want +got):\n%s", diff)
	}
}
