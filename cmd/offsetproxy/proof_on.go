//go:build proof

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// proofFlags are what the program has more when it is built with the tag proof,
// for tests that show what a guard is for, and what jumping clocks do.
type proofFlags struct {
	WithoutGuard []string `help:"Take away a guard of docs/semantics.md's appendix: breaks promises." placeholder:"GUARD"`
	ClockControl *string  `help:"Have clocks jump by POST /clock?boot=TIME&wall=TIME here." placeholder:"HOST:PORT"`
}

func init() { besideFile["without-guard"], besideFile["clock-control"] = true, true }

// prove takes the guards away and listens for jumps of the clocks until end is
// called.
func (f *proofFlags) prove(logger *slog.Logger) (end func(), err error) {
	for _, name := range f.WithoutGuard {
		if err := proxy.WithoutGuard(name); err != nil {
			return nil, usage("--without-guard %s: %w", name, err)
		}
		logger.Error("PROOF: a guard is taken away; promises will be broken", "guard", name)
	}
	if f.ClockControl == nil {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", *f.ClockControl)
	if err != nil {
		return nil, fmt.Errorf("--clock-control: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /clock", func(w http.ResponseWriter, r *http.Request) { jumpClocks(w, r, logger) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: adminHeaderTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("clock control failed", "err", err)
		}
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// jumpClocks has the clocks jump by boot, which is not negative, and by wall. The
// answer comes after the jump.
func jumpClocks(w http.ResponseWriter, r *http.Request, logger *slog.Logger) {
	var by [2]time.Duration
	for i, name := range []string{"boot", "wall"} {
		text := r.FormValue(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || name == "boot" && d < 0 {
			http.Error(w, name+" must be a length of time, and boot not negative", http.StatusBadRequest)
			return
		}
		by[i] = d
	}
	boot, wall := proxy.JumpClocks(by[0], by[1])
	logger.Error("PROOF: clocks jumped", "boot", by[0], "wall", by[1], "boot_ahead", boot, "wall_ahead", wall)
	fmt.Fprintf(w, "boot %v wall %v\n", boot, wall)
}
