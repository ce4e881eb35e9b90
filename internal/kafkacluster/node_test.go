package kafkacluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// orphanEnv makes the test binary a program that starts a node and dies
// without stopping it.
const orphanEnv = "KAFKACLUSTER_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if output := os.Getenv(orphanEnv); output != "" {
		n := shellNode(output, "echo '"+startedMarker+"'; exec sleep 300")
		if err := n.start(context.Background()); err != nil {
			panic(err)
		}
		fmt.Println(n.process.pid)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(m.Run())
}

func shellNode(output, script string) *node {
	return &node{id: 7, output: output, command: []string{"/bin/sh", "-c", script}}
}

func TestNodeStartKillAndStartAgain(t *testing.T) {
	output := filepath.Join(t.TempDir(), "7.log")
	n := shellNode(output, "echo 'x "+startedMarker+" y'; exec sleep 300")
	for life := range 2 {
		if err := n.start(t.Context()); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		if err := n.start(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("start of a running node: got %v, want ErrRunning", err)
		}
		if err := n.pause(); err != nil {
			t.Error(err)
		}
		if err := n.resume(); err != nil {
			t.Error(err)
		}
		if err := n.pause(); err != nil {
			t.Error(err)
		}
		pid := n.process.pid
		n.kill()
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process after kill: got %v, want ESRCH", err)
		}
		if err := n.pause(); !errors.Is(err, ErrNotRunning) {
			t.Errorf("pause of a killed node: got %v, want ErrNotRunning", err)
		}
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(text), startedMarker), 2; got != want {
		t.Errorf("lives in the output file: got %d, want %d", got, want)
	}
}

func TestFailedStartTellsTheLastLines(t *testing.T) {
	n := shellNode(filepath.Join(t.TempDir(), "7.log"), "seq 100; printf 'no newline'; exit 3")
	err := n.start(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("got %v, want exit status 3", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if got, want := lines[1], "81"; got != want {
		t.Errorf("first line told: got %q, want %q", got, want)
	}
	if got, want := lines[len(lines)-1], "no newline"; got != want {
		t.Errorf("last line told: got %q, want %q", got, want)
	}
	if err := n.resume(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("node after a failed start: got %v, want ErrNotRunning", err)
	}
}

func TestNodeThatEndedByItselfGetsNoSignal(t *testing.T) {
	n := shellNode(filepath.Join(t.TempDir(), "7.log"), "exit 0")
	p, err := n.launch()
	if err != nil {
		t.Fatal(err)
	}
	<-p.gone
	if err := n.pause(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want ErrNotRunning", err)
	}
	n.kill()
}

func TestNodeDiesWithTheProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"="+filepath.Join(t.TempDir(), "7.log"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(stdout), &pid); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !gone(pid, 10*time.Second) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("process %d outlived the program that started it", pid)
	}
}

// gone reports whether a process that is not our child ended in time; there is
// nothing to wait on but its entry in the process table.
func gone(pid int, within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(state), ") Z ") {
			return true
		}
	}
	return false
}
