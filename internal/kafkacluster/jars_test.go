package kafkacluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeMaven stands in for mvn: it records a call, writes the jars slowly in two
// steps and does what the second line says at the end.
func fakeMaven(t *testing.T, end string) (calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	script := `#!/bin/sh
echo call >>` + calls + `
for arg; do case $arg in -DoutputDirectory=*) to=${arg#*=};; esac; done
mkdir -p "$to"; echo a >"$to/a.jar"; sleep 0.1; echo b >"$to/b.jar"
` + end + "\n"
	for _, name := range []string{"mvn", "java"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("JAVA_HOME", "")
	t.Setenv("KAFKA_JARS", filepath.Join(dir, "cache"))
	return calls
}

func TestJarsAreFetchedOnceAndWhole(t *testing.T) {
	calls := fakeMaven(t, "exit 0")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			dir, err := FetchJars(context.Background(), "9.9.9")
			if err != nil {
				t.Error(err)
				return
			}
			if jars, _ := filepath.Glob(filepath.Join(dir, "*.jar")); len(jars) != 2 {
				t.Errorf("got %v, want both jars", jars)
			}
		})
	}
	group.Wait()
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(text), "call"), 1; got != want {
		t.Errorf("downloads: got %d, want %d", got, want)
	}
}

func TestFailedFetchLeavesNothingBehind(t *testing.T) {
	fakeMaven(t, "echo could not resolve; exit 1")
	_, err := FetchJars(t.Context(), "9.9.9")
	var failed *ToolError
	if !errors.As(err, &failed) || failed.Output != "could not resolve" || failed.Tool != "mvn" {
		t.Errorf("got %v, want Maven's own words in a *ToolError", err)
	}
	left, err := os.ReadDir(os.Getenv("KAFKA_JARS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if entry.Name() != ".lock" {
			t.Errorf("left behind: %s", entry.Name())
		}
	}
}

func TestVersionMustLookLikeOne(t *testing.T) {
	for _, version := range []string{"", "..", "4", "4.1.1/x", "4.1</version>"} {
		if _, err := FetchJars(t.Context(), version); err == nil {
			t.Errorf("version %q was taken", version)
		}
	}
}
