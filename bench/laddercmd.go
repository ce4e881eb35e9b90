package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// ladderBrokers is how many brokers the ladder has, and replicas each partition.
const ladderBrokers = 3

var errNoLeader = errors.New("it has no leader")

// ladderCmd takes the ladder: unfenced beside fenced writers of many kinds, on three
// brokers that it starts.
type ladderCmd struct {
	Program    string  `help:"The offsetproxy to start." default:"bin/offsetproxy" placeholder:"PATH"`
	Writers    []int   `help:"How many writers, with commas." default:"1,4,16"`
	Partitions []int32 `help:"How many partitions, with commas." default:"1,100"`
	Records    []int   `help:"How many records in a batch, with commas." default:"1,10,100"`
	Rounds     int     `help:"Rounds, besides one to warm up." default:"3"`
	Seconds    float64 `help:"Length of a sample." default:"1"`
	JSON       string  `name:"json" help:"Write the results to FILE as JSON." placeholder:"FILE"`
}

// Run takes all rungs and prints them.
func (c *ladderCmd) Run(ctx context.Context, out *output) (err error) {
	rungs, err := c.rungs()
	if err != nil {
		return err
	}
	s, err := startLadder(ctx, c.Program, out)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &run{
		targets: s.targets, seconds: time.Duration(c.Seconds * float64(time.Second)), prefix: "bench", replicas: ladderBrokers,
		log: func(format string, args ...any) { fmt.Fprintf(out.stderr, format+"\n", args...) },
	}
	var all []measure
	for _, g := range rungs {
		all = append(all, g.measure())
	}
	results, err := takeAll(ctx, r, all, c.Rounds, out)
	if err != nil {
		return err
	}
	writeLadder(out.stdout, rungs, results.Measures)
	if c.JSON == "" {
		return nil
	}
	return results.save(c.JSON)
}

func (c *ladderCmd) rungs() ([]rung, error) {
	if c.Rounds < 1 || c.Seconds <= 0 {
		return nil, fmt.Errorf("%w: --rounds and --seconds must be above 0", errUsage)
	}
	var rungs []rung
	for _, partitions := range c.Partitions {
		for _, writers := range c.Writers {
			for _, records := range c.Records {
				if partitions < 1 || writers < 1 || records < 1 {
					return nil, fmt.Errorf("%w: writers, partitions and records must be above 0", errUsage)
				}
				rungs = append(rungs, rung{writers: writers, partitions: partitions, records: records})
			}
		}
	}
	return rungs, nil
}

// startLadder starts brokers, and a proxy with a rule.
func startLadder(ctx context.Context, program string, out *output) (s *started, err error) {
	s = &started{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	path, err := filepath.Abs(program)
	if err != nil {
		return s, err
	}
	cluster, err := kafkacluster.Start(ctx, kafkacluster.Options{Brokers: ladderBrokers, Properties: brokerProperties})
	if err != nil {
		return s, err
	}
	s.stops = append(s.stops, cluster.Stop)
	first, _, _ := strings.Cut(cluster.Bootstrap(), ",")
	s.targets = append(s.targets, &target{name: "direct", address: first, everywhere: true})
	t := &target{name: "require", conditional: true, everywhere: true}
	s.targets = append(s.targets, t)
	return s, s.startProxy(ctx, t, path, cluster.Bootstrap(), []string{"--require", "bench-fenced*"}, out.stderr)
}
