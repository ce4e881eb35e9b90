package main

import (
	"errors"
	"time"
)

// pid is the id of a process.
type pid int

var errNoPeak = errors.New("the kernel does not tell the peak memory (VmHWM)")

// usage is what the processes of a target did between two moments.
type usage struct {
	known  bool // the target has processes
	cpu    time.Duration
	waits  int64
	reads  int64 // system calls
	writes int64
}

// meter reads what a target's processes use from its making on.
type meter struct {
	pids   []pid
	before usage
}

func (t *target) meter() (*meter, error) {
	m := &meter{pids: t.pids}
	var err error
	m.before, err = m.read()
	return m, err
}

func (m *meter) read() (usage, error) {
	all := usage{known: len(m.pids) > 0}
	for _, p := range m.pids {
		cpu, err := p.cpuTime()
		if err != nil {
			return usage{}, err
		}
		waits, err := p.waits()
		if err != nil {
			return usage{}, err
		}
		reads, writes, err := p.calls()
		if err != nil {
			return usage{}, err
		}
		all.cpu += cpu
		all.waits += waits
		all.reads += reads
		all.writes += writes
	}
	return all, nil
}

// used is what was used since the meter was made.
func (m *meter) used() (usage, error) {
	now, err := m.read()
	now.cpu -= m.before.cpu
	now.waits -= m.before.waits
	now.reads -= m.before.reads
	now.writes -= m.before.writes
	return now, err
}

// perGB are the figures of what moving so many bytes used; none for a target
// without processes.
func (u usage) perGB(bytes int64) sample {
	if !u.known {
		return nil
	}
	gb := float64(bytes) / 1e9
	return sample{
		{"CPU", "s/GB", lower, u.cpu.Seconds() / gb},
		{"waits", "1/MB", lower, float64(u.waits) / gb / 1e3},
		{"calls", "1/MB", lower, float64(u.reads+u.writes) / gb / 1e3},
	}
}

// perRequest are the figures of what so many requests used; none for a target
// without processes.
func (u usage) perRequest(n int64) sample {
	if !u.known {
		return nil
	}
	requests := float64(n)
	return sample{
		{"CPU", "µs/request", lower, u.cpu.Seconds() * 1e6 / requests},
		{"waits", "1/request", lower, float64(u.waits) / requests},
		{"calls", "1/request", lower, float64(u.reads+u.writes) / requests},
	}
}
