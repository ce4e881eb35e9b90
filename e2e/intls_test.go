package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// farNodes are the ids of a cluster whose nodes were not counted from one, and joiner
// that of one that comes later.
var farNodes = []kafkacluster.NodeID{0, 1000, 20000}

const joiner kafkacluster.NodeID = 7

const (
	// tlsDomain is what the proxy's names end in; no resolver knows it.
	tlsDomain = "kafka.test"
	// officeHost is what clients of the listener with ports are told.
	officeHost = "localhost"
)

// TestInTLS is all that needs brokers which speak TLS and ask who their clients are
// (mTLS): one cluster for all, of farNodes.
func TestInTLS(t *testing.T) {
	requireKafka(t)
	needsProgram(t)
	if !longRuns { // where no broker is restarted under load
		besideOthers(t)
	}
	c := &tlsCluster{authority: certtest.NewAuthority(t, "brokers"), outside: certtest.NewAuthority(t, "outside")}
	c.start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *tlsCluster)
	}{
		{"BothSides", testTLSOnBothSides},
		{"StrangersUpstream", testTLSStrangersUpstream},
		{"FilesAreRotated", testTLSFilesAreRotated},
		{"WhateverTheirIDs", testNodesWhateverTheirIDs},
		{"EverythingIsRenewed", testEverythingIsRenewed},
		{"NodesComeAndGo", testNodesComeAndGo},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// tlsCluster is a cluster in TLS.
type tlsCluster struct {
	*kafkacluster.Cluster
	authority *certtest.Authority // of brokers and of the proxy as their client
	outside   *certtest.Authority // of the proxy and of its clients
}

// start runs it until the test ends.
func (c *tlsCluster) start(t *testing.T) {
	t.Helper()
	node := newPEMFiles(t)
	node.write(c.authority, c.authority, "localhost", "127.0.0.1")
	cluster, err := kafkacluster.Start(t.Context(), kafkacluster.Options{
		IDs: farNodes, Heap: "512m", QuickStart: true,
		TLS:        &kafkacluster.TLS{Certificate: readText(t, node.cert), Key: readText(t, node.key), Authorities: readText(t, node.ca), ClientAuth: true},
		Properties: map[string]string{"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.Cluster = cluster
}

// direct are the options of a client of the brokers themselves.
func (c *tlsCluster) direct() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.DialTLSConfig(&tls.Config{RootCAs: c.authority.Pool(), Certificates: []tls.Certificate{c.authority.Sign(time.Hour, "test")}}),
	}
}

// inTLS is a proxy before a cluster in TLS. It has three listeners: inside, plain on
// loopback; outside, in TLS with all brokers at one port; and office, in TLS with a port
// for each. Those in TLS ask who a client is.
type inTLS struct {
	*tlsCluster
	proxy     *proxyProcess
	bootstrap []string // servers before the cluster's own
	outsideAt string   // address of the listener with names
	officeAt  string   // and of that with ports
	inside    map[kafkacluster.NodeID]int
	office    map[kafkacluster.NodeID]int
	own       *secret // of the proxy as a client
	server    *secret // of the listeners in TLS
	file      string  // its configuration
}

// front starts one, with rules.
func (c *tlsCluster) front(t *testing.T, rules string, bootstrap ...string) *inTLS {
	t.Helper()
	s := c.unstarted(t, rules, bootstrap...)
	s.proxy.start(t, program, "--config", s.file)
	return s
}

// unstarted is front but for the start.
func (c *tlsCluster) unstarted(t *testing.T, rules string, bootstrap ...string) *inTLS {
	t.Helper()
	nodes := append(slices.Clone(farNodes), joiner)
	first, err := kafkacluster.FreePorts(2 + len(nodes))
	if err != nil {
		t.Fatal(err)
	}
	s := &inTLS{
		tlsCluster: c, proxy: newProxyProcess(t), bootstrap: bootstrap, own: newSecret(t), server: newSecret(t),
		inside: map[kafkacluster.NodeID]int{}, office: map[kafkacluster.NodeID]int{},
		file: filepath.Join(t.TempDir(), "offsetproxy.yaml"),
	}
	s.proxy.brokers = len(farNodes)
	s.outsideAt, s.officeAt = loopbackAt(first), loopbackAt(first+1)
	for i, id := range nodes {
		s.inside[id], s.office[id] = int(s.proxy.ports[2+i]), first+2+i
	}
	s.own.write(t, c.authority, c.authority, "offsetproxy")
	s.server.write(t, c.outside, c.outside, serverNames...)
	s.configure(t, rules)
	return s
}

// serverNames are those that the proxy's certificates are for.
var serverNames = []string{tlsDomain, "*." + tlsDomain, officeHost}

func loopbackAt(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// configure writes the proxy's configuration, at once.
func (s *inTLS) configure(t *testing.T, rules string) {
	t.Helper()
	ports := func(all map[kafkacluster.NodeID]int) string {
		var text []string
		for id, port := range all {
			text = append(text, fmt.Sprintf("%d: %d", id, port))
		}
		slices.Sort(text)
		return "{" + strings.Join(text, ", ") + "}"
	}
	pems := fmt.Sprintf("{cert_file: %s, key_file: %s, client_ca_file: %s}", s.server.cert, s.server.key, s.server.ca)
	// Nodes whose ids are small could have a range; none of these needs it.
	single := func(port int32) string { return fmt.Sprintf("%d-%d", port, port) }
	text := fmt.Sprintf(`
bootstrap: [%s]
rules: [%s]
upstream: {tls: {ca_file: %s, cert_file: %s, key_file: %s}}
listeners:
- {name: inside, listen: '%s', broker_ports: %s, node_ports: %s}
- {name: outside, listen: '%s', server_names: {domain: %s}, tls: %s}
- {name: office, listen: '%s', broker_ports: %s, node_ports: %s, advertised_host: %s, tls: %s}
limits: {dial_timeout: 2s}
metrics: {listen: '127.0.0.1:0'}
`, strings.Join(append(slices.Clone(s.bootstrap), s.Bootstrap()), ", "), rules, s.own.ca, s.own.cert, s.own.key,
		s.proxy.bootstrap, single(s.proxy.ports[1]), ports(s.inside), s.outsideAt, tlsDomain, pems,
		s.officeAt, single(s.proxy.ports[len(s.proxy.ports)-1]), ports(s.office), officeHost, pems)
	if err := os.WriteFile(s.file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.file+".next", s.file); err != nil {
		t.Fatal(err)
	}
}

// says waits until the proxy has logged something after the byte position from, and
// gives the position behind.
func (s *inTLS) says(t *testing.T, what string, from int) int {
	t.Helper()
	at := from
	waitFor(t, "the log says "+what, 30*time.Second, func() error {
		lines, end := s.proxy.output.lines(from)
		for _, line := range lines {
			if strings.Contains(line, what) {
				at = end
				return nil
			}
		}
		return fmt.Errorf("%d lines do not", len(lines))
	})
	return at
}

// client is one of the listener with names that shows a certificate of an authority,
// and trusts it.
func (s *inTLS) client(t *testing.T, a *certtest.Authority, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cfg := &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{a.Sign(time.Hour, "client")}}
	return newClient(t, append([]kgo.Opt{
		kgo.SeedBrokers(tlsDomain + ":1"), kgo.DisableIdempotentWrite(),
		// All names lead to one address.
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			named := cfg.Clone()
			named.ServerName = host
			return (&tls.Dialer{Config: named}).DialContext(ctx, network, s.outsideAt)
		}),
	}, opts...)...)
}

