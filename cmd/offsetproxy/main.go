package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	// Two: the second signal must be heard while the first is handled.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go watchSignals(signals, cancel)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// watchSignals winds the program up at the first signal and ends it at the second,
// with a code that says of no check that it failed.
func watchSignals(signals <-chan os.Signal, windUp context.CancelFunc) {
	<-signals
	windUp()
	<-signals
	os.Exit(exitInterrupted)
}

// endOnHangup has a command that a person runs in a terminal wind up when that is
// closed, unless it is to outlive it (nohup). Only serve has a file to read again.
func endOnHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
