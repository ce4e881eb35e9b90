package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/localusers"
	"github.com/offsetproxy/offsetproxy/proxy"
)

type checkConfigCmd struct {
	outputFlag
	File string `arg:"" help:"The configuration file." placeholder:"FILE"`
}

// Help adds to the command's help.
func (checkConfigCmd) Help() string {
	return `Prints what will be in force, defaults included, or everything that is wrong
with its place in the file (exit status 2). Nothing is connected to.

Examples:
    offsetproxy check-config /etc/offsetproxy.yaml
    offsetproxy check-config -o json /etc/offsetproxy.yaml`
}

// checkReport is what --output json prints.
type checkReport struct {
	File     string            `json:"file"`
	OK       bool              `json:"ok"`
	Problems []config.Problem  `json:"problems,omitempty"`
	InForce  *config.Effective `json:"in_force,omitempty"`
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
	if settings.Proxy.Credentials.Mechanism != proxy.NoLogin {
		if _, err := settings.Password.Read(); err != nil {
			settings.Notes = append(settings.Notes, fmt.Sprintf("serve would not start here: %v", err))
		}
	}
	for _, file := range slices.Compact(slices.Sorted(maps.Values(settings.ListenerUsers))) {
		if _, err := localusers.Load(file); err != nil {
			settings.Notes = append(settings.Notes, fmt.Sprintf("serve would not start here: %v", err))
		}
	}
	effective := settings.Effective()
	if c.Output == outputJSON {
		return printJSON(env.stdout, checkReport{File: c.File, OK: true, InForce: &effective})
	}
	fmt.Fprintf(env.stdout, "%s is good. In force:\n\n", c.File)
	_, err = effective.WriteTo(env.stdout)
	return err
}
