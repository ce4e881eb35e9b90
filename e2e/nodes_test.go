package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// deadServer is an address at which connections are neither taken nor refused.
func deadServer(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))
	for range 10 {
		// Nobody accepts, so the queue is full soon, and what comes then is not heard.
		conn, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return address
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("a full queue still takes connections")
	return ""
}

// silentServer takes connections and says nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// placed creates a topic whose partition i is at node i, and nowhere else.
func (s *inTLS) placed(t *testing.T, client *kgo.Client, name string, at ...kafkacluster.NodeID) {
	t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 20_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for i, id := range at {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Partition, assignment.Replicas = int32(i), []int32{int32(id)}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	}
	config, one := kmsg.NewCreateTopicsRequestTopicConfig(), "1"
	config.Name, config.Value = "min.insync.replicas", &one
	topic.Configs = append(topic.Configs, config)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(t.Context(), client)
	if err != nil || response.Topics[0].ErrorCode != 0 {
		t.Fatalf("create topic %s: %v, %+v", name, err, response)
	}
}

// told are the addresses of brokers that a client of a listener learns.
func (s *inTLS) told(ctx context.Context, client *kgo.Client) (map[kafkacluster.NodeID]string, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	told := map[kafkacluster.NodeID]string{}
	for _, b := range response.Brokers {
		told[kafkacluster.NodeID(b.NodeID)] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	return told, nil
}

// named are the addresses by server names.
func (s *inTLS) named(ids ...kafkacluster.NodeID) map[kafkacluster.NodeID]string {
	_, port, _ := net.SplitHostPort(s.outsideAt)
	all := map[kafkacluster.NodeID]string{}
	for _, id := range ids {
		all[id] = net.JoinHostPort(fmt.Sprintf("broker-%d.%s", id, tlsDomain), port)
	}
	return all
}

// ported are those of the listener with a port for each broker.
func (s *inTLS) ported(ids ...kafkacluster.NodeID) map[kafkacluster.NodeID]string {
	all := map[kafkacluster.NodeID]string{}
	for _, id := range ids {
		all[id] = net.JoinHostPort(officeHost, strconv.Itoa(s.office[id]))
	}
	return all
}

// java is the Java client at the listener with names, which it resolves by a file.
func (s *inTLS) java(t *testing.T) processSender {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "hosts")
	line := "127.0.0.1 " + tlsDomain
	for _, id := range append(slices.Clone(farNodes), joiner) {
		line += fmt.Sprintf(" broker-%d.%s", id, tlsDomain)
	}
	if err := os.WriteFile(hosts, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := newPEMFiles(t)
	files.write(s.outside, s.outside, "client")
	process := startClient(t, slices.Insert(javaProgram(t), 1, "-Djdk.net.hosts.file="+hosts))
	_, port, _ := net.SplitHostPort(s.outsideAt)
	process.must(t, clientCommand{Do: "open", Producer: "far", Bootstrap: net.JoinHostPort(tlsDomain, port), Properties: javaTLS(t, files)})
	t.Cleanup(func() { process.must(t, clientCommand{Do: "close", Producer: "far"}) })
	return processSender{process, "far"}
}

// knows waits until a client is told of these brokers, and no others.
func (s *inTLS) knows(t *testing.T, client *kgo.Client, want map[kafkacluster.NodeID]string) {
	t.Helper()
	waitFor(t, "the brokers are told of", faultPatience, func() error {
		got, err := s.told(t.Context(), client)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

// rounds writes to partitions through each of several ways in turn.
type rounds struct {
	ways map[string]func(ctx context.Context, at place, expect string) error
	next map[place]int64
}

// all are the ways through a proxy: each listener, and one by the Java client too.
func (s *inTLS) all(t *testing.T) *rounds {
	t.Helper()
	java := s.java(t)
	r := &rounds{map[string]func(context.Context, place, string) error{
		"java": func(ctx context.Context, at place, expect string) error {
			_, err := java.sendTo(ctx, at.topic, at.partition, "java "+expect, clientHeader{"expected-offset", expect}, clientHeader{"append-id", "java " + expect})
			return err
		},
	}, map[place]int64{}}
	for name, client := range map[string]*kgo.Client{
		"names": s.client(t, s.outside), "ports": s.officeClient(t, kgo.DisableIdempotentWrite()), "plain": s.plainClient(t),
	} {
		r.ways[name] = func(ctx context.Context, at place, expect string) error {
			return client.ProduceSync(ctx, &kgo.Record{Topic: at.topic, Partition: at.partition, Value: []byte(name + " " + expect), Headers: []kgo.RecordHeader{
				{Key: "expected-offset", Value: []byte(expect)}, {Key: "append-id", Value: []byte(name + " " + expect)},
			}}).FirstErr()
		}
	}
	return r
}

// write appends by each way, at the offset that is due.
func (r *rounds) write(t *testing.T, topic string, partition int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), faultPatience)
	defer cancel()
	at := place{topic, partition}
	for _, name := range slices.Sorted(maps.Keys(r.ways)) {
		if err := r.ways[name](ctx, at, strconv.FormatInt(r.next[at], 10)); err != nil {
			t.Errorf("%v by %s at %d: %v", at, name, r.next[at], err)
			return
		}
		r.next[at]++
	}
}

// testNodesWhateverTheirIDs are brokers with ids that are far apart, through three
// listeners with addresses of their own, of which one has all brokers at one port; where
// the first bootstrap server is dead and the second says nothing.
func testNodesWhateverTheirIDs(t *testing.T, cluster *tlsCluster) {
	s := cluster.front(t, "{topics: 'far*', mode: require}", deadServer(t), silentServer(t))
	client := s.client(t, s.outside)
	s.knows(t, client, s.named(farNodes...))
	s.knows(t, s.officeClient(t), s.ported(farNodes...))
	s.placed(t, client, "far", farNodes...)
	rounds := s.all(t)
	for i := range farNodes {
		rounds.write(t, "far", int32(i))
	}
}

// testNodesComeAndGo has one broker more join, and leave.
func testNodesComeAndGo(t *testing.T, cluster *tlsCluster) {
	s := cluster.front(t, "{topics: 'come*', mode: require}")
	client := s.client(t, s.outside)
	s.placed(t, client, "come", farNodes...)
	rounds := s.all(t)
	rounds.write(t, "come", 0)
	if err := s.Add(t.Context(), joiner); err != nil {
		t.Fatal(err)
	}
	with := append(slices.Clone(farNodes), joiner)
	s.knows(t, client, s.named(with...))
	s.knows(t, s.officeClient(t), s.ported(with...))
	s.proxy.before.listeners += 2 // of inside and office, which it keeps
	s.placed(t, client, "come-joined", joiner)
	rounds.write(t, "come-joined", 0)
	if err := s.Shut(joiner); err != nil {
		t.Fatal(err)
	}
	s.knows(t, client, s.named(farNodes...))
	for i := range farNodes {
		rounds.write(t, "come", int32(i))
	}
}
