package kafkacluster

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
)

// linesInError is how much of a process's output an error carries.
const linesInError = 20

// ToolError is a program that ran and failed.
type ToolError struct {
	// Tool is the program or the Java class.
	Tool string
	// Output is the end of what it printed.
	Output string
	// Err is how it ended.
	Err error
}

// Error implements error.
func (e *ToolError) Error() string { return fmt.Sprintf("%s: %v:\n%s", e.Tool, e.Err, e.Output) }

// Unwrap gives how it ended.
func (e *ToolError) Unwrap() error { return e.Err }

// outputLog is what a process prints: appended to a file, its last lines kept,
// and searched for a marker. Safe for concurrent use.
type outputLog struct {
	marker string
	found  chan struct{} // closed by Write when the marker was seen

	mu    sync.Mutex
	file  *os.File
	seen  bool
	rest  []byte // start of a line whose end has not come yet
	lines []string
}

func newOutputLog(path, marker string) (*outputLog, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &outputLog{marker: marker, found: make(chan struct{}), file: file}, nil
}

// Write never fails, since a full disk must not look like a broken broker.
func (l *outputLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(p)
	l.rest = append(l.rest, p...)
	for {
		line, rest, complete := bytes.Cut(l.rest, []byte{'\n'})
		if !complete {
			return len(p), nil
		}
		l.lineLocked(string(line))
		l.rest = rest
	}
}

func (l *outputLog) lineLocked(line string) {
	l.lines = append(l.lines, line)
	if len(l.lines) > linesInError {
		l.lines = l.lines[1:]
	}
	if !l.seen && strings.Contains(line, l.marker) {
		l.seen = true
		close(l.found)
	}
}

func (l *outputLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(append(l.lines[:len(l.lines):len(l.lines)], string(l.rest)), "\n")
}

func (l *outputLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
