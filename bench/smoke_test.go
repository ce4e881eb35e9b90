package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

// built is the product as a program.
func built(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "offsetproxy")
	if output, err := exec.Command("go", "build", "-o", path, "../cmd/offsetproxy").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return path
}

// startedBeside starts the ways to an embedded broker, and names the file in which
// is what they say.
func startedBeside(t *testing.T, broker string) (s *started, said string) {
	t.Setenv(asProgram, "relay") // for what starts this program again
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	s = &started{profiled: true, serve: []string{"--broker-kind", "kfake"}}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	// One relay for all: they have tests of their own.
	wanted := (&runCmd{Only: []string{"splice", "off", "req*"}}).wanted
	if err := s.startTargets(t.Context(), broker, []program{{path: built(t)}}, "smoke", wanted, &output{stderr, stderr}); err != nil {
		t.Fatalf("%v\n%s", err, text(t, stderr.Name()))
	}
	return s, stderr.Name()
}

func text(t *testing.T, file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestEveryMeasureCanBeTaken takes a short sample of each, of all ways, and a
// profile.
func TestEveryMeasureCanBeTaken(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s, said := startedBeside(t, cluster.Addrs()[0])
	r := &run{
		targets: s.targets, seconds: 30 * time.Millisecond, prefix: "smoke", rate: 500,
		volume: volume{filled: 1 << 20, buffered: 1 << 20, warmUp: time.Millisecond, many: 20, idle: 50}, log: func(string, ...any) {},
	}
	var started []string
	for _, w := range s.targets {
		started = append(started, w.name)
	}
	if want := []string{"direct", "splice", "off", "require"}; !slices.Equal(started, want) {
		t.Fatalf("started %q, want %q", started, want)
	}
	profiles := filepath.Join(t.TempDir(), "profiles")
	for _, m := range measures {
		t.Run(m.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r.profiles = ""
			if m.name == oneMeasure.name {
				r.profiles = profiles // one measure is enough, it takes seconds
			}
			var stdout bytes.Buffer
			results, err := takeAll(ctx, r, []measure{m}, 1, &output{&stdout, &stdout})
			if err != nil {
				t.Fatalf("%v\n%s", err, text(t, said))
			}
			if len(results.Measures) != 1 || len(results.Measures[0].Ways) < 2 {
				t.Fatalf("got %+v", results)
			}
			for _, way := range results.Measures[0].Ways {
				if first := way.Figures[0]; len(first.Values) != 1 || first.Name == "" || first.Unit == "" {
					t.Errorf("%s: got %+v", way.Name, first)
				}
				if !strings.Contains(stdout.String(), "\n  "+way.Name+" ") {
					t.Errorf("no line for %s in\n%s", way.Name, stdout.String())
				}
			}
		})
	}
	var got []string
	entries, err := os.ReadDir(profiles)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if want := []string{"one-off.pb.gz", "one-require.pb.gz"}; !slices.Equal(got, want) {
		t.Errorf("profiles: got %q, want %q", got, want)
	}
}
