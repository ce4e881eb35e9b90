package e2e

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
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

// clockControl has the clocks of one proxy of the proof build jump. It is the path
// for --clock-control.
type clockControl string

// newClockControl makes one for clocks that are not ahead.
func newClockControl(t *testing.T) clockControl {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clocks")
	if err := os.WriteFile(path, make([]byte, 16), 0o600); err != nil {
		t.Fatal(err)
	}
	return clockControl(path)
}

// jump has the clock that runs through suspend jump by boot and the wall clock by
// wall, at once, also in a process that is frozen or not started yet. Not to be
// called concurrently. The first clock jumps by more than brokers keep idle
// connections only in a suspend, which nothing on its way survives: so jump that
// far when nothing is on its way, for example when the process has been frozen
// for a second.
func (c clockControl) jump(boot, wall time.Duration) error {
	file, err := os.OpenFile(string(c), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	shift := make([]byte, 16)
	if _, err := file.ReadAt(shift, 0); err != nil {
		return err
	}
	for i, by := range []time.Duration{max(boot, 0), wall} {
		ahead := shift[8*i:]
		binary.BigEndian.PutUint64(ahead, binary.BigEndian.Uint64(ahead)+uint64(by))
	}
	_, err = file.WriteAt(shift, 0)
	return err
}

// What lets the proof build break promises is in no other: neither flags nor code.
func TestOnlyTheProofBuildCanBreakPromises(t *testing.T) {
	besideOthers(t)
	proof := proofProgram(t)
	for _, flags := range [][]string{{"--without-guard", "identity"}, {"--clock-control", "x"}} {
		got := runProgram(t, append([]string{"serve", "--bootstrap", "127.0.0.1:1"}, flags...)...)
		if want := "unknown flag " + flags[0]; got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %d: %s, want 2: %s", flags[0], got.status, got.stderr, want)
		}
	}
	for _, name := range []string{"guardNames", "TakeAway", "JumpClocks"} {
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
	besideOthers(t)
	clock := newClockControl(t)
	topic := "proof-build"
	p := startProgram(t, proofProgram(t), "--require", topic, "--clock-control", string(clock))
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	conn.mustTell(t, topic, encodeBatch(conditional(0, "before")), wonAt(0))
	if err := clock.jump(time.Hour, -time.Hour); err != nil {
		t.Fatal(err)
	}
	conn.mustTell(t, topic, encodeBatch(conditional(0, "late")), takenAt(0, 1))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "after")), wonAt(1))
	if err := clock.jump(0, 14*time.Hour); err != nil {
		t.Fatal(err)
	}
	answer, err := conn.produce(topic, 0, encodeBatch(conditional(2, "as if 13 hours old")))
	if got, want := toldOf(answer).code, kerr.InvalidTimestamp.Code; err != nil || got != want {
		t.Errorf("got %v, %d, want %d", err, got, want)
	}
}
