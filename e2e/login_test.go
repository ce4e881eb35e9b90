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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// sessionLifetime is for how long the brokers of these tests let somebody in.
const sessionLifetime = 3 * time.Second

// disconnects counts the connections of a client that end.
type disconnects struct{ atomic.Int64 }

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (d *disconnects) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { d.Add(1) }

// gateway is a proxy that logs in for its clients, and at which users log in on a
// listener in TLS.
type gateway struct {
	*secured
	proxy   *proxyProcess
	outside *certtest.Authority
	tls     string // address of the listener in TLS
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	s := startSecured(t, tokensTaken(map[string]string{"connections.max.reauth.ms": fmt.Sprint(sessionLifetime.Milliseconds())}), "gateway")
	s.topic(t, "fenced", 1)
	s.topic(t, probeTopic, securedBrokers)
	s.allow(t, "gateway", on{"fenced", append([]kadm.ACLOperation{kadm.OpWrite}, viewRights...)}, on{probeTopic, probeRights}, on{"", configRights})
	g := &gateway{secured: s, outside: certtest.NewAuthority(t, "outside")}
	files := newPEMFiles(t)
	files.write(g.outside, g.outside, tlsDomain, "*."+tlsDomain)
	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	g.tls = fmt.Sprintf("127.0.0.1:%d", port)

	const variable = "PASSWORD_OF_THE_PROXY"
	dir := t.TempDir()
	users, config := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "offsetproxy.yaml")
	made := exec.Command(program, "user", "anna")
	made.Stdin = strings.NewReader(passwordOf("anna") + "\n")
	entry, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(users, entry, 0o600); err != nil {
		t.Fatal(err)
	}
	g.proxy = newProxyProcess(t)
	g.proxy.brokers, g.proxy.env = securedBrokers, []string{variable + "=" + passwordOf("gateway")}
	text := fmt.Sprintf(`
bootstrap: [%s]
rules: [{topics: fenced, mode: require}]
upstream: {sasl: {mechanism: PLAIN, user: gateway, password_env: %s, for_clients: true}}
listeners:
- {name: inside, listen: '%s', broker_ports: %s}
- name: outside
  listen: %s
  server_names: {domain: %s}
  tls: {cert_file: %s, key_file: %s}
  sasl: {mechanisms: [PLAIN, SCRAM-SHA-256, SCRAM-SHA-512], users_file: %s, session_lifetime: %s}
`, s.Bootstrap(), variable, g.proxy.bootstrap, g.proxy.brokerPorts(), g.tls, tlsDomain, files.cert, files.key, users, sessionLifetime)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.proxy.start(t, program, "--config", config)
	t.Cleanup(func() {
		for _, user := range []string{"gateway", "anna"} {
			if g.proxy.output.contains(passwordOf(user)) {
				t.Errorf("the proxy's log holds the password of %s", user)
			}
		}
	})
	return g
}

// client is one of the listener in TLS.
func (g *gateway) client(t *testing.T, login sasl.Mechanism, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: &tls.Config{RootCAs: g.outside.Pool(), ServerName: host}}).DialContext(ctx, network, g.tls)
	}
	return openClient(t, append(opts, kgo.SeedBrokers(tlsDomain+":1"), kgo.Dialer(dial), kgo.SASL(login))...)
}

// openClient has no retries by ids, and learns quickly of changes.
func openClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.MetadataMinAge(50*time.Millisecond), kgo.DisableIdempotentWrite())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Clients without secrets, and users of the proxy's own, append conditionally for
// longer than two sessions of the brokers', and no connection of theirs ends.
func TestSessionsAreRenewed(t *testing.T) {
	g := startGateway(t)
	var ended disconnects
	clients := map[string]*kgo.Client{
		"without secrets": openClient(t, kgo.SeedBrokers(g.proxy.bootstrap), kgo.WithHooks(&ended), kgo.RecordRetries(0)),
		"PLAIN":           g.client(t, plain.Auth{User: "anna", Pass: passwordOf("anna")}.AsMechanism(), kgo.WithHooks(&ended), kgo.RecordRetries(0)),
		"SCRAM-SHA-256":   g.client(t, scram.Auth{User: "anna", Pass: passwordOf("anna")}.AsSha256Mechanism(), kgo.WithHooks(&ended), kgo.RecordRetries(0)),
		"SCRAM-SHA-512":   g.client(t, scram.Auth{User: "anna", Pass: passwordOf("anna")}.AsSha512Mechanism(), kgo.WithHooks(&ended), kgo.RecordRetries(0)),
	}
	begun, next := time.Now(), 0
	for time.Since(begun) < 3*sessionLifetime {
		for name, client := range clients {
			if err := appendBy(t.Context(), client, "fenced", fmt.Sprint(next), name); err != nil {
				t.Fatalf("%s, at %d after %s: %v", name, next, time.Since(begun), err)
			}
			next++
		}
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d connections ended", n)
	}
	if err := appendBy(t.Context(), clients["PLAIN"], "fenced", "0", "late"); err == nil {
		t.Error("an append below the end was not refused")
	}
	ends, err := g.admin.ListEndOffsets(t.Context(), "fenced")
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := ends.Lookup("fenced", 0); end.Offset != int64(next) {
		t.Errorf("the log ends at %d, want %d", end.Offset, next)
	}

	// The twin: who does not log in anew is closed by the broker.
	conn, err := dialRaw(g.Address(1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	if err := loginAs(conn, "gateway"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the broker closes a connection whose session is over", 5*sessionLifetime, func() error {
		if _, err := conn.metadata("fenced"); err != nil {
			return nil
		}
		return errors.New("it is still open")
	})

	t.Run("wrong password", func(t *testing.T) {
		for _, login := range []sasl.Mechanism{
			plain.Auth{User: "anna", Pass: "wrong"}.AsMechanism(), scram.Auth{User: "bert", Pass: "wrong"}.AsSha512Mechanism(),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := g.client(t, login).Ping(ctx)
			cancel()
			if !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("%s: got %v, want SASL_AUTHENTICATION_FAILED", login.Name(), err)
			}
		}
	})
	t.Run("librdkafka by names", func(t *testing.T) { librdkafkaByNames(t, g, next) })
	t.Run("librdkafka", func(t *testing.T) { librdkafkaLogsIn(t, g) })
}

