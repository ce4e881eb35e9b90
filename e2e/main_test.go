package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// goldenDir is where TestCaptureGoldenFrames writes; it is skipped without.
var goldenDir = flag.String("golden", "", "directory to write captured Produce frames to")

// Set once by TestMain, read by every test.
var (
	program  string // path of the built offsetproxy
	brokers  *upstream
	longRuns = os.Getenv("OFFSETPROXY_E2E_LONG") != ""
	direct   = os.Getenv("OFFSETPROXY_E2E_DIRECT") != ""
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := setUpAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		status = 1
	}
	os.Exit(status)
}

func setUpAndRun(m *testing.M) (status int, err error) {
	dir, err := os.MkdirTemp("", "offsetproxy-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if !direct {
		program = filepath.Join(dir, "offsetproxy")
		if err := buildLikeTests(program); err != nil {
			return 0, err
		}
	}
	if *goldenDir != "" {
		return m.Run(), nil // has a cluster of its own
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if brokers, err = startUpstream(ctx); err != nil {
		return 0, err
	}
	defer brokers.stop()
	status = m.Run()
	return status, endClients()
}

// buildLikeTests builds the program as the tests are built, with the race detector
// or without.
func buildLikeTests(path string, flags ...string) error {
	args := append([]string{"build", "-o", path}, flags...)
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/offsetproxy")...)
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program with %q: %w\n%s", flags, err, output)
	}
	return nil
}
