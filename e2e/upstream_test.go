package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// brokerCount is the size of both kinds of cluster.
const brokerCount = 3

// upstream is the cluster behind the proxies.
type upstream struct {
	bootstrap string
	kafka     *kafkacluster.Cluster // nil: kfake
	kfake     *kfake.Cluster        // nil: Kafka
}

// startUpstream runs what OFFSETPROXY_E2E names.
func startUpstream(ctx context.Context) (*upstream, error) {
	switch kind := os.Getenv("OFFSETPROXY_E2E"); kind {
	case "kafka":
		cluster, err := kafkacluster.Start(ctx, kafkacluster.Options{Brokers: brokerCount, RelayHost: relayHost, QuickStart: true, Properties: map[string]string{
			// A killed leader is replaced after 9 s by default.
			"broker.session.timeout.ms":    "6000",
			"broker.heartbeat.interval.ms": "1000",
			// What is to be forgotten is, for the test of what happens then.
			"producer.id.expiration.check.interval.ms": "1000",
		}})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "e2e: Kafka %s at %s\n", cluster.Version(), cluster.Bootstrap())
		return &upstream{bootstrap: cluster.Bootstrap(), kafka: cluster}, nil
	case "", "kfake":
		first, err := kafkacluster.FreePorts(brokerCount)
		if err != nil {
			return nil, err
		}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(brokerCount), kfake.Ports(first, first+1, first+2))
		if err != nil {
			return nil, err
		}
		return &upstream{bootstrap: strings.Join(cluster.ListenAddrs(), ","), kfake: cluster}, nil
	default:
		return nil, fmt.Errorf("OFFSETPROXY_E2E is %q; want kafka or kfake", kind)
	}
}

func (u *upstream) stop() {
	if u.kafka != nil {
		if err := u.kafka.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: stop Kafka:", err)
		}
		return
	}
	u.kfake.Close()
}

// kind has the proxies find out what the brokers are.
func (u *upstream) kind() string { return "auto" }

func (u *upstream) addresses() []string { return strings.Split(u.bootstrap, ",") }

// ports are the brokers' own, which no client of a proxy may ever see.
func (u *upstream) ports() []int32 {
	var ports []int32
	for _, address := range u.addresses() {
		_, port, _ := net.SplitHostPort(address)
		n, _ := strconv.ParseInt(port, 10, 32)
		ports = append(ports, int32(n))
	}
	return ports
}

// requireKafka skips tests whose claim means nothing on the embedded broker.
func requireKafka(t *testing.T) *kafkacluster.Cluster {
	t.Helper()
	if brokers.kafka == nil {
		t.Skip("needs real Kafka: OFFSETPROXY_E2E=kafka")
	}
	return brokers.kafka
}

// besideOthers has a test wait for others of its kind to do the same, and then run
// beside them: most of their time is waiting, for libraries, for processes that start
// and for proxies. It is for a test that disturbs no broker, sets nothing that others
// depend on, and measures nothing.
func besideOthers(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// adminAt is a client for addresses, a proxy's or the brokers' own.
func adminAt(t *testing.T, addresses ...string) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// createTopic makes a topic with three replicas, through a proxy or directly,
// and waits until every broker knows a leader of every partition.
func createTopic(t *testing.T, admin *kadm.Client, name string, partitions int32) {
	t.Helper()
	createConfiguredTopic(t, admin, name, partitions, nil)
}

// createConfiguredTopic is createTopic with settings.
func createConfiguredTopic(t *testing.T, admin *kadm.Client, name string, partitions int32, configs map[string]*string) {
	t.Helper()
	createReplicatedTopic(t, admin, name, partitions, brokerCount, configs)
}

// createReplicatedTopic is createConfiguredTopic with a number of replicas.
func createReplicatedTopic(t *testing.T, admin *kadm.Client, name string, partitions int32, replicas int16, configs map[string]*string) {
	t.Helper()
	response, err := admin.CreateTopic(t.Context(), partitions, replicas, configs, name)
	if err != nil || response.Err != nil {
		t.Fatalf("create topic %s: %v, %v", name, err, response.Err)
	}
	awaitLeaders(t, name, int(partitions), [16]byte{})
}

// awaitLeaders asks each broker for itself: they learn of a topic one after the
// other, and of its leaders before they lead. A topic with the id not is an
// older one of that name.
func awaitLeaders(t *testing.T, topic string, partitions int, not [16]byte) {
	t.Helper()
	for _, address := range brokers.addresses() {
		conn, err := dialRaw(address)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "leaders of "+topic+" at "+address, 30*time.Second, func() error {
			metadata, err := conn.metadata(topic)
			if err != nil {
				return err
			}
			got := metadata.Topics[0]
			if len(got.Partitions) != partitions || got.TopicID == not {
				return fmt.Errorf("%d of %d partitions, id %x", len(got.Partitions), partitions, got.TopicID)
			}
			for _, p := range got.Partitions {
				if p.ErrorCode != 0 || p.Leader < 0 || len(p.Replicas) == 0 || len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("partition %d: leader %d, in sync %v, code %d", p.Partition, p.Leader, p.ISR, p.ErrorCode)
				}
			}
			return nil
		})
		conn.close()
	}
	admin := adminAt(t, brokers.addresses()...)
	waitFor(t, "leaders of "+topic+" lead", 30*time.Second, func() error {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		if err != nil {
			return err
		}
		return ends.Error()
	})
}

// waitFor asks until ready returns nil. Other processes give nothing to wait
// on, so this is the one place that polls.
func waitFor(t *testing.T, what string, limit time.Duration, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
