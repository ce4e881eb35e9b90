package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const description = `Measure ways to Kafka beside each other, in rounds.

A TARGET is NAME=HOST:PORT and then, with commas, what else is to be known of it:
pid=N, whose processor time and memory are read (several times for several),
admin=HOST:PORT, which serves /debug/pprof, conditional, if it fences topics whose
names begin with PREFIX-fenced, and twin=HOST:PORT, a second proxy that fences them
too, for writers that race through both. The first target is what ratios are of; it
should be the broker itself.

Examples:
    bench --start
    bench --start --measure one,sixteen --rounds 3
    bench --start --program before=/tmp/before --program after=bin/offsetproxy
    bench --target direct=127.0.0.1:9092 --target peer=127.0.0.1:9192,pid=4711`

// cli is the tree of commands.
type cli struct {
	Run    runCmd    `cmd:"" default:"withargs" help:"Take measures."`
	List   listCmd   `cmd:"" help:"List the measures."`
	Ladder ladderCmd `cmd:"" help:"Take the table of what a fence costs on three brokers."`
	Relay  relayCmd  `cmd:"" help:"Be a bare relay, to compare with."`
}

// listCmd lists the measures.
type listCmd struct{}

// Run prints a line for each.
func (listCmd) Run(out *output) error {
	for _, m := range measures {
		fmt.Fprintf(out.stdout, "%-12s %s\n", m.name, m.about)
	}
	return nil
}

// output is where a command writes.
type output struct {
	stdout io.Writer
	stderr io.Writer
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// errUsage marks what is wrong with the command line.
var errUsage = errors.New("usage")

// execute is the program but for signals.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("bench"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(&output{stdout, stderr}),
	)
	if err != nil {
		panic(err) // the command tree itself is wrong
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // help was printed
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUsage
	}
	err = parsed.Run()
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "bench: stopped by a signal: %v\n", err)
	default:
		fmt.Fprintf(stderr, "bench: %v\n", err)
	}
	return exitFailed
}
