package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

// partitions of the topics of all measures.
const partitions = 16

// measures are all there are, in the order in which they are taken.
var measures = []measure{
	bulkMeasure("bulk1k", 1<<10),
	bulkMeasure("bulk64k", 64<<10),
	oneMeasure,
	sixteenMeasure,
	consumeMeasure,
	openLoopMeasure,
	conditionalOneMeasure,
	raceMeasure(4),
	raceMeasure(16),
	pipelineMeasure(5, 1),
	pipelineMeasure(5, 10),
	pipelineMeasure(5, 50),
	pipelineMeasure(1, 50),
	pipelineMeasure(1, 100),
	pipelineMeasure(1, 500),
	pipelineMeasure(1, 1000),
	manyMeasure,
	endMeasure,
	compressedMeasure("lz4"),
	compressedMeasure("snappy"),
	compressedMeasure("zstd"),
	idleMeasure,
}

// measure is something that can be measured of several ways beside each other.
type measure struct {
	name  string // as --measure takes it
	about string // what is measured, in one line
	// setUp makes what all rounds need, its topics among it, and gives the ways
	// to be measured; ratios are of the first. It is called once. What it starts
	// ends with ctx.
	setUp func(ctx context.Context, r *run) ([]way, error)
}

// way is one column of a measure.
type way struct {
	name string
	// sample takes one sample. Round 0 is a warm-up that is not counted. No
	// other sample is taken at the same time.
	sample func(ctx context.Context, round int) (sample, error)
	// beside names other ways, of whose first figure ratios are given as well.
	beside []string
	target *target // whose profile is taken with --profiles; nil: none
}

// run is what measures have in common while they are taken.
type run struct {
	targets []*target // the first is the base of ratios
	seconds time.Duration
	prefix  string // of topics
	// replicas of each topic; 0: one.
	replicas int16
	rate     float64 // requests/s of the open loop; 0: by what the base does
	volume   volume
	// profiles is the directory for CPU profiles; empty: none are taken.
	profiles string
	log      func(format string, args ...any)
}

// volume is how much a broker is asked to carry. Zero fields stand for what a real
// one on its own is given.
type volume struct {
	filled   int64         // bytes in the topic of the consumer
	buffered int           // bytes that a producer holds at most
	warmUp   time.Duration // how long a sample runs before it counts
	many     int32         // partitions where there are to be many
	idle     int           // connections that do nothing
}

// inForce has the defaults where nothing else is asked for.
func (v volume) inForce() volume {
	return volume{cmp.Or(v.filled, filledBytes), cmp.Or(v.buffered, bulkBuffered), cmp.Or(v.warmUp, bulkWarmUp), cmp.Or(v.many, manyPartitions), cmp.Or(v.idle, idleConnections)}
}

// topicFor names the topic of a measure at a target, which fences it if it is a
// conditional one. Targets do not share topics, so that what one knows of a
// topic is not changed behind its back.
func (r *run) topicFor(measure string, t *target) string {
	return r.prefixFor(t) + "-" + measure + "-" + notInTopics.ReplaceAllString(t.name, "_")
}

var notInTopics = regexp.MustCompile(`[^A-Za-z0-9._-]`)

func (r *run) prefixFor(t *target) string {
	if t.conditional {
		return r.prefix + "-fenced"
	}
	return r.prefix
}

// perTarget is the setUp of a measure that makes an empty topic for each target
// and takes its samples by f.
func perTarget(measure string, f func(ctx context.Context, r *run, t *target, topic string) (sample, error)) func(context.Context, *run) ([]way, error) {
	return func(ctx context.Context, r *run) ([]way, error) {
		var ways []way
		for _, t := range r.targets {
			topic := r.topicFor(measure, t)
			if err := r.makeTopic(ctx, topic, partitions); err != nil {
				return nil, err
			}
			ways = append(ways, way{name: t.name, target: t, sample: func(ctx context.Context, _ int) (sample, error) {
				return f(ctx, r, t, topic)
			}})
		}
		return ways, nil
	}
}

// chosen are the measures that one of the patterns names or is a part of; all
// if there are none.
func chosen(patterns []string) ([]measure, error) {
	if len(patterns) == 0 {
		return measures, nil
	}
	used := make([]bool, len(patterns))
	var out []measure
	for _, m := range measures {
		wanted := false
		for i, pattern := range patterns {
			fits, err := path.Match(pattern, m.name)
			if err != nil {
				return nil, fmt.Errorf("%w: measure %q: %w", errUsage, pattern, err)
			}
			if fits || strings.Contains(m.name, pattern) {
				used[i], wanted = true, true
			}
		}
		if wanted {
			out = append(out, m)
		}
	}
	for i, pattern := range patterns {
		if !used[i] {
			return nil, fmt.Errorf("%w: no measure is called %q; bench list lists them", errUsage, pattern)
		}
	}
	return out, nil
}

// take takes a measure of all its ways in rounds. Which way comes first changes
// from round to round.
func take(ctx context.Context, r *run, m measure, rounds int) (measured, error) {
	out := measured{Name: m.name, About: m.about}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ways, err := m.setUp(ctx, r)
	if err != nil {
		return out, fmt.Errorf("%s: set up: %w", m.name, err)
	}
	samples := make([][]sample, len(ways))
	neighbours := watchOthers(r.targets)
	var shares []float64
	for round := range rounds + 1 {
		for i := range ways {
			i = (i + round) % len(ways)
			s, err := ways[i].sample(ctx, round)
			if err != nil {
				return out, fmt.Errorf("%s of %s in round %d: %w", m.name, ways[i].name, round, err)
			}
			if len(s) == 0 {
				return out, fmt.Errorf("%s of %s in round %d: %w", m.name, ways[i].name, round, errNothing)
			}
			share := neighbours.share()
			r.log("%s round %d of %d: %s %s; others %.0f%%", m.name, round, rounds, ways[i].name, s, share*100)
			if round > 0 {
				samples[i] = append(samples[i], s)
				shares = append(shares, share)
			}
		}
	}
	if r.profiles != "" {
		if err := profileAll(ctx, r, m.name, ways, rounds+1); err != nil {
			return out, err
		}
	}
	for i, w := range ways {
		out.Ways = append(out.Ways, measuredWay{Name: w.name, Figures: collect(samples[i], samples[0])})
	}
	if neighbours != nil {
		s := spreadOf(shares)
		out.Others = &s
	}
	out.Besides = besides(ways, samples)
	return out, nil
}
