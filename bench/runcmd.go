package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"
)

// runCmd takes measures.
type runCmd struct {
	Target      []string `help:"A way to the broker, NAME=HOST:PORT and options as above; the first is the base of ratios." sep:"none" placeholder:"TARGET"`
	Start       bool     `help:"Start a broker, bare relays, a proxy without rules (off) and one with (require), before other targets."`
	Program     []string `help:"The offsetproxy to start; NAME=PATH to compare several." sep:"none" default:"bin/offsetproxy" placeholder:"PATH"`
	Dir         string   `help:"Where the broker of --start keeps its data, some GB; default: /dev/shm if there is one, so that no disk is measured." placeholder:"DIR"`
	Only        []string `help:"Only targets with these names, with commas, and direct; * stands for anything." placeholder:"NAME"`
	Measure     []string `help:"Only these measures, with commas: names, parts of names, or globs." placeholder:"NAME"`
	Rounds      int      `help:"Rounds, besides one to warm up." default:"9"`
	Seconds     float64  `help:"Length of a sample." default:"1"`
	Rate        float64  `help:"Requests/s of the open loop; default: half of what the first target does one by one."`
	JSON        string   `name:"json" help:"Write the results to FILE as JSON." placeholder:"FILE"`
	Profiles    string   `help:"Take a round more of each measure and put CPU profiles of the proxies that --start starts into DIR." placeholder:"DIR"`
	TopicPrefix string   `help:"What the names of topics begin with; topics of such names are deleted." default:"bench"`
}

// Run takes the measures and prints them.
func (c *runCmd) Run(ctx context.Context, out *output) (err error) {
	taken, err := chosen(c.Measure)
	if err != nil {
		return err
	}
	if c.Rounds < 1 || c.Seconds <= 0 || c.Rate < 0 {
		return fmt.Errorf("%w: --rounds and --seconds must be above 0, and --rate not below", errUsage)
	}
	r := &run{
		seconds: time.Duration(c.Seconds * float64(time.Second)), prefix: c.TopicPrefix, rate: c.Rate, profiles: c.Profiles,
		log: func(format string, args ...any) { fmt.Fprintf(out.stderr, format+"\n", args...) },
	}
	if c.Start {
		var programs []program
		for _, text := range c.Program {
			programs = append(programs, parseProgram(text))
		}
		s := &started{profiled: c.Profiles != ""}
		defer func() { err = errors.Join(err, s.stop()) }()
		broker, err := s.startBroker(ctx, cmp.Or(c.Dir, dataDir()))
		if err == nil {
			err = s.startTargets(ctx, broker, programs, c.TopicPrefix, c.wanted, out)
		}
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		r.targets = s.targets
	}
	for _, text := range c.Target {
		t, err := parseTarget(text)
		if err != nil {
			return err
		}
		if c.wanted(t.name) {
			r.targets = append(r.targets, &t)
		}
	}
	if len(r.targets) == 0 {
		return fmt.Errorf("%w: nothing to measure: give --start or --target", errUsage)
	}
	results, err := takeAll(ctx, r, taken, c.Rounds, out)
	if err != nil || c.JSON == "" {
		return err
	}
	return results.save(c.JSON)
}

// wanted reports whether --only lets a target be measured.
func (c *runCmd) wanted(name string) bool {
	for _, pattern := range c.Only {
		if fits, err := path.Match(pattern, name); fits && err == nil {
			return true
		}
	}
	return len(c.Only) == 0
}

// takeAll takes measure after measure and prints each when it is taken.
func takeAll(ctx context.Context, r *run, taken []measure, rounds int, out *output) (report, error) {
	results := report{Started: time.Now(), Rounds: rounds, Seconds: r.seconds.Seconds()}
	for _, t := range r.targets {
		results.Targets = append(results.Targets, t.name)
		for _, p := range t.pids {
			if err := p.resetPeak(); err != nil {
				return results, err
			}
		}
	}
	for _, m := range taken {
		one, err := take(ctx, r, m, rounds)
		if err != nil {
			return results, err
		}
		one.write(out.stdout)
		results.Measures = append(results.Measures, one)
	}
	for _, t := range r.targets {
		var all int64
		for _, p := range t.pids {
			peak, err := p.peak()
			if err != nil {
				return results, err
			}
			all += peak
		}
		if len(t.pids) > 0 {
			results.Memory = append(results.Memory, memory{t.name, float64(all) / (1 << 20)})
		}
	}
	writeMemory(out.stdout, results.Memory)
	return results, nil
}

// save writes the report to a file.
func (r report) save(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.writeJSON(file), file.Close())
}
