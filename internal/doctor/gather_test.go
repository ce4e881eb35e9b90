package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// securedCluster is one broker in TLS that asks who one is, and the configuration of a
// proxy for it, which its password of the proxy may be wrong in.
type securedCluster struct {
	address, ca, password string
}

func startSecured(t *testing.T) securedCluster {
	t.Helper()
	authority := certtest.NewAuthority(t, "brokers")
	s := securedCluster{ca: filepath.Join(t.TempDir(), "ca.crt"), password: filepath.Join(t.TempDir(), "password")}
	authority.WriteCA(s.ca)
	s.setPassword(t, "right")
	acl := func(name string, pattern kmsg.ACLResourcePatternType, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: pattern, Operation: operation, Allow: true}
	}
	const literally, prefixed = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.ClusterID("secured"), kfake.SeedTopics(2, "orders", "free"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{authority.Sign(time.Hour, "127.0.0.1")}}),
		kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "proxy", "right"),
		kfake.User("PLAIN", "app", "app", acl("orders", literally, kmsg.ACLOperationWrite)),
		kfake.User("PLAIN", "eve", "eve", acl("ord", prefixed, kmsg.ACLOperationAll)),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s.address = cluster.ListenAddrs()[0]
	return s
}

func (s *securedCluster) setPassword(t *testing.T, password string) {
	t.Helper()
	if err := os.WriteFile(s.password, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
}

// look gathers and judges, with a configuration for this cluster that has more lines.
func (s *securedCluster) look(t *testing.T, word Word, more string) *Report {
	t.Helper()
	text := strings.NewReplacer("ADDRESS", s.address, "CA", s.ca, "PASSWORD", s.password).Replace(
		"brokers: {kind: kfake}\nrules: [{topics: orders, mode: require}]\n" +
			"upstream: {tls: {ca_file: CA}, sasl: {mechanism: PLAIN, user: proxy, password_file: PASSWORD}}\n" + more)
	settings := settingsOf(t, text)
	settings.Proxy.Bootstrap = []string{s.address}
	return Judge(Gather(t.Context(), Config{Settings: settings, Word: word}))
}

// mustFind something of an ID and a severity that says this.
func mustFind(t *testing.T, r *Report, how Severity, id ID, seen string) {
	t.Helper()
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == id && f.Severity == how && strings.Contains(f.Seen, seen) }) {
		t.Errorf("no %s %s that says %q; got %s", how, id, seen, above(r))
	}
}

func TestGatherInTLSAsTheProxy(t *testing.T) {
	s := startSecured(t)
	r := s.look(t, Word{Writers: []string{"User:app"}}, "")
	mustFind(t, r, OK, BrokerUnreachable, "1 broker")
	mustFind(t, r, OK, ProxyRights, "User:proxy has the rights")
	mustFind(t, r, Error, TopicWriters, "User:eve (by prefix ord) may write")
	mustFind(t, r, Warning, Certificate, "it expires at") // the broker's
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == TopicWriters && strings.Contains(f.Seen, "User:app") }) {
		t.Error("a known writer is called a stranger")
	}
	if r.Cluster != "secured" {
		t.Errorf("cluster %q", r.Cluster)
	}

	s.setPassword(t, "wrong")
	r = s.look(t, Word{}, "")
	mustFind(t, r, Error, BootstrapUnreachable, "another login")
	if text := above(r); r.Cluster != "" || strings.Contains(text, "wrong") {
		t.Errorf("cluster %q: %s", r.Cluster, text)
	}
	certtest.NewAuthority(t, "others").WriteCA(s.ca)
	mustFind(t, s.look(t, Word{}, ""), Error, BootstrapUnreachable, "upstream.tls.ca_file")
	if err := os.WriteFile(s.ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFind(t, s.look(t, Word{}, ""), Error, Certificate, "no certificate is in it")
}

