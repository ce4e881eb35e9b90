package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/localusers"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

type checkConfigCmd struct {
	outputFlag
	Strict bool   `help:"Fail, too, if a file that is named is not there or is wrong: passwords, users, certificates."`
	File   string `arg:"" help:"The configuration file." placeholder:"FILE"`
}

// Help adds to the command's help.
func (checkConfigCmd) Help() string {
	return `Prints what will be in force, defaults included, or everything that is wrong
with its place in the file (exit status 2). Nothing is connected to. Files that are
named, with passwords, users, certificates and keys, are read: what is wrong with
them is said first, and is a failure with --strict (exit status 2).

Examples:
    offsetproxy check-config /etc/offsetproxy.yaml
    offsetproxy check-config -o json /etc/offsetproxy.yaml`
}

// checkReport is what --output json prints.
type checkReport struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems,omitempty"`
	// WouldNotStart says why serve would not start here.
	WouldNotStart []string          `json:"would_not_start,omitempty"`
	InForce       *config.Effective `json:"in_force,omitempty"`
}

// Run checks the file.
func (c *checkConfigCmd) Run(env *environment) error {
	settings, err := config.Load(c.File)
	var wrong *config.Error
	switch {
	case err != nil && !errors.As(err, &wrong):
		return &exitError{exitUsage, err}
	case err != nil && c.Output == outputJSON:
		if err := printJSON(env.stdout, checkReport{File: c.File, Problems: wrong.Problems}); err != nil {
			return err
		}
		return &exitError{code: exitUsage}
	case err != nil:
		fmt.Fprintln(env.stderr, wrong)
		what := "1 problem"
		if n := len(wrong.Problems); n > 1 {
			what = fmt.Sprintf("%d problems", n)
		}
		return &exitError{exitUsage, fmt.Errorf("%s: %s", c.File, what)}
	}
	missing := unusable(settings)
	effective := settings.Effective()
	if c.Output == outputJSON {
		err = printJSON(env.stdout, checkReport{File: c.File, OK: true, WouldNotStart: missing, InForce: &effective})
	} else {
		err = c.write(env.stdout, missing, effective)
	}
	if err == nil && c.Strict && len(missing) > 0 {
		err = &exitError{code: exitUsage}
	}
	return err
}

func (c *checkConfigCmd) write(w io.Writer, missing []string, effective config.Effective) error {
	if len(missing) == 0 {
		fmt.Fprintf(w, "%s is good. In force:\n\n", c.File)
	} else {
		fmt.Fprintf(w, "%s is well formed, but serve would not start here:\n\n", c.File)
		for _, what := range missing {
			fmt.Fprintf(w, "  %s\n", what)
		}
		fmt.Fprint(w, "\nWhere that is there, this is in force:\n\n")
	}
	_, err := effective.WriteTo(w)
	return err
}

// unusable says what is wrong with the files that settings name, so that serve would
// not start.
func unusable(settings *config.Settings) []string {
	var all []string
	if settings.Proxy.Credentials.Mechanism != proxy.NoLogin {
		if _, err := settings.Password.Read(); err != nil {
			all = append(all, err.Error())
		}
	}
	for _, file := range slices.Compact(slices.Sorted(maps.Values(settings.ListenerUsers))) {
		if _, err := localusers.Load(file); err != nil {
			all = append(all, err.Error())
		}
	}
	sides := sidesOf(settings)
	for _, side := range slices.Sorted(maps.Keys(sides)) {
		if _, err := tlsfiles.Load(sides[side]); err != nil {
			all = append(all, fmt.Sprintf("TLS of %s: %v", side, err))
		}
	}
	return all
}
