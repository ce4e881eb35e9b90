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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
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

// Appends through TLS on both sides, with certificates on all four; by server names
// on one port, and by ports on a plain listener beside.
func testTLSOnBothSides(t *testing.T, cluster *tlsCluster) {
	const fenced, free = "sides-fenced", "sides-free"
	s := cluster.front(t, fmt.Sprintf("{topics: %s, mode: require}", fenced))
	client, plain := s.client(t, s.outside), s.plainClient(t)
	s.topics(t, client, brokerCount, fenced, free)
	for i, c := range []*kgo.Client{client, plain, client} {
		err := c.ProduceSync(t.Context(), &kgo.Record{
			Topic: fenced, Partition: 0, Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte(fmt.Sprint(i))}},
		}).FirstErr()
		if err != nil {
			t.Errorf("append at %d: %v", i, err)
		}
	}
	if err := appendBy(t.Context(), client, fenced, "1", "late"); err == nil {
		t.Error("an append below the end was not refused")
	}
	librdkafkaShowsCertificate(t, s, fenced, []int{3, 0, 0})
	// Large batches and their reading, for which nothing is spliced in TLS.
	const records = 2000
	value := []byte(strings.Repeat("x", 1000))
	for i := range int32(records) {
		client.Produce(t.Context(), &kgo.Record{Topic: free, Partition: i % brokerCount, Value: value}, nil)
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := s.client(t, s.outside, kgo.ConsumeTopics(free), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
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
		conn, err := tls.Dial("tcp", s.outsideAt, cfg)
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
	s.says(t, "TLS handshake failed", 0)
	// And clients do not take the proxy for another.
	if _, err := tls.Dial("tcp", s.outsideAt, &tls.Config{RootCAs: stranger.Pool(), ServerName: tlsDomain}); !isUnknownAuthority(err) {
		t.Errorf("by another authority: got %v", err)
	}
}

// librdkafkaShowsCertificate has it find each partition's leader by its name, whose
// certificate it checks. next are the ends of the topic's partitions.
func librdkafkaShowsCertificate(t *testing.T, s *inTLS, topic string, next []int) {
	const name = "with a certificate"
	_, port, err := net.SplitHostPort(s.outsideAt)
	if err != nil {
		t.Fatal(err)
	}
	own := newPEMFiles(t)
	own.write(s.outside, s.outside, "client")
	library := startClient(t, pythonProgram("librdkafka_names.py")(t))
	library.must(t, clientCommand{Do: "open", Producer: name, Bootstrap: tlsDomain + ":" + port, Properties: map[string]string{
		"security.protocol": "SSL", "ssl.ca.location": own.ca, "ssl.certificate.location": own.cert, "ssl.key.location": own.key,
	}})
	for partition, expected := range next {
		got := library.must(t, clientCommand{
			Do: "send", Producer: name, Topic: topic, Partition: int32(partition), Value: name,
			Headers: []clientHeader{{Name: "expected-offset", Value: fmt.Sprint(expected)}},
		})
		if got != int64(expected) {
			t.Errorf("librdkafka: partition %d: appended at %d, want %d", partition, got, expected)
		}
	}
	library.must(t, clientCommand{Do: "close", Producer: name})
}

// A proxy that does not know the brokers' authority, or that the brokers do not know,
// says so, and serves as soon as it is given other files.
func testTLSStrangersUpstream(t *testing.T, cluster *tlsCluster) {
	stranger := certtest.NewAuthority(t, "stranger")
	for name, c := range map[string]struct {
		own, trust *certtest.Authority
		says       string
	}{
		"brokers of another authority": {cluster.authority, stranger, "certificate signed by unknown authority"},
		"of another authority itself":  {stranger, cluster.authority, "remote error: tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.unstarted(t, "")
			s.own.write(t, c.own, c.trust, "offsetproxy")
			if err := s.proxy.launch(program, "--config", s.file); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.proxy.stop(t) })
			s.says(t, "cluster cannot be reached", 0)
			s.says(t, c.says, 0)
			s.own.write(t, cluster.authority, cluster.authority, "offsetproxy")
			waitFor(t, "it serves", 30*time.Second, s.proxy.ready)
		})
	}
}

func isUnknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// New certificates and authorities are taken over without a connection that ends; and
// each side refuses what the other's old authority has signed.
func testTLSFilesAreRotated(t *testing.T, cluster *tlsCluster) {
	const fenced = "rotated"
	s := cluster.front(t, fmt.Sprintf("{topics: %s, mode: require}", fenced))
	old := s.client(t, s.outside)
	s.topics(t, old, 1, fenced)
	if err := appendBy(t.Context(), old, fenced, "0", "before"); err != nil {
		t.Fatal(err)
	}
	next := certtest.NewAuthority(t, "next")
	s.server.write(t, next, next, serverNames...)
	s.says(t, "TLS files read again", 0)
	if err := appendBy(t.Context(), s.client(t, next), fenced, "1", "by the new one"); err != nil {
		t.Error(err)
	}
	if err := appendBy(t.Context(), old, fenced, "2", "connected before"); err != nil {
		t.Error(err)
	}
	if _, err := tls.Dial("tcp", s.outsideAt, &tls.Config{RootCAs: s.outside.Pool(), ServerName: tlsDomain}); !isUnknownAuthority(err) {
		t.Errorf("by the old authority: got %v", err)
	}
}