// TestGatherReadsTheListenersCertificates: when they expire, and for which names they
// are.
func TestGatherReadsTheListenersCertificates(t *testing.T) {
	s := startSecured(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certtest.NewAuthority(t, "clients").Write(cert, key, time.Hour, "kafka.invalid")
	settings, err := config.Parse("test", []byte("bootstrap: k:1\nrules: [{topics: a, mode: require}]\nlisteners: [{name: names, listen: '127.0.0.1:9443', tls: {cert_file: "+cert+", key_file: "+key+
		"}, server_names: {domain: kafka.invalid}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	settings.Proxy.Bootstrap = []string{s.address} // which wants TLS
	r := Judge(Gather(t.Context(), Config{Settings: settings}))
	mustFind(t, r, Error, BootstrapUnreachable, "")
	mustFind(t, r, Warning, Certificate, "it expires at")
	mustFind(t, r, Error, Certificate, "broker-0.kafka.invalid")
	mustFind(t, r, Warning, AdvertisedAddress, "kafka.invalid, which does not resolve")
}

// TestGatherOfAMadeUpCluster: who answers with more brokers than any cluster has, or with
// more than the proxy would read, is not asked further.
func TestGatherOfAMadeUpCluster(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cluster.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := request.ResponseKind().(*kmsg.MetadataResponse)
		answer.ClusterID = kmsg.StringPtr("made up")
		if asked := request.(*kmsg.MetadataRequest).Topics; asked != nil {
			return answer, nil, true // as kgo and the question to bootstrap addresses
		}
		for node := range int32(maxBrokers + 1) {
			broker := kmsg.NewMetadataResponseBroker()
			broker.NodeID, broker.Host, broker.Port = node, strings.Repeat("k", 200), 9092
			answer.Brokers = append(answer.Brokers, broker)
		}
		return answer, nil, true
	})
	settings := settingsOf(t, "rules: [{topics: a, mode: require}]\n")
	settings.Proxy.Bootstrap = cluster.ListenAddrs()
	for _, limit := range []int{settings.Proxy.MaxControlBytes, 1 << 20} {
		settings.Proxy.MaxControlBytes = limit
		facts := Gather(t.Context(), Config{Settings: settings})
		if len(facts.Brokers) > 0 {
			t.Errorf("with at most %d bytes: %d brokers were asked", limit, len(facts.Brokers))
		}
		r := Judge(facts)
		mustFind(t, r, OK, BootstrapUnreachable, "")
		mustFind(t, r, Error, TopicsUnseen, map[bool]string{true: "names 10001 brokers", false: "BrokerMaxReadBytes"}[limit > 1<<20])
	}
}

func TestGatherEndsWithItsContext(t *testing.T) {
	s := startSecured(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	settings := settingsOf(t, "rules: [{topics: a, mode: require}]\n")
	settings.Proxy.Bootstrap = []string{s.address}
	r := Judge(Gather(ctx, Config{Settings: settings, Proxies: []string{"127.0.0.1:1"}}))
	mustFind(t, r, Error, BootstrapUnreachable, "")
	mustFind(t, r, Error, ProxyUnreachable, "")
}

// TestProxiesThatShowSomethingElse: what answers there is not trusted.
func TestProxiesThatShowSomethingElse(t *testing.T) {
	answers := map[string]func(http.ResponseWriter, *http.Request){
		"nothing of that kind":     http.NotFound,
		"a page":                   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an agreement of no parts": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"hash":"x","parts":[]}`) },
	}
	for name, answer := range answers {
		server := httptest.NewServer(http.HandlerFunc(answer))
		p := askProxy(t.Context(), server.Client(), urlOf(server.URL+"/"))
		server.Close()
		if !strings.HasPrefix(p.URL, server.URL) || !strings.Contains(p.Clock.Of, server.URL) {
			t.Errorf("%s: called %q, and its clock %q", name, p.URL, p.Clock.Of)
		}
		if !p.Failed.Failed() {
			t.Errorf("%s: taken for %+v", name, p)
		}
	}
}

// TestPasswordsOfProxiesAreNotTold, of those that answer and of those that do not.
func TestPasswordsOfProxiesAreNotTold(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	answering := strings.Replace(server.URL, "//", "//reader:secret@", 1)
	for what, address := range map[string]string{"answers": answering, "is no URL": "http://reader:secret@host:port"} {
		p := askProxy(t.Context(), server.Client(), urlOf(address))
		if text := fmt.Sprintf("%+v", p); strings.Contains(text, "secret") || !p.Failed.Failed() {
			t.Errorf("%s: got %s", what, text)
		}
	}
	server.Close()
	if text := fmt.Sprintf("%+v", askProxy(t.Context(), server.Client(), urlOf(answering))); strings.Contains(text, "secret") {
		t.Errorf("is silent: got %s", text)
	}
}
