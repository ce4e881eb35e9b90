package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestStartAndClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	cluster, err := Start(Config{Brokers: 2, Topics: map[string]int32{"a": 1, "b": 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if got := len(cluster.Addrs()); got != 2 {
		t.Fatalf("got %d addresses, want 2", got)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int{"a": 1, "b": 4} {
		if got := len(topics[topic].Partitions); got != want {
			t.Errorf("topic %s: got %d partitions, want %d", topic, got, want)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	if cluster, err := Start(Config{Brokers: -1}); err == nil {
		cluster.Close()
		t.Error("started a negative number of brokers")
	}
}
