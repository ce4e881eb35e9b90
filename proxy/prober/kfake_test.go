package prober

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestKfake(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	testLive(t, dialCluster(t, Config{StateFrom: TailBatch}, cluster.ListenAddrs()...))
}
