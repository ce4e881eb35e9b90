package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Exit codes, documented in the help.
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitRefused   = 3
	exitUnknown   = 4
	exitElsewhere = 5
	// exitCut is of a drain that had to cut requests off.
	exitCut = 6
	// exitInterrupted is what shells report of who died of SIGINT.
	exitInterrupted = 130
)

// environment is what a command may touch of the world.
type environment struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// exitError ends the program with a code. A nil err means that everything was
// said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as one of the command line or the configuration.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the whole program but for signals. When ctx ends, the command winds
// up: serve and dev drain, the others stop.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("offsetproxy"),
		kong.Description(description),
		kong.ExplicitGroups(flagGroups),
		helpVars(),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 90, NoExpandSubcommands: true}),
	)
	if err != nil {
		panic(err) // the command tree itself is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // help was printed
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "offsetproxy: %v\n", err)
		command := "offsetproxy"
		var wrong *kong.ParseError
		if errors.As(err, &wrong) && wrong.Context != nil {
			if selected := wrong.Context.Selected(); selected != nil {
				command += " " + selected.Name
			}
		}
		fmt.Fprintf(stderr, "See %s --help.\n", command)
		return exitUsage
	}
	env := &environment{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr}
	err = parsed.Run(env, parsed)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		if exit.err == nil {
			return code
		}
	}
	fmt.Fprintf(stderr, "offsetproxy: %v\n", err)
	if hint := advice(err); hint != "" {
		fmt.Fprintln(stderr, hint)
	}
	return code
}
