package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// faultLog counts faults by kind, and writes each with its time to a file, a JSON
// object a line.
type faultLog struct {
	mu     sync.Mutex
	began  time.Time
	file   *os.File
	counts map[string]int
}

func newFaultLog(t *testing.T, path string) *faultLog {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &faultLog{began: time.Now(), file: file, counts: map[string]int{}}
}

// fault is a line of the file.
type fault struct {
	At    time.Time `json:"at"`
	Since float64   `json:"since"` // the run began, s
	Kind  string    `json:"kind"`
	What  string    `json:"what,omitempty"`
}

// note counts and writes one.
func (l *faultLog) note(kind, format string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[kind]++
	line, err := json.Marshal(fault{now, now.Sub(l.began).Seconds(), kind, fmt.Sprintf(format, args...)})
	if err == nil {
		_, _ = l.file.Write(append(line, '\n'))
	}
}

// begin is when the workload does: times count from here.
func (l *faultLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
}

// frame notes what a relay does to a request.
func (l *faultLog) frame(side string, r relayed, v verdict, correlationID uint32) {
	kind := fmt.Sprintf("%s: %v", side, v.deed)
	if v.deed == duplicate && !strings.HasSuffix(v.twin, fmt.Sprintf(":%d", r.port)) {
		kind += " (another proxy)"
	}
	l.note(kind, "port %d, correlation id %d, produce %d, after %v", r.port, correlationID, r.produce, v.after)
}

// table lists the kinds with their counts.
func (l *faultLog) table() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text strings.Builder
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(l.counts)) {
		fmt.Fprintf(&text, "  %6d  %s\n", l.counts[kind], kind)
		total += l.counts[kind]
	}
	fmt.Fprintf(&text, "  %6d  in all", total)
	return text.String()
}

// missing are those of the kinds that have not happened.
func (l *faultLog) missing(kinds []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return l.counts[kind] > 0 })
}
