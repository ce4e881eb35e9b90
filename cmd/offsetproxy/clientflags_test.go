package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// The commands of a client come through a gateway that asks for TLS and a login, and
// say what is missing where they do not.
func TestClientsComeThroughAGateway(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1, "check": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authority := certtest.NewAuthority(t, "own")
	authority.Write(in("tls.crt"), in("tls.key"), 30*24*time.Hour, "kafka.test")
	authority.WriteCA(in("ca.crt"))
	write("users.yaml", "anna: {password: let-me-in}\n")
	write("password", "let-me-in\n")
	write("wrong", "let-me-out\n")
	file := newConfigFile(t, "bootstrap: "+cluster.Addrs()[0]+`
brokers: {kind: kfake}
metrics: {listen: 127.0.0.1:0}
rules: [{topics: '*', mode: require}]
listeners:
- name: gate
  listen: 127.0.0.1:0
  tls: {cert_file: `+in("tls.crt")+`, key_file: `+in("tls.key")+`}
  sasl: {mechanisms: [PLAIN, SCRAM-SHA-256, SCRAM-SHA-512], users_file: `+in("users.yaml")+`}
`)
	file.write(t, "")
	b := start(t, true, "serve", "--config", file.name, "--log-format", "json")
	var line struct{ Listen, Admin string }
	if err := json.Unmarshal([]byte(b.await(t, has(`"msg":"serving"`))), &line); err != nil {
		t.Fatal(err)
	}
	at := func(command string, more ...string) []string {
		return append([]string{command, "--bootstrap", line.Listen, "--topic", "events"}, more...)
	}
	inTLS := []string{"--tls-ca-file", in("ca.crt"), "--tls-server-name", "kafka.test"}
	anna := func(mechanism, password string) []string {
		return append([]string{"--sasl-mechanism", mechanism, "--sasl-user", "anna", "--sasl-password-file", in(password)}, inTLS...)
	}
	admin, _, _ := strings.Cut(strings.TrimPrefix(line.Admin, "http://"), "/")
	for _, c := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"append", append(at("append", "--expect", "0", "v"), anna("SCRAM-SHA-512", "password")...), exitOK, "0\n", ""},
		{"refusal", append(at("append", "--expect", "0", "v"), anna("PLAIN", "password")...), exitRefused, "", "next=1"},
		{"next", append(at("next"), anna("SCRAM-SHA-256", "password")...), exitOK, "1\n", ""},
		{"wrong password", append(at("next"), anna("SCRAM-SHA-256", "wrong")...), exitFailed, "", "--sasl-user"},
		{"no password", append(at("next"), anna("SCRAM-SHA-256", "none")...), exitUsage, "", in("none")},
		{"no user", append(at("next", "--sasl-mechanism", "PLAIN"), inTLS...), exitUsage, "", "--sasl-user: missing"},
		{"no login", append(at("next"), inTLS...), exitFailed, "", "--sasl-mechanism"},
		{"no TLS", at("next"), exitFailed, "", "--tls"},
		{"other authorities", at("next", "--tls", "--tls-server-name", "kafka.test"), exitFailed, "", "--tls-ca-file must hold"},
		{"other name", at("next", "--tls-ca-file", in("ca.crt"), "--tls-server-name", "other.test"), exitFailed, "", "--tls-server-name says"},
		{"TLS where none is", []string{"next", "--bootstrap", admin, "--topic", "events", "--tls"}, exitFailed, "", "TLS is not spoken"},
		{"no authorities", at("next", "--tls-ca-file", in("none")), exitUsage, "", in("none")},
		{"verify", append([]string{"verify", "--bootstrap", line.Listen, "--topic", "check", "--for", "300ms", "--settle", "10ms", "--writers", "2", "--history", in("h.jsonl")},
			anna("SCRAM-SHA-256", "password")...), exitOK, "VERIFIED", ""},
		{"demo", []string{"demo", "--bootstrap", line.Listen, "--tls-ca-file", in("none")}, exitUsage, "", in("none")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := call(t, "", c.args...)
			if got.code != c.code || !strings.Contains(got.stdout, c.stdout) || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("got %+v, want code %d, %q and %q", got, c.code, c.stdout, c.stderr)
			}
		})
	}
	file.write(t, "wombat: 1\n")
	b.await(t, has("configuration refused", "mend the file, it is read again when it changes", "wombat"))
}

// What does not speak Kafka, or does not answer, is told apart.
func TestAdviceOnOtherPorts(t *testing.T) {
	inTLS := kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		_, _ = c.Next()
		_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // a fatal alert: handshake_failure
	})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	admin := kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		_, _ = c.Next()
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	closing := kafkatest.NewServer(t, func(*kafkatest.Conn) {})
	for _, c := range []struct{ address, flag, timeout, advice string }{
		{inTLS.Addr(), "--output=text", "10s", "TLS is spoken there"},
		{admin.Addr(), "--output=text", "10s", "metrics.listen"},
		{closing.Addr(), "--output=text", "10s", "does that port expect TLS"},
		{closing.Addr(), "--tls", "10s", "perhaps TLS is not spoken"},
		{silent.Addr().String(), "--tls", "100ms", "perhaps TLS is not spoken"},
		{silent.Addr().String(), "--output=text", "100ms", "see the proxy's /readyz"},
	} {
		got := call(t, "", "next", "--bootstrap", c.address, "--topic", "events", "--timeout", c.timeout, c.flag)
		if got.code != exitFailed || !strings.Contains(got.stderr, c.advice) {
			t.Errorf("got %+v, want %q", got, c.advice)
		}
	}
}
