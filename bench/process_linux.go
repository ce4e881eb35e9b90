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

// machineTime is the time that all processors together have worked for
// processes, with what a hypervisor has taken away, to a hundredth of a second.
func machineTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	return parseMachine(string(text))
}

// parseMachine adds user, nice, system and steal of the first line of /proc/stat
// (proc(5)). Interrupts are counted for processes or for nobody, as the kernel was
// built, so they are left out.
func parseMachine(stat string) (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 for all that read it
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errNoMachine
	}
	var all time.Duration
	for at, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, errNoMachine
		}
		if at <= 2 || at == 7 {
			all += time.Duration(n) * tick
		}
	}
	return all, nil
}

// children are the processes that this one has started and that run.
func children() ([]pid, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []pid
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err == nil && parseParent(string(text)) == os.Getpid() { // else it has just ended
			all = append(all, pid(id))
		}
	}
	return all, nil
}

// parseParent finds the parent's id behind a process's name, which may have
// anything in it; 0: it is not there.
func parseParent(stat string) int {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.Atoi(fields[1])
	return id
}
