package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

// A plain listener and one in TLS, where brokers are told apart by server name;
// certificates and rules that change while it serves are taken over, what is wrong
// is refused, and no connection ends.
func TestServeInTLS(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	before := certtest.NewAuthority(t, "before")
	before.Write(cert, key, 24*time.Hour, "kafka.test", "*.kafka.test")
	file := newConfigFile(t, "bootstrap: "+cluster.Addrs()[0]+`
brokers: {kind: kfake}
metrics: {listen: 127.0.0.1:0}
listeners:
- {name: inside, listen: '127.0.0.1:0'}
- {name: outside, listen: '127.0.0.1:0', server_names: {domain: kafka.test}, tls: {cert_file: `+cert+`, key_file: `+key+`}}
`)
	file.write(t, "")
	b := start(t, true, "serve", "--config", file.name, "--log-format", "json")
	serving := b.await(t, has(`"msg":"serving"`))
	var line struct {
		Listen, Admin string
		Others        map[string]struct{ Listen, Brokers string }
	}
	if err := json.Unmarshal([]byte(serving), &line); err != nil {
		t.Fatal(err)
	}
	outside := line.Others["outside"]
	if !strings.HasPrefix(outside.Brokers, "0=broker-0.kafka.test:") {
		t.Errorf("brokers are told as %s", outside.Brokers)
	}
	client := func(a *certtest.Authority) *kgo.Client {
		t.Helper()
		// All names are those of this machine.
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			d := tls.Dialer{Config: &tls.Config{RootCAs: a.Pool(), ServerName: host}}
			return d.DialContext(ctx, network, outside.Listen)
		}
		c, err := kgo.NewClient(kgo.SeedBrokers("kafka.test:1"), kgo.Dialer(dial), kgo.DefaultProduceTopic("events"), kgo.RecordRetries(3), kgo.RetryTimeout(5*time.Second),
			kgo.DisableIdempotentWrite())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	works := func(c *kgo.Client, expect string) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		record := kgo.StringRecord("v")
		if expect != "" {
			record.Headers = []kgo.RecordHeader{{Key: "expected-offset", Value: []byte(expect)}}
		}
		return c.ProduceSync(ctx, record).FirstErr()
	}
	old := client(before)
	if err := works(old, ""); err != nil {
		t.Fatalf("in TLS: %v", err)
	}

	file.write(t, "rules: [{topics: events, mode: require}]\n")
	b.await(t, has("other rules are in force"))
	if err := works(old, "0"); err == nil {
		t.Error("a rule that the file has gained is not in force")
	}
	if err := works(old, "1"); err != nil {
		t.Errorf("under the rule: %v", err)
	}

	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.await(t, has("TLS files refused", "listener outside", cert))
	if got := metricOf(t, line.Admin, "offsetproxy_tls_reload_failed"); got != "1" {
		t.Errorf("metric of refused files: got %s, want 1", got)
	}
	if err := works(client(before), "2"); err != nil {
		t.Errorf("after a change that was refused: %v", err)
	}

	after := certtest.NewAuthority(t, "after")
	after.Write(cert, key, time.Hour, "kafka.test", "*.kafka.test")
	b.await(t, has("TLS files read again", "listener outside"))
	b.await(t, has("a certificate expires soon"))
	if err := works(client(after), "3"); err != nil {
		t.Errorf("by the new certificate: %v", err)
	}
	if err := works(old, "4"); err != nil {
		t.Errorf("connected before: %v", err)
	}
	if got := metricOf(t, line.Admin, "offsetproxy_tls_reload_failed"); got != "0" {
		t.Errorf("metric of refused files: got %s, want 0", got)
	}

	// A renewal that forgets the brokers' names is taken, and told of everywhere.
	after.Write(cert, key, 90*24*time.Hour, "kafka.test")
	b.await(t, has("clients will not accept the certificate for a name that they are told", "listener outside", "broker-0.kafka.test"))
	if got := metricOf(t, line.Admin, `offsetproxy_tls_uncovered{side="listener outside"}`); got != "1" {
		t.Errorf("metric of names that lack: got %s, want 1", got)
	}
	if _, status := get(t, "http://"+line.Admin+"/status.json"); !strings.Contains(status, "The certificate of listener outside is not good for broker-0.kafka.test, which clients are told") {
		t.Errorf("nothing calls for attention in %s", status)
	}
	b.stop()
	if code := b.exit(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// Files that cannot be used are named before anything is served.
func TestServeWithoutItsCertificate(t *testing.T) {
	file := newConfigFile(t, "bootstrap: k:1\nlisteners: [{listen: '127.0.0.1:0', tls: {cert_file: /none/tls.crt, key_file: /none/tls.key}}]\n")
	file.write(t, "upstream: {tls: {ca_file: /none/ca.crt}}\n")
	got := call(t, "", "serve", "--config", file.name)
	if got.code != exitUsage || !strings.Contains(got.stderr, "/none/tls.crt") || !strings.Contains(got.stderr, "/none/ca.crt") {
		t.Errorf("got %+v", got)
	}
}
