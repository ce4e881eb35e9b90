package embedded

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Config describes an embedded cluster. The zero value is one broker on a free
// port without topics.
type Config struct {
	// Brokers is how many brokers to run, node ids 0 to Brokers−1; default 1.
	Brokers int
	// Topics maps a topic to create to its number of partitions.
	Topics map[string]int32
}

// Cluster is a running embedded cluster.
type Cluster struct {
	inner *kfake.Cluster
}

// Start runs a cluster on free loopback ports until Close. Its goroutines
// start here, since kfake offers no other way.
func Start(cfg Config) (*Cluster, error) {
	if cfg.Brokers < 0 {
		return nil, errors.New("embedded cluster: a negative number of brokers")
	}
	if cfg.Brokers == 0 {
		cfg.Brokers = 1
	}
	opts := []kfake.Opt{kfake.NumBrokers(cfg.Brokers), kfake.ClusterID("embedded")}
	for topic, partitions := range cfg.Topics {
		opts = append(opts, kfake.SeedTopics(partitions, topic))
	}
	inner, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("embedded cluster: %w", err)
	}
	return &Cluster{inner: inner}, nil
}

// Addrs returns the brokers' own addresses, which go around any proxy. Safe
// for concurrent use.
func (c *Cluster) Addrs() []string { return c.inner.ListenAddrs() }

// Close stops the cluster and drops its log. It may be called once.
func (c *Cluster) Close() { c.inner.Close() }
