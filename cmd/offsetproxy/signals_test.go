package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// patience bounds what should happen soon.
const patience = 30 * time.Second

// process is the program in a process of its own, for its signals.
type process struct {
	*background
	cmd *exec.Cmd
}

// startProcess runs the program; its lines are those of standard error.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{
		background: &background{lines: make(chan string, 1000), code: make(chan int, 1)},
		cmd:        exec.Command(os.Args[0], args...),
	}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			p.lines <- scan.Text()
		}
		close(p.lines)
		_ = p.cmd.Wait()
		p.code <- p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		for range p.lines {
		}
	})
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// exit gives the exit code, soon.
func (b *background) exit(t *testing.T) int {
	t.Helper()
	timeout := time.After(patience)
	lines := b.lines
	for {
		select {
		case code := <-b.code:
			return code
		case _, open := <-lines:
			if !open {
				lines = nil
			}
		case <-timeout:
			t.Fatal("did not end")
		}
	}
}

func has(parts ...string) func(string) bool {
	return func(line string) bool {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				return false
			}
		}
		return true
	}
}

// An orchestrator that stops a proxy whose cluster is down must not count it as
// a crash.
func TestSIGTERMBeforeABrokerAnswers(t *testing.T) {
	silent := kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		for _, ok := c.Next(); ok; _, ok = c.Next() {
		}
	})
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := startProcess(t, "serve", "--bootstrap", silent.Addr(), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
		p.await(t, has("admin endpoints open"))
		p.signal(t, s)
		p.await(t, has("msg=stopped"))
		if code := p.exit(t); code != exitOK {
			t.Errorf("%v: exit code %d, want %d", s, code, exitOK)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	p := startProcess(t, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0", "--log-format", "json", "--drain-timeout", "1h")
	client := kafkatest.Dial(t, p.awaitServing(t).Listen)
	client.Send(1, kmsg.NewPtrListGroupsRequest())
	<-broker.arrived
	p.signal(t, syscall.SIGTERM)
	p.await(t, has(`"msg":"draining"`))
	p.signal(t, syscall.SIGTERM)
	if code := p.exit(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
}

// A process that cannot serve says so, does not become ready, and still ends in
// order.
func TestNotReadyWithoutABrokerPort(t *testing.T) {
	broker := newScriptedBroker(t, 5)
	file := filepath.Join(t.TempDir(), "offsetproxy.yaml")
	text := "bootstrap: " + broker.server.Addr() + "\nlisten: 127.0.0.1:0\nbroker_ports: 1-2\nmetrics: {listen: 127.0.0.1:0}\nlog: {format: json}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, true, "serve", "--config", file)
	admin := parseLine(t, b.await(t, has("admin endpoints open"))).Admin
	b.await(t, has("every broker is hidden"))
	if code, _ := get(t, "http://"+admin+"/readyz"); code != 503 {
		t.Errorf("/readyz: %d, want 503", code)
	}
	b.stop()
	for line := range b.lines {
		if has(`"msg":"serving"`)(line) {
			t.Errorf("said %s", line)
		}
	}
	if code := <-b.code; code != exitOK {
		t.Errorf("exit code %d, want %d", code, exitOK)
	}
}
