//go:build proof

package main

import (
	"fmt"
	"log/slog"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// proofFlags are what the program has more when it is built with the tag proof,
// for tests that show what a guard is for, and what jumping clocks do.
type proofFlags struct {
	WithoutGuard []string `help:"Take away a guard of docs/semantics.md's appendix: breaks promises." placeholder:"GUARD"`
	ClockControl *string  `help:"Have clocks be ahead by the nanoseconds in FILE: 8 bytes for the one that runs through suspend, 8 for the wall clock." placeholder:"FILE"`
}

func init() { besideFile["without-guard"], besideFile["clock-control"] = true, true }

// prove takes the guards away and puts the clocks under control.
func (f *proofFlags) prove(logger *slog.Logger) error {
	for _, name := range f.WithoutGuard {
		if err := proxy.WithoutGuard(name); err != nil {
			return usage("--without-guard %s: %w", name, err)
		}
		logger.Error("PROOF: a guard is taken away; promises will be broken", "guard", name)
	}
	if f.ClockControl == nil {
		return nil
	}
	if err := proxy.JumpClocksBy(*f.ClockControl); err != nil {
		return fmt.Errorf("--clock-control: %w", err)
	}
	logger.Error("PROOF: clocks are ahead by what a file says", "file", *f.ClockControl)
	return nil
}
