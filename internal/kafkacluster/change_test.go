package kafkacluster

import (
	"errors"
	"testing"
)

func TestRelayedClusterTakesInNoNode(t *testing.T) {
	c := &Cluster{layout: layout{dir: t.TempDir(), brokers: 1, firstPort: 9092, relayHost: "127.0.0.2"}}
	if err := c.Add(t.Context(), 7); !errors.Is(err, ErrRelayedAdd) {
		t.Errorf("got %v, want ErrRelayedAdd", err)
	}
}
