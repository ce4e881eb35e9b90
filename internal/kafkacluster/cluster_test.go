package kafkacluster

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
)

// TestRealBrokerLivesDiesAndComesBack needs Java and downloads Kafka, so it
// runs with the e2e tests on real Kafka only.
func TestRealBrokerLivesDiesAndComesBack(t *testing.T) {
	if os.Getenv("OFFSETPROXY_E2E") != "kafka" {
		t.Skip("OFFSETPROXY_E2E is not kafka")
	}
	t.Parallel()
	cluster, err := Start(t.Context(), Options{Brokers: 1, Heap: "512m", QuickStart: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(cluster.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("temporary directory after Stop: got %v, want it gone", err)
		}
	}()
	const topics = "org.apache.kafka.tools.TopicCommand"
	if _, err := cluster.Tool(t.Context(), topics, "--bootstrap-server", cluster.Bootstrap(), "--create", "--topic", "kept"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Revive(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	output, err := cluster.Tool(t.Context(), topics, "--bootstrap-server", cluster.Bootstrap(), "--list")
	if err != nil || !strings.Contains(string(output), "kept") {
		t.Errorf("topics after the revival: got %q, %v, want kept", output, err)
	}
	if err := cluster.Kill(2); !errors.Is(err, ErrNoSuchNode) {
		t.Errorf("kill of node 2: got %v, want ErrNoSuchNode", err)
	}
}

// TestSecuredBrokerAsksWhoOneIs: the super user may, somebody else may not. They speak
// TLS too.
func TestSecuredBrokerAsksWhoOneIs(t *testing.T) {
	if os.Getenv("OFFSETPROXY_E2E") != "kafka" {
		t.Skip("OFFSETPROXY_E2E is not kafka")
	}
	t.Parallel()
	authority, dir := certtest.NewAuthority(t, "brokers"), t.TempDir()
	pem := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	authority.Write(filepath.Join(dir, "cert"), filepath.Join(dir, "key"), time.Hour, "127.0.0.1")
	authority.WriteCA(filepath.Join(dir, "ca"))
	inTLS := &TLS{Certificate: pem("cert"), Key: pem("key"), Authorities: pem("ca")}
	cluster, err := Start(t.Context(), Options{Brokers: 1, Heap: "512m", QuickStart: true, TLS: inTLS, Security: &Security{
		Super: Login{"root", "root-secret"}, Users: []Login{{"app", "app-secret"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	create := func(config string) error {
		_, err := cluster.Tool(t.Context(), "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.Bootstrap(),
			"--command-config", config, "--create", "--topic", "secured")
		return err
	}
	app := filepath.Join(t.TempDir(), "app.properties")
	properties := Login{"app", "app-secret"}.clientProperties()
	maps.Copy(properties, inTLS.stores())
	properties["security.protocol"] = "SASL_SSL"
	if err := os.WriteFile(app, []byte(write(properties)), 0o600); err != nil {
		t.Fatal(err)
	}
	var failed *ToolError
	if err := create(app); !errors.As(err, &failed) {
		t.Errorf("as a user without rights: got %v, want a refusal", err)
	}
	if err := create(cluster.ToolConfig()); err != nil {
		t.Errorf("as the super user: %v", err)
	}
}
