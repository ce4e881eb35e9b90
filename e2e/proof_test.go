package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// buildProof builds the program with the tag proof, beside the ordinary one: serve
// then has the flags --without-guard NAME, to take away a guard of the appendix of
// docs/semantics.md, and --clock-control HOST:PORT (see clockControl).
var buildProof = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(program), "offsetproxy-proof")
	if err := buildLikeTests(path, "-tags", "proof"); err != nil {
		return "", err
	}
	return path, nil
})

// proofProgram is the path of the program built with the tag proof.
func proofProgram(t *testing.T) string {
	t.Helper()
	needsFence(t)
	path, err := buildProof()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// clockControl has the clocks of one proxy of the proof build jump. Its value is
// for --clock-control.
type clockControl string

// newClockControl finds a port.
func newClockControl(t *testing.T) clockControl {
	t.Helper()
	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return clockControl(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// jump has the clock that runs through suspend jump by boot, which is not
// negative, and the wall clock by wall. They have when it returns. An error means
// that the proxy is not there, or frozen.
func (c clockControl) jump(boot, wall time.Duration) error {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.PostForm("http://"+string(c)+"/clock", url.Values{"boot": {boot.String()}, "wall": {wall.String()}})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("clock control: %s: %s: %w", answer.Status, text, err)
	}
	return nil
}

// What lets the proof build break promises is in no other: neither flags nor code.
func TestOnlyTheProofBuildCanBreakPromises(t *testing.T) {
	proof := proofProgram(t)
	for _, flags := range [][]string{{"--without-guard", "identity"}, {"--clock-control", "127.0.0.1:0"}} {
		got := runProgram(t, append([]string{"serve", "--bootstrap", "127.0.0.1:1"}, flags...)...)
		if want := "unknown flag " + flags[0]; got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %d: %s, want 2: %s", flags[0], got.status, got.stderr, want)
		}
	}
	for _, name := range []string{"guardNamed", "TakeAway", "JumpClocks"} {
		name = strings.ToLower(name)
		if symbols(t, program, name) > 0 {
			t.Errorf("the ordinary program has code named %s", name)
		}
		if symbols(t, proof, name) == 0 {
			t.Errorf("the proof build has no code named %s, so that this shows nothing", name)
		}
	}
	unknown := exec.CommandContext(t.Context(), proof, "serve", "--bootstrap", "127.0.0.1:1", "--without-guard", "hope")
	if output, err := unknown.CombinedOutput(); err == nil || !strings.Contains(string(output), "no guard of this name") {
		t.Errorf("a guard that there is not: got %v: %s", err, output)
	}
}

// symbols counts those of a program that hold a text, whatever its case, and have
// code.
func symbols(t *testing.T, program, text string) int {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "tool", "nm", "-type", program).CombinedOutput()
	if err != nil {
		t.Fatalf("go tool nm: %v\n%.1000s", err, output)
	}
	n := 0
	for line := range strings.Lines(strings.ToLower(string(output))) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "t" && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// The proof build is the ordinary one as long as nothing is taken away, and its
// clocks jump when told.
func TestProofBuildServes(t *testing.T) {
	clock := newClockControl(t)
	topic := "proof-build"
	p := startProgram(t, proofProgram(t), "--require", topic, "--clock-control", string(clock))
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	conn.mustTell(t, topic, encodeBatch(conditional(0, "before")), wonAt(0))
	if err := clock.jump(-time.Second, 0); err == nil {
		t.Error("the clock that never goes back did")
	}
	if err := clock.jump(time.Hour, -time.Hour); err != nil {
		t.Error(err)
	}
	if !p.output.contains("boot_ahead=1h0m0s wall_ahead=-1h0m0s") {
		t.Error("no jump was logged")
	}
	conn.mustTell(t, topic, encodeBatch(conditional(0, "late")), takenAt(0, 1))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "after")), wonAt(1))
}
