package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// byNames is a gateway with the configuration of the manifests that tells brokers apart
// by names, with a certificate and a user.
type byNames struct {
	proxy          *proxyProcess
	file           *configMap
	text           string // of the configuration
	outside        *certtest.Authority
	at             string // address of the listener in TLS
	user, password string
}

const namesDomain = "kafka.example.com"

// newByNames writes all that it needs, and does not start it.
func newByNames(t *testing.T, bootstrap, topic string) *byNames {
	t.Helper()
	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	g := &byNames{
		proxy: newProxyProcess(t), file: newConfigMap(t), outside: certtest.NewAuthority(t, "outside"),
		at: loopbackAt(port), user: "orders-app", password: "only for tests",
	}
	certificates := newSecret(t)
	certificates.write(t, g.outside, g.outside, namesDomain, "*."+namesDomain)
	users := t.TempDir()
	made := exec.Command(program, "user", g.user)
	made.Stdin = strings.NewReader(g.password + "\n")
	entry, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(users, "users.yaml"), entry, 0o600); err != nil {
		t.Fatal(err)
	}
	g.text = manifestConfig(t, "gateway/sni/offsetproxy.yaml",
		"kafka.kafka.svc:9093", "["+bootstrap+"]",
		"0.0.0.0:9443", g.at, "127.0.0.1:9092", g.proxy.bootstrap, "9093-9192", g.proxy.brokerPorts(), "0.0.0.0:9400", "127.0.0.1:0",
		"/etc/offsetproxy-tls", certificates.dir, "/etc/offsetproxy-users", users,
		"drain_delay: 10s", "drain_delay: 0s", "topics: orders", "topics: "+topic)
	return g
}

// start writes the configuration and runs the proxy until the test ends.
func (g *byNames) start(t *testing.T) {
	t.Helper()
	g.file.write(t, g.text)
	g.proxy.start(t, program, "--config", g.file.file)
	t.Cleanup(func() {
		if g.proxy.output.contains(g.password) {
			t.Error("the log holds the user's password")
		}
	})
}

// client is one from outside, by way of what DNS and the load balancer do.
func (g *byNames) client(t *testing.T) *kgo.Client {
	t.Helper()
	return newClient(t, kgo.SeedBrokers(namesDomain+":443"), kgo.DisableIdempotentWrite(),
		kgo.SASL(scram.Auth{User: g.user, Pass: g.password}.AsSha512Mechanism()),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			host, told, err := net.SplitHostPort(address)
			if err != nil || told != "443" {
				return nil, fmt.Errorf("clients are told %s: %w", address, err)
			}
			return (&tls.Dialer{Config: &tls.Config{RootCAs: g.outside.Pool(), ServerName: host}}).DialContext(ctx, network, g.at)
		}))
}

// mustRefuse appends as a client from outside, twice at an offset.
func (g *byNames) mustRefuse(t *testing.T, topic string, at int64) {
	t.Helper()
	client := g.client(t)
	if offset, err := franzAppend(t, client, topic, at, "in TLS"); err != nil || offset != at {
		t.Errorf("in TLS: got %d, %v, want %d", offset, err, at)
	}
	if _, err := franzAppend(t, client, topic, at, "too late"); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("too late: got %v, want OFFSET_OUT_OF_RANGE", err)
	}
}

// upstreamBlock is how it logs in to brokers in TLS.
var upstreamBlock = regexp.MustCompile(`(?m)^upstream:\n(?:  .*\n)+`)

// TestManifestsGatewayByNames leaves out what is about the brokers, which speak plainly
// here; TestManifestsGatewayLogsIn has it all.
func TestManifestsGatewayByNames(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic = "manifests-names"
	g := newByNames(t, strings.Join(brokers.addresses(), ", "), topic)
	open := upstreamBlock.ReplaceAllString(g.text, "")
	if open == g.text {
		t.Fatal("nothing is about the brokers")
	}
	g.text = open
	g.start(t)
	createTopic(t, adminAt(t, g.proxy.bootstrap), topic, 1)
	g.proxy.mustRefuse(t, topic) // inside
	g.proxy.mustBeHealthy(t)
	g.mustRefuse(t, topic, 1)
	mustHold(t, topic, "first", "in TLS")
	g.proxy.mustHaveMetrics(t, "../docs/gateway.md")
}

// TestManifestsGatewayLogsIn is the whole configuration before a broker that speaks TLS
// and lets in who has a right alone: clients have no rights there.
func TestManifestsGatewayLogsIn(t *testing.T) {
	requireKafka(t)
	needsProgram(t)
	const topic = "orders"
	own := kafkacluster.Login{User: "offsetproxy", Password: "secret-of-the-proxy"}
	authority, node := certtest.NewAuthority(t, "brokers"), newPEMFiles(t)
	node.write(authority, authority, "localhost", "127.0.0.1")
	cluster, err := kafkacluster.Start(t.Context(), kafkacluster.Options{
		Brokers: 1, Heap: "512m", Security: &kafkacluster.Security{Super: superUser},
		TLS: &kafkacluster.TLS{Certificate: readText(t, node.cert), Key: readText(t, node.key), Authorities: readText(t, node.ca)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin := kadm.NewClient(newClient(t, kgo.SeedBrokers(cluster.Bootstrap()), kgo.DialTLSConfig(&tls.Config{RootCAs: authority.Pool()}),
		kgo.SASL(plain.Auth{User: superUser.User, Pass: superUser.Password}.AsMechanism())))
	set, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: own.User, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: own.Password}})
	if err != nil || set.Error() != nil {
		t.Fatalf("%v, %v", err, set.Error())
	}
	for _, name := range []string{topic, probeTopic} {
		if created, err := admin.CreateTopic(t.Context(), 1, 1, nil, name); err != nil || created.Err != nil {
			t.Fatalf("create topic %s: %v, %v", name, err, created.Err)
		}
	}
	ofProxy := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Allow("User:" + own.User).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
	}
	for _, rights := range []*kadm.ACLBuilder{
		ofProxy().Topics(topic, probeTopic).Operations(append([]kadm.ACLOperation{kadm.OpWrite}, viewRights...)...),
		ofProxy().Clusters().Operations(configRights...),
	} {
		if _, err := admin.CreateACLs(t.Context(), rights); err != nil {
			t.Fatal(err)
		}
	}

	g := newByNames(t, cluster.Bootstrap(), topic)
	secret := t.TempDir()
	authority.WriteCA(filepath.Join(secret, "ca.crt"))
	if err := os.WriteFile(filepath.Join(secret, "password"), []byte(own.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.text = strings.ReplaceAll(g.text, "/etc/offsetproxy-upstream", secret)
	g.proxy.brokers = 1
	g.start(t)
	waitFor(t, "the proxy's rights are known, and its topic led", 30*time.Second, func() error {
		if got := runProgram(t, "next", "--bootstrap", g.proxy.bootstrap, "--topic", topic); got != (ended{exitDone, "0\n", ""}) {
			return fmt.Errorf("next: %+v", got)
		}
		return nil
	})
	g.mustRefuse(t, topic, 0)
	if g.proxy.output.contains(own.Password) {
		t.Error("the log holds the proxy's password")
	}
}