// officeClient is one of the listener with ports.
func (s *inTLS) officeClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cfg := &tls.Config{RootCAs: s.outside.Pool(), Certificates: []tls.Certificate{s.outside.Sign(time.Hour, "client")}}
	return newClient(t, append([]kgo.Opt{kgo.SeedBrokers(s.officeBootstrap()), kgo.DialTLSConfig(cfg)}, opts...)...)
}

func (s *inTLS) officeBootstrap() string {
	_, port, _ := net.SplitHostPort(s.officeAt)
	return net.JoinHostPort(officeHost, port)
}

// plainClient is one of the plain listener.
func (s *inTLS) plainClient(t *testing.T) *kgo.Client {
	t.Helper()
	return newClient(t, kgo.SeedBrokers(s.proxy.bootstrap), kgo.DisableIdempotentWrite())
}

// newClient chooses no partitions.
func newClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// topics creates some, and waits until they are led and all replicas are in sync.
func (c *tlsCluster) topics(t *testing.T, client *kgo.Client, partitions int32, names ...string) {
	t.Helper()
	if _, err := kadm.NewClient(client).CreateTopics(t.Context(), partitions, brokerCount, nil, names...); err != nil {
		t.Fatal(err)
	}
	c.whole(t, client, names...)
}

// whole waits until all replicas of topics are in sync.
func (c *tlsCluster) whole(t *testing.T, client *kgo.Client, names ...string) {
	t.Helper()
	admin := kadm.NewClient(client)
	waitFor(t, "all replicas in sync", faultPatience, func() error {
		topics, err := admin.ListTopics(t.Context(), names...)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			if topic.Err != nil {
				return topic.Err
			}
			for _, p := range topic.Partitions {
				if p.Leader < 0 || len(p.ISR) < brokerCount {
					return fmt.Errorf("%s/%d: led by %d, in sync %v", topic.Topic, p.Partition, p.Leader, p.ISR)
				}
			}
		}
		return nil
	})
}

// javaTLS are the properties of a Java client that shows and trusts these.
func javaTLS(t *testing.T, files pemFiles) map[string]string {
	t.Helper()
	return map[string]string{
		"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM",
		"ssl.keystore.certificate.chain": readText(t, files.cert), "ssl.keystore.key": readText(t, files.key),
		"ssl.truststore.certificates": readText(t, files.ca),
	}
}

// librdkafkaTLS are those of librdkafka.
func librdkafkaTLS(files pemFiles) map[string]string {
	return map[string]string{
		"security.protocol": "ssl", "broker.address.family": "v4",
		"ssl.ca.location": files.ca, "ssl.certificate.location": files.cert, "ssl.key.location": files.key,
	}
}
