package kafkacluster

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestPropertiesOfANode(t *testing.T) {
	l := layout{dir: "/d", brokers: 3, firstPort: 9092, extra: map[string]string{
		"min.insync.replicas": "1", "log.retention.ms": "1000",
	}}
	lines := strings.Split(l.render(2), "\n")
	for _, want := range []string{
		"node.id=2",
		"listeners=PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9096",
		"controller.quorum.voters=1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097",
		"log.dirs=" + filepath.Join("/d", "data-2"),
		"default.replication.factor=3",
		"transaction.state.log.min.isr=2",
		"min.insync.replicas=1", // the caller's wins
		"log.retention.ms=1000",
	} {
		if n := count(lines, want); n != 1 {
			t.Errorf("line %q: got %d times, want once in\n%s", want, n, strings.Join(lines, "\n"))
		}
	}
}

func TestSingleBrokerNeedsNoReplicas(t *testing.T) {
	text := layout{dir: "/d", brokers: 1, firstPort: 9092}.render(1)
	for _, want := range []string{"min.insync.replicas=1", "offsets.topic.replication.factor=1"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant a line %s", text, want)
		}
	}
}

func count(lines []string, want string) int {
	n := 0
	for _, line := range lines {
		if line == want {
			n++
		}
	}
	return n
}

func TestClusterUUIDIsAKafkaUUID(t *testing.T) {
	first, second := newClusterUUID(), newClusterUUID()
	if len(first) != 22 || strings.HasPrefix(first, "-") {
		t.Errorf("got %q, want 22 characters without a leading dash", first)
	}
	if first == second {
		t.Errorf("two clusters got the same id %q", first)
	}
}

func TestFreePortsAreFree(t *testing.T) {
	first, err := FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	for port := first; port < first+4; port++ {
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			t.Fatalf("port %d of %d..%d: %v", port, first, first+3, err)
		}
		defer func() { _ = listener.Close() }()
	}
	if allFree(first, 4) {
		t.Error("ports with listeners were called free")
	}
}
