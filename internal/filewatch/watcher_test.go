package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = 20 * time.Second

// watching is a Watcher that runs.
type watching struct {
	t       *testing.T
	changes chan struct{}
}

func run(t *testing.T, files ...string) *watching {
	t.Helper()
	r := &watching{t: t, changes: make(chan struct{}, 100)}
	w := New(func() { r.changes <- struct{}{} }, files...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// told waits until it is told of a change.
func (r *watching) told() {
	r.t.Helper()
	select {
	case <-r.changes:
	case <-time.After(soon):
		r.t.Fatal("nothing was told")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatAreReplaced(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	write(t, file, "1")
	r := run(t, file, filepath.Join(dir, "b"))
	write(t, file, "2")
	r.told()
	write(t, filepath.Join(dir, "next"), "3")
	rename(t, filepath.Join(dir, "next"), file)
	r.told()
	write(t, filepath.Join(dir, "b"), "it has come")
	r.told()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.told()
}

// A mount of a ConfigMap: file -> ..data/file, ..data -> a directory, and ..data is
// swapped.
func TestLinksThatAreSwapped(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2", "3"} {
		if err := os.Mkdir(filepath.Join(dir, ".."+version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, ".."+version, "file"), version)
	}
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, filepath.Join("..data", "file"), filepath.Join(dir, "file"))
	r := run(t, filepath.Join(dir, "file"))
	for _, version := range []string{"2", "3"} {
		link(t, ".."+version, filepath.Join(dir, "..next"))
		rename(t, filepath.Join(dir, "..next"), filepath.Join(dir, "..data"))
		r.told()
	}
	// The directory that it leads to now is watched too.
	write(t, filepath.Join(dir, "..3", "file"), "4")
	r.told()
}

// What was written between New and Run is told; what is written again as it was is not.
func TestOnlyOtherContentsAreTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	write(t, file, "1")
	changes := 0
	w := New(func() { changes++ }, file)
	w.compare()
	write(t, file, "1")
	w.compare()
	if changes != 0 {
		t.Errorf("told of %d changes, want none", changes)
	}
	write(t, file, "2")
	w.compare()
	if changes != 1 {
		t.Errorf("told of %d changes, want one", changes)
	}
}
