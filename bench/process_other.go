//go:build !linux

package main

import (
	"errors"
	"time"
)

var errNotLinux = errors.New("processes can be measured on Linux only: give targets without pid")

func (p pid) cpuTime() (time.Duration, error)         { return 0, errNotLinux }
func (p pid) resetPeak() error                        { return errNotLinux }
func (p pid) peak() (bytes int64, err error)          { return 0, errNotLinux }
func (p pid) waits() (int64, error)                   { return 0, errNotLinux }
func (p pid) calls() (reads, writes int64, err error) { return 0, 0, errNotLinux }

// waitUntil sleeps by Go's timer.
func waitUntil(t time.Time) { time.Sleep(time.Until(t)) }

func machineTime() (time.Duration, error) { return 0, errNotLinux }
func children() ([]pid, error)            { return nil, errNotLinux }
