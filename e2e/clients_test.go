package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// What every client outside Go reports as done.
var (
	suiteChecks = []string{
		"create-topic", "describe-cluster", "produce", "idempotent", "transactional", "describe-group", "consume-group",
	}
	fencedChecks = []string{"won", "refused", "goes-on", "transaction-refused", "transaction-elsewhere"}
)

// otherRule makes a proxy read what it would relay unread without any rule
// (Produce requests, names of topic ids, the partitions of transactions), and is
// about no topic that these tests use.
const otherRule = "other-*"

// TestPythonClient is librdkafka.
func TestPythonClient(t *testing.T) {
	requireKafka(t)
	besideOthers(t)
	runSuite(t, pythonClient(t), "python")
	runFenced(t, pythonClient(t), "python-fenced")
}

func TestJavaClient(t *testing.T) {
	cluster := requireKafka(t)
	besideOthers(t)
	runSuite(t, javaClient(cluster.Jars()), "java")
	runFenced(t, javaClient(cluster.Jars()), "java-fenced")
}

// runSuite runs all that a client does on topics without a rule, and checks
// that it was told nothing but the proxy's addresses.
func runSuite(t *testing.T, argv []string, topic string) {
	t.Helper()
	p := startProxy(t, "--require", otherRule)
	output := runClient(t, suiteChecks, argv, "suite", p.bootstrap, topic)
	told := 0
	for line := range strings.Lines(output) {
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "broker "); ok {
			told++
			checkAddress(t, p, address)
		}
	}
	if told < brokerCount {
		t.Errorf("client was told %d broker addresses, want at least %d", told, brokerCount)
	}
}

// runFenced runs an idempotent producer on a topic with a rule, and a
// transactional one that names that topic and then another.
func runFenced(t *testing.T, argv []string, topic string) {
	t.Helper()
	if direct {
		return // nothing checks conditions
	}
	p := startProxy(t, "--require", topic)
	plain := topic + "-not"
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, topic, 1)
	createTopic(t, admin, plain, franzPartitions)
	runClient(t, fencedChecks, argv, "fenced", p.bootstrap, topic, plain)
	mustHold(t, topic, "first", "third")
}

// pythonClient is the command line of clients/python, installed if need be.
func pythonClient(t *testing.T) []string {
	t.Helper()
	interpreter := installed(t, "clients/python/install", cacheDir(t, "python"), "requirements.txt")
	return []string{interpreter, "clients/python/client.py"}
}

// javaClient is the command line of clients/java with the client library that
// came with the broker.
func javaClient(jars string) []string {
	return []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(jars, "*"), "clients/java/Client.java",
	}
}

// runClient runs a client, checks that it did everything and returns what it
// printed.
func runClient(t *testing.T, checks []string, argv []string, args ...string) string {
	t.Helper()
	output := commandOutput(t, argv, args...)
	for _, check := range checks {
		if !slices.Contains(strings.Split(output, "\n"), "ok "+check) {
			t.Errorf("client did not report %q", check)
		}
	}
	return output
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
