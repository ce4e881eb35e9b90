package main

import (
	"errors"
	"os"
	"testing"
	"time"
)

func TestProcessIsMeasured(t *testing.T) {
	own := &target{pids: []pid{pid(os.Getpid())}}
	m, err := own.meter()
	if err != nil {
		t.Fatal(err)
	}
	before, err := own.pids[0].cpuTime()
	if err != nil {
		t.Fatal(err)
	}
	for now := before; now == before; { // it must move on: the loop itself uses some
		if now, err = own.pids[0].cpuTime(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.ReadFile("/proc/self/stat"); err != nil {
		t.Fatal(err)
	}
	used, err := m.used()
	if err != nil {
		t.Fatal(err)
	}
	if !used.known || used.cpu <= 0 || used.cpu > time.Minute || used.reads <= 0 {
		t.Errorf("got %+v", used)
	}
}

func TestPeakMemory(t *testing.T) {
	own := pid(os.Getpid())
	if err := own.resetPeak(); err != nil {
		t.Fatal(err)
	}
	before, err := own.peak()
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	held := filler(size)
	after, err := own.peak()
	if err != nil {
		t.Fatal(err)
	}
	if after-before < size/2 || held[1] == held[0] {
		t.Errorf("a peak of %d bytes, and of %d with %d more", before, after, size)
	}
}

func TestProcessThatIsNone(t *testing.T) {
	gone := &target{pids: []pid{1 << 29}}
	if _, err := gone.meter(); err == nil {
		t.Error("no error for a process that is not there")
	}
	if err := gone.pids[0].resetPeak(); err == nil {
		t.Error("no error for its peak")
	}
	if _, err := parsePeak("Name:\tx\nVmRSS:\t5 kB\n"); !errors.Is(err, errNoPeak) {
		t.Errorf("a status without a peak: got %v", err)
	}
	if got, err := parsePeak("VmPeak:\t9 kB\nVmHWM:\t    5 kB\n"); err != nil || got != 5<<10 {
		t.Errorf("got %d, %v, want 5 KiB", got, err)
	}
}
