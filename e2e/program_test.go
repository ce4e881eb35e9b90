package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// Exit statuses of the program, as the README lists them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitRefused = 3
)

// ended is what a run of the program left.
type ended struct {
	status         int
	stdout, stderr string
}

// runProgram runs a command of the program to its end.
func runProgram(t *testing.T, args ...string) ended {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// needsProgram skips what tests commands, which direct mode does not build.
func needsProgram(t *testing.T) {
	t.Helper()
	if direct {
		t.Skip("runs the program")
	}
}

// TestDemoOnACluster is the check of the README on brokers that exist, and
// shows that it can fail.
func TestDemoOnACluster(t *testing.T) {
	requireKafka(t)
	needsProgram(t)
	besideOthers(t)
	got := runProgram(t, "demo", "--bootstrap", brokers.bootstrap, "--duration", "3s")
	if got.status != exitDone || !strings.Contains(got.stdout, "The check holds.") || strings.Contains(got.stdout, "WRONG") {
		t.Errorf("demo: got %+v", got)
	}
	got = runProgram(t, "demo", "--bootstrap", brokers.bootstrap, "--duration", "3s", "--unsafe")
	if got.status != exitFailed || !strings.Contains(got.stdout, "WRONG every success stands at the offset it was promised") ||
		!strings.Contains(got.stdout, "violations. The first of them:") {
		t.Errorf("demo --unsafe: got %+v", got)
	}
	admin := adminAt(t, brokers.addresses()...)
	waitFor(t, "the demo's topics are gone", 30*time.Second, func() error {
		topics, err := admin.ListTopics(t.Context())
		if err != nil {
			return err
		}
		for name := range topics {
			if strings.HasPrefix(name, "offsetproxy-demo") {
				return fmt.Errorf("topic %s is there", name)
			}
		}
		return nil
	})
}

// TestAppendAndNext are the commands that scripts use.
func TestAppendAndNext(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic = "commands"
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	run := func(command string, args ...string) ended {
		t.Helper()
		return runProgram(t, append([]string{command, "--bootstrap", p.bootstrap, "--topic", topic}, args...)...)
	}
	for i, c := range []struct {
		args []string
		want ended
	}{
		{[]string{"next"}, ended{exitDone, "0\n", ""}},
		{[]string{"append", "--expect", "0", "a"}, ended{exitDone, "0\n", ""}},
		{[]string{"append", "--expect", "0", "x"}, ended{exitRefused, "", "refused: taken: expected=0 next=1\n"}},
		{[]string{"append", "--expect", "5", "x"}, ended{exitRefused, "", "refused: not reached: expected=5 next=1\n"}},
		{[]string{"append", "--expect", "1", "--key", "k", "--header", "h=v", "b"}, ended{exitDone, "1\n", ""}},
		{[]string{"next"}, ended{exitDone, "2\n", ""}},
	} {
		if got := run(c.args[0], c.args[1:]...); got != c.want {
			t.Errorf("%d, %q: got %+v, want %+v", i, c.args, got, c.want)
		}
	}
	for i, c := range []struct {
		args   []string
		status int
		want   map[string]any
	}{
		{[]string{"next"}, exitDone, map[string]any{"next": 2.0}},
		{[]string{"append", "--expect", "2", "c"}, exitDone, map[string]any{"outcome": "appended", "expected": 2.0, "offset": 2.0}},
		{[]string{"append", "--expect", "2", "x"}, exitRefused, map[string]any{
			"outcome": "refused: taken", "expected": 2.0, "next": 3.0, "code": 1.0, "message": "expected-offset taken: expected=2 next=3",
		}},
		{[]string{"append", "--expect", "9", "x"}, exitRefused, map[string]any{
			"outcome": "refused: not reached", "expected": 9.0, "next": 3.0, "code": 1.0, "message": "expected-offset not reached: expected=9 next=3",
		}},
	} {
		got := run(c.args[0], append(c.args[1:], "--output", "json")...)
		var report map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.status != c.status {
			t.Errorf("JSON %d, %q: got %+v, %v", i, c.args, got, err)
		}
		if c.args[0] == "append" && report["append_id"] == "" {
			t.Errorf("JSON %d, %q: no append_id", i, c.args)
		}
		delete(report, "append_id")
		c.want["topic"], c.want["partition"] = topic, 0.0
		if !maps.Equal(report, c.want) {
			t.Errorf("JSON %d, %q: got %v, want %v", i, c.args, report, c.want)
		}
	}
	mustHold(t, topic, "a", "b", "c")
}

// TestServeFromAFile takes rules from a file; the first that matches counts.
func TestServeFromAFile(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const free, fenced = "file-free", "file-fenced"
	p := newProxyProcess(t)
	file := filepath.Join(t.TempDir(), "serve.yaml")
	settings := fmt.Sprintf(`
bootstrap: [%s]
listen: %s
broker_ports: %s
brokers:
  kind: %s
rules:
  - topics: %s
    mode: off
  - topics: "file-*"
    mode: require
`, strings.Join(brokers.addresses(), ", "), p.bootstrap, p.brokerPorts(), brokers.kind(), free)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runProgram(t, "check-config", file); got.status != exitDone {
		t.Fatalf("check-config: %+v", got)
	}
	p.start(t, program, "--config", file)
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, free, 1)
	createTopic(t, admin, fenced, 1)
	dialLeader(t, p, free).mustTell(t, free, encodeBatch(rawRecord{value: "a"}), wonAt(0))
	conn := dialLeader(t, p, fenced)
	conn.mustTell(t, fenced, encodeBatch(conditional(0, "a")), wonAt(0))
	conn.mustTell(t, fenced, encodeBatch(conditional(0, "x")), takenAt(0, 1))
}

// TestServeAfterARestart reads what it knew from the brokers, after an orderly
// end and after none.
func TestServeAfterARestart(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic = "restart"
	p := newProxyProcess(t)
	start := func() *rawConn {
		t.Helper()
		p.start(t, program, "--bootstrap", brokers.bootstrap, "--listen", p.bootstrap,
			"--broker-ports", p.brokerPorts(), "--broker-kind", brokers.kind(), "--require", topic)
		return dialLeader(t, p, topic)
	}
	createTopic(t, adminAt(t, brokers.addresses()...), topic, 1)
	start().mustTell(t, topic, encodeBatch(conditional(0, "a"), conditional(1, "b")), wonAt(0))
	p.stop(t)
	conn := start()
	conn.mustTell(t, topic, encodeBatch(conditional(1, "x")), takenAt(1, 2))
	conn.mustTell(t, topic, encodeBatch(conditional(2, "c")), wonAt(2))
	p.kill(t)
	conn = start()
	conn.mustTell(t, topic, encodeBatch(conditional(3, "d")), wonAt(3))
	conn.mustTell(t, topic, encodeBatch(conditional(2, "x")), takenAt(2, 4))
	mustHold(t, topic, "a", "b", "c", "d")
}
