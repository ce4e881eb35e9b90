package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// disturbed is the share of the machine from which on what others use is worth
// a line.
const disturbed = .1

var errNoMachine = errors.New("the kernel does not tell the processor time of the machine (/proc/stat)")

// others watches what processes use that this program has not started, and that
// are no target's: a sample beside a busy neighbour says little.
type others struct {
	targets []*target
	at      time.Time
	busy    time.Duration
	ours    map[pid]time.Duration
}

// watchOthers begins to. It is nil where nothing can be seen.
func watchOthers(targets []*target) *others {
	o := &others{targets: targets}
	var err error
	if o.at, o.busy, o.ours, err = o.read(); err != nil {
		return nil
	}
	return o
}

func (o *others) read() (at time.Time, busy time.Duration, ours map[pid]time.Duration, err error) {
	started, err := children()
	if err != nil {
		return
	}
	all := append(started, pid(os.Getpid()))
	for _, t := range o.targets {
		all = append(all, t.pids...)
	}
	ours = map[pid]time.Duration{}
	for _, p := range all {
		if used, err := p.cpuTime(); err == nil { // else it has just ended
			ours[p] = used
		}
	}
	busy, err = machineTime()
	return time.Now(), busy, ours, err
}

// share is what others used since the last time, as a share of the whole
// machine; −1 where that cannot be seen.
func (o *others) share() float64 {
	if o == nil {
		return -1
	}
	at, busy, ours, err := o.read()
	if err != nil {
		return -1
	}
	theirs, took := busy-o.busy, at.Sub(o.at)
	for p, used := range ours {
		theirs -= used - o.ours[p]
	}
	o.at, o.busy, o.ours = at, busy, ours
	return max(0, theirs.Seconds()/(took.Seconds()*float64(runtime.NumCPU())))
}

// writeOthers warns of neighbours.
func writeOthers(w io.Writer, s *spread) {
	if s != nil && s.Max >= disturbed {
		fmt.Fprintf(w, "  disturbed: other processes used %.0f%% of the machine (%.0f%%..%.0f%%)\n", s.Median*100, s.Min*100, s.Max*100)
	}
}
