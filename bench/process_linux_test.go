package main

import (
	"errors"
	"os"
	"runtime"
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

// What this process uses is not what others use, and what a child that has just
// been started uses is not either.
func TestOthersAreNotOurs(t *testing.T) {
	o := watchOthers(nil)
	if o == nil {
		t.Fatal("nothing can be seen of others")
	}
	begun, err := pid(os.Getpid()).cpuTime()
	if err != nil {
		t.Fatal(err)
	}
	if o.ours[pid(os.Getpid())] <= 0 || o.ours[pid(os.Getpid())] > begun {
		t.Errorf("own time %v, then %v", o.ours[pid(os.Getpid())], begun)
	}
	// Another second of the machine, of which this process had the half.
	o.busy, o.at = o.busy-time.Second, o.at.Add(-time.Second)
	o.ours[pid(os.Getpid())] -= time.Second / 2
	if got, least := o.share(), .4/float64(runtime.NumCPU()); got < least {
		t.Errorf("a share of %v, want %v at least", got, least)
	}
	if got := (*others)(nil).share(); got != -1 {
		t.Errorf("where nothing is seen: got %v, want -1", got)
	}
}

func TestTimesOfProc(t *testing.T) {
	got, err := parseMachine("cpu  100 20 3 999999 999 7 8 50 1000 1000\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if want := 1730 * time.Millisecond; err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, stat := range []string{"", "cpu 1 2", "cpu 1 2 3 x 5 6 7 8 9", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, err := parseMachine(stat); !errors.Is(err, errNoMachine) {
			t.Errorf("%q: got %v", stat, err)
		}
	}
	for stat, want := range map[string]int{"7 (a) S 12 7": 12, "7 (a) b) (c) R 3 1": 3, "7 (a)": 0, "": 0} {
		if got := parseParent(stat); got != want {
			t.Errorf("%q: got %d, want %d", stat, got, want)
		}
	}
}
