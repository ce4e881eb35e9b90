package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that a process has used, in user and in system
// mode, in all its threads and those that ended: what the kernel's clock of the
// process shows, to the nanosecond. /proc/PID/stat counts hundredths of a second.
func (p pid) cpuTime() (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of the whole process
	clock := ^int32(p)<<3 | scheduled
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", p, err)
	}
	return time.Duration(t.Nano()), nil
}

// resetPeak makes what the process holds now its peak.
func (p pid) resetPeak() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak memory of process %d: %w", p, err)
	}
	return nil
}

// peak is the most memory that the process has held since resetPeak.
func (p pid) peak() (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0, fmt.Errorf("peak memory of process %d: %w", p, err)
	}
	return parsePeak(string(text))
}

// parsePeak finds VmHWM in a status file.
func parsePeak(status string) (bytes int64, err error) {
	for line := range strings.Lines(status) {
		if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errNoPeak
}

// waits counts how often threads of the process went to sleep by themselves:
// each time costs a wake-up. Threads that have ended are missing.
func (p pid) waits() (int64, error) {
	tasks := fmt.Sprintf("/proc/%d/task", p)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", p, err)
	}
	var all int64
	for _, entry := range entries {
		text, err := os.ReadFile(tasks + "/" + entry.Name() + "/status")
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(string(text)) {
			if rest, is := strings.CutPrefix(line, "voluntary_ctxt_switches:"); is {
				n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("waits of process %d: %w", p, err)
				}
				all += n
			}
		}
	}
	return all, nil
}

// calls counts the process's system calls of the read and write family, those
// that found nothing to do included.
func (p pid) calls() (reads, writes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p))
	if err != nil {
		return 0, 0, fmt.Errorf("system calls of process %d: %w", p, err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "syscr":
			reads, err = strconv.ParseInt(value, 10, 64)
		case "syscw":
			writes, err = strconv.ParseInt(value, 10, 64)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("system calls of process %d: %w", p, err)
		}
	}
	return reads, writes, nil
}

// waitUntil sleeps in the kernel, which wakes a thread some tens of microseconds late. Go's
// timers are late by up to a millisecond where all else sleeps.
func waitUntil(t time.Time) {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		request := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&request, nil) // a signal ends it early
	}
}