// librdkafkaLogsIn has kcat log in, or tell why it cannot.
func librdkafkaLogsIn(t *testing.T, g *gateway) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed")
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	g.outside.WriteCA(ca)
	run := func(address string, settings ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		args := []string{"-L", "-m", "5", "-b", address, "-X", "sasl.username=anna", "-X", "ssl.ca.location=" + ca, "-X", "ssl.endpoint.identification.algorithm=none"}
		for _, s := range settings {
			args = append(args, "-X", s)
		}
		output, _ := exec.CommandContext(ctx, kcat, args...).CombinedOutput()
		return string(output)
	}
	good := "sasl.password=" + passwordOf("anna")
	if output := run(g.tls, "security.protocol=SASL_SSL", "sasl.mechanisms=PLAIN", good); !strings.Contains(output, `topic "fenced"`) {
		t.Errorf("got\n%s", output)
	}
	if output := run(g.tls, "security.protocol=SASL_SSL", "sasl.mechanisms=PLAIN", "sasl.password=wrong"); !strings.Contains(output, "the credentials are not valid here") {
		t.Errorf("with a wrong password: got\n%s", output)
	}
	if output := run(g.proxy.bootstrap, "security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=PLAIN", good); !strings.Contains(output, "connect without SASL") {
		t.Errorf("where nobody logs in: got\n%s", output)
	}
	// Its own login at the brokers passes through.
	passing := g.proxyAs(t, "gateway", "PLAIN")
	if output := run(passing.bootstrap, "security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=PLAIN", "sasl.username=gateway", "sasl.password="+passwordOf("gateway")); !strings.Contains(output, `topic "fenced"`) {
		t.Errorf("through the proxy: got\n%s", output)
	}
}

// librdkafkaByNames has librdkafka find brokers by names in TLS, whose certificates it
// checks, and append conditionally for longer than a session: by each mechanism of the
// proxy's users, and by tokens of its own through another proxy. next is the log's end.
func librdkafkaByNames(t *testing.T, g *gateway, next int) {
	// Libraries before 2.6.1 send a nonce that no server may accept (CVE-2024-56128).
	library := startClient(t, pythonProgram("librdkafka_names.py")(t))
	ca := filepath.Join(t.TempDir(), "ca.crt")
	g.outside.WriteCA(ca)
	_, port, err := net.SplitHostPort(g.tls)
	if err != nil {
		t.Fatal(err)
	}
	open := func(name, bootstrap string, properties map[string]string) {
		t.Helper()
		properties["message.send.max.retries"] = "0"
		library.must(t, clientCommand{Do: "open", Producer: name, Bootstrap: bootstrap, Properties: properties})
		t.Cleanup(func() { library.must(t, clientCommand{Do: "close", Producer: name}) })
	}
	openUser := func(name, mechanism, password string) {
		t.Helper()
		open(name, tlsDomain+":"+port, map[string]string{
			"security.protocol": "SASL_SSL", "ssl.ca.location": ca,
			"sasl.mechanisms": mechanism, "sasl.username": "anna", "sasl.password": password,
		})
	}
	send := func(name string, expected int) clientReport {
		t.Helper()
		return library.do(t, clientCommand{
			Do: "send", Producer: name, Topic: "fenced", Value: "librdkafka by " + name, // no other's
			Headers: []clientHeader{{Name: "expected-offset", Value: fmt.Sprint(expected)}},
		})
	}
	names := []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
	for _, mechanism := range names[:3] {
		openUser(mechanism, mechanism, passwordOf("anna"))
	}
	passing := g.proxyAs(t, "gateway", "PLAIN", "--require", "fenced")
	open(names[3], passing.bootstrap, map[string]string{
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": names[3],
		"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=gateway",
	})
	for begun := time.Now(); time.Since(begun) < 2*sessionLifetime; {
		for _, name := range names {
			if got := send(name, next); got.Error != nil || got.Offset != int64(next) {
				t.Fatalf("%s, at %d after %s: got %d, %v", name, next, time.Since(begun), got.Offset, got.Error)
			}
			next++
		}
	}
	for _, name := range names {
		if got := send(name, 0); got.Error == nil || got.Error.Code != kerr.OffsetOutOfRange.Code {
			t.Errorf("%s, below the end: got %v, want OFFSET_OUT_OF_RANGE", name, got.Error)
		}
	}
	for _, mechanism := range names[:3] {
		name := mechanism + " wrong"
		openUser(name, mechanism, "wrong")
		if got := send(name, next); got.Error == nil || !strings.Contains(got.Error.Message, "the credentials are not valid here") {
			t.Errorf("%s with a wrong password: got %v", mechanism, got.Error)
		}
	}
}
