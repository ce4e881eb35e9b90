package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// command is a program that runs, of ours or another's.
type command struct {
	process *os.Process
	end     <-chan ended // one value, when it has ended
}

// startCommand runs a command line until it ends or the test does.
func startCommand(t *testing.T, argv []string) *command {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan ended, 1)
	go func() {
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			stderr.WriteString(err.Error())
		}
		end <- ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}()
	return &command{cmd.Process, end}
}
