package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// clientChecks are what every client outside Go reports as done.
var clientChecks = []string{
	"create-topic", "describe-cluster", "produce", "idempotent", "transactional", "describe-group", "consume-group",
}

// TestPythonClient is librdkafka.
func TestPythonClient(t *testing.T) {
	requireKafka(t)
	p := startProxy(t)
	runClient(t, p, pythonClient(t), "suite", p.bootstrap, "python")
}

func TestJavaClient(t *testing.T) {
	cluster := requireKafka(t)
	p := startProxy(t)
	runClient(t, p, javaClient(cluster.Jars()), "suite", p.bootstrap, "java")
}

// pythonClient is the command line of clients/python, installed if need be.
func pythonClient(t *testing.T) []string {
	t.Helper()
	cache, err := filepath.Abs("../.cache/python")
	if err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "clients/python/install", cache)
	install.Stderr = os.Stderr
	interpreter, err := install.Output()
	if err != nil {
		t.Fatalf("install the Python client: %v", err)
	}
	return []string{strings.TrimSpace(string(interpreter)), "clients/python/client.py"}
}

// javaClient is the command line of clients/java with the client library that
// came with the broker.
func javaClient(jars string) []string {
	return []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(jars, "*"), "clients/java/Client.java",
	}
}

// runClient runs a client and checks that it did everything and was told
// nothing but the proxy's addresses.
func runClient(t *testing.T, p *proxyProcess, argv []string, args ...string) {
	t.Helper()
	output := commandOutput(t, argv, args...)
	done := map[string]bool{}
	told := 0
	for line := range strings.Lines(output) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "ok":
			done[rest] = true
		case "broker":
			told++
			checkAddress(t, p, rest)
		}
	}
	for _, check := range clientChecks {
		if !done[check] {
			t.Errorf("client did not report %q", check)
		}
	}
	if told < brokerCount {
		t.Errorf("client was told %d broker addresses, want at least %d", told, brokerCount)
	}
}

func commandOutput(t *testing.T, argv []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	argv = slices.Concat(argv, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", strings.Join(argv, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}

// checkAddress takes host:port as a client was told it.
func checkAddress(t *testing.T, p *proxyProcess, address string) {
	t.Helper()
	if err := p.ownAddress(address); err != nil {
		t.Error(err)
	}
}

// ownAddress is an error for an address that is none of this proxy's.
func (p *proxyProcess) ownAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	if host != "127.0.0.1" || !slices.Contains(p.ports, int32(number)) {
		return fmt.Errorf("%s is not an address of the proxy, which has 127.0.0.1 and ports %d", address, p.ports)
	}
	return nil
}
