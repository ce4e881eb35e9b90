package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// pemFiles are the files of one side of TLS.
type pemFiles struct{ cert, key, ca string }

// newPEMFiles names files in a directory of their own.
func newPEMFiles(t *testing.T) pemFiles {
	dir := t.TempDir()
	return pemFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
}

// write has an authority issue them; trust is the other side's.
func (f pemFiles) write(own, trust *certtest.Authority, names ...string) {
	own.Write(f.cert, f.key, 24*time.Hour, names...)
	trust.WriteCA(f.ca)
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tlsDomain is what the proxy's names end in; no resolver knows it.
const tlsDomain = "kafka.test"

// inTLS is a cluster in TLS that asks who its clients are (mTLS), and a proxy before
// it with a listener in TLS that asks too, beside a plain one.
type inTLS struct {
	cluster  *kafkacluster.Cluster
	proxy    *proxyProcess
	upstream *certtest.Authority // of brokers and of the proxy as their client
	outside  *certtest.Authority // of the proxy and of its clients
	secured  string              // address of the listener in TLS
	files    pemFiles            // of that
}

func startInTLS(t *testing.T, rules string) *inTLS {
	t.Helper()
	requireKafka(t)
	needsProgram(t)
	s := &inTLS{upstream: certtest.NewAuthority(t, "brokers"), outside: certtest.NewAuthority(t, "outside")}
	node := newPEMFiles(t)
	node.write(s.upstream, s.upstream, "localhost", "127.0.0.1")
	cluster, err := kafkacluster.Start(t.Context(), kafkacluster.Options{
		Brokers: securedBrokers, Heap: "512m",
		TLS: &kafkacluster.TLS{Certificate: readText(t, node.cert), Key: readText(t, node.key), Authorities: readText(t, node.ca), ClientAuth: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.cluster = cluster

	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	s.secured = fmt.Sprintf("127.0.0.1:%d", port)
	own := newPEMFiles(t)
	own.write(s.upstream, s.upstream, "offsetproxy")
	s.files = newPEMFiles(t)
	s.files.write(s.outside, s.outside, tlsDomain, "*."+tlsDomain)
	s.proxy = newProxyProcess(t)
	s.proxy.brokers = securedBrokers
	config := filepath.Join(t.TempDir(), "offsetproxy.yaml")
	text := fmt.Sprintf(`
bootstrap: [%s]
rules: [%s]
upstream: {tls: {ca_file: %s, cert_file: %s, key_file: %s}}
listeners:
- {name: inside, listen: '%s', broker_ports: %s}
- name: outside
  listen: %s
  server_names: {domain: %s}
  tls: {cert_file: %s, key_file: %s, client_ca_file: %s}
`, cluster.Bootstrap(), rules, own.ca, own.cert, own.key, s.proxy.bootstrap, s.proxy.brokerPorts(), s.secured, tlsDomain, s.files.cert, s.files.key, s.files.ca)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.proxy.start(t, program, "--config", config)
	return s
}

// dial is a dialler for the listener in TLS, to which all names lead.
func (s *inTLS) dial(cfg *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		named := cfg.Clone()
		named.ServerName = host
		return (&tls.Dialer{Config: named}).DialContext(ctx, network, s.secured)
	}
}

// client is one of the listener in TLS that shows a certificate of an authority, and
// trusts it.
func (s *inTLS) client(t *testing.T, a *certtest.Authority, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(tlsDomain + ":1"), kgo.MetadataMinAge(50 * time.Millisecond), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.Dialer(s.dial(&tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{a.Sign(time.Hour, "client")}})),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Appends through TLS on both sides, with certificates on all four; by server names
// on one port, and by ports on a plain listener beside.
func TestTLSOnBothSides(t *testing.T) {
	s := startInTLS(t, "{topics: fenced, mode: require}")
	client := s.client(t, s.outside)
	if _, err := kadm.NewClient(client).CreateTopics(t.Context(), securedBrokers, 1, nil, "fenced", "free"); err != nil {
		t.Fatal(err)
	}
	plain, err := kgo.NewClient(kgo.SeedBrokers(s.proxy.bootstrap), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for i, c := range []*kgo.Client{client, plain, client} {
		err := c.ProduceSync(t.Context(), &kgo.Record{
			Topic: "fenced", Partition: 0, Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte(fmt.Sprint(i))}},
		}).FirstErr()
		if err != nil {
			t.Errorf("append at %d: %v", i, err)
		}
	}
	if err := appendBy(t.Context(), client, "fenced", "1", "late"); err == nil {
		t.Error("an append below the end was not refused")
	}
	// Large batches and their reading, for which nothing is spliced in TLS.
	const records = 2000
	value := []byte(strings.Repeat("x", 1000))
	for i := range int32(records) {
		client.Produce(t.Context(), &kgo.Record{Topic: "free", Partition: i % securedBrokers, Value: value}, nil)
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := s.client(t, s.outside, kgo.ConsumeTopics("free"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for read := 0; read < records; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", read, err)
		}
		read += fetches.NumRecords()
	}

	// Who shows no certificate, or one of another authority, gets nowhere.
	stranger := certtest.NewAuthority(t, "stranger")
	for name, cfg := range map[string]*tls.Config{
		"no certificate":        {RootCAs: s.outside.Pool(), ServerName: tlsDomain},
		"another's certificate": {RootCAs: s.outside.Pool(), ServerName: tlsDomain, Certificates: []tls.Certificate{stranger.Sign(time.Hour, "client")}},
	} {
		conn, err := tls.Dial("tcp", s.secured, cfg)
		if err == nil {
			// In TLS 1.3 the server's refusal comes after the client's handshake.
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		var refused *net.OpError
		if !errors.As(err, &refused) || refused.Op != "remote error" {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	waitFor(t, "line that says who was refused", 10*time.Second, func() error {
		if !s.proxy.output.contains("TLS handshake failed") {
			return errors.New("not yet")
		}
		return nil
	})
	// And clients do not take the proxy for another.
	if _, err := tls.Dial("tcp", s.secured, &tls.Config{RootCAs: stranger.Pool(), ServerName: tlsDomain}); !isUnknownAuthority(err) {
		t.Errorf("by another authority: got %v", err)
	}
}

func isUnknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// New certificates and authorities are taken over without a connection that ends; and
// each side refuses what the other's old authority has signed.
func TestTLSFilesAreRotated(t *testing.T) {
	s := startInTLS(t, "{topics: fenced, mode: require}")
	old := s.client(t, s.outside)
	if _, err := kadm.NewClient(old).CreateTopics(t.Context(), 1, 1, nil, "fenced"); err != nil {
		t.Fatal(err)
	}
	if err := appendBy(t.Context(), old, "fenced", "0", "before"); err != nil {
		t.Fatal(err)
	}
	next := certtest.NewAuthority(t, "next")
	s.files.write(next, next, tlsDomain, "*."+tlsDomain)
	waitFor(t, "files to be read again", 30*time.Second, func() error {
		if !s.proxy.output.contains("TLS files read again") {
			return errors.New("not yet")
		}
		return nil
	})
	if err := appendBy(t.Context(), s.client(t, next), "fenced", "1", "by the new one"); err != nil {
		t.Error(err)
	}
	if err := appendBy(t.Context(), old, "fenced", "2", "connected before"); err != nil {
		t.Error(err)
	}
	if _, err := tls.Dial("tcp", s.secured, &tls.Config{RootCAs: s.outside.Pool(), ServerName: tlsDomain}); !isUnknownAuthority(err) {
		t.Errorf("by the old authority: got %v", err)
	}
}
