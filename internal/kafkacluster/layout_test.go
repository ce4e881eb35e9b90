package kafkacluster

import (
	"errors"
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

func TestRelayedListenerIsAdvertisedElsewhere(t *testing.T) {
	l := layout{dir: "/d", brokers: 3, firstPort: 9092, relayHost: "127.0.0.2"}
	lines := strings.Split(l.render(2), "\n")
	for _, want := range []string{
		"listeners=PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9096,RELAYED://127.0.0.1:9099",
		"advertised.listeners=PLAINTEXT://127.0.0.1:9093,RELAYED://127.0.0.2:9099",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAYED:PLAINTEXT",
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

// TestSecuredNodeLetsNobodyInByDefault: what is not forbidden here would make
// tests of missing rights pass.
func TestSecuredNodeLetsNobodyInByDefault(t *testing.T) {
	l := layout{dir: "/d", brokers: 1, firstPort: 9092, security: &Security{
		Super: Login{"root", "r"}, Users: []Login{{"app", "a"}},
	}}
	lines := strings.Split(l.render(1), "\n")
	for _, want := range []string{
		"listeners=CLIENTS://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
		"listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"allow.everyone.if.no.acl.found=false",
		"super.users=User:ANONYMOUS;User:root",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		`listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required` +
			` username="root" password="r" user_root="r" user_app="a";`,
	} {
		if n := count(lines, want); n != 1 {
			t.Errorf("line %q: got %d times, want once in\n%s", want, n, strings.Join(lines, "\n"))
		}
	}
}

func TestLoginsThatNeedEscapesAreRefused(t *testing.T) {
	for _, l := range []Login{{"", "p"}, {"u", ""}, {"u", `a"b`}, {"u;", "p"}, {"u", "a b"}, {"u", "a\nb"}} {
		s := Security{Super: Login{"root", "r"}, Users: []Login{l}}
		if err := s.check(); !errors.Is(err, ErrBadLogin) {
			t.Errorf("%+q: got %v, want ErrBadLogin", l, err)
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

// TestFreePortsAreGivenOnce: nobody listens on them yet when the next are looked for.
func TestFreePortsAreGivenOnce(t *testing.T) {
	const each, times = 20, 200 // of 12,000
	given := map[int]bool{}
	for range times {
		first, err := FreePorts(each)
		if err != nil {
			t.Fatal(err)
		}
		for port := first; port < first+each; port++ {
			if given[port] {
				t.Fatalf("port %d was given twice", port)
			}
			given[port] = true
		}
	}
}

func TestNodesWithIDsOfTheirOwn(t *testing.T) {
	l := layout{dir: "/d", brokers: 3, ids: []NodeID{0, 1000, 20000}, firstPort: 9092}.withPort(1000, 9200).withPort(7, 9300)
	for id, wants := range map[NodeID][]string{
		0:     {"node.id=0", "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9095"},
		1000:  {"process.roles=broker,controller", "listeners=PLAINTEXT://127.0.0.1:9200,CONTROLLER://127.0.0.1:9096"},
		20000: {"listeners=PLAINTEXT://127.0.0.1:9094,CONTROLLER://127.0.0.1:9097"},
		7:     {"node.id=7", "process.roles=broker", "listeners=PLAINTEXT://127.0.0.1:9300"}, // added
	} {
		lines := strings.Split(l.render(id), "\n")
		for _, want := range append(wants, "controller.quorum.voters=0@127.0.0.1:9095,1000@127.0.0.1:9096,20000@127.0.0.1:9097") {
			if n := count(lines, want); n != 1 {
				t.Errorf("node %d, line %q: got %d times, want once in\n%s", id, want, n, strings.Join(lines, "\n"))
			}
		}
	}
}

func TestSecuredNodeInTLS(t *testing.T) {
	l := layout{dir: "/d", brokers: 1, firstPort: 9092, security: &Security{Super: Login{"root", "r"}}, tls: &TLS{
		Certificate: "a\nb\n", Key: "c\n", Authorities: "d\n", ClientAuth: true,
	}}
	lines := strings.Split(l.render(1), "\n")
	for _, want := range []string{
		"listeners=CLIENTS://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
		"listener.security.protocol.map=CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name=CLIENTS",
		"ssl.client.auth=required",
		`ssl.keystore.certificate.chain=a\nb`,
	} {
		if n := count(lines, want); n != 1 {
			t.Errorf("line %q: got %d times, want once in\n%s", want, n, strings.Join(lines, "\n"))
		}
	}
}
