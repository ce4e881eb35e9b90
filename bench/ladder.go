package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ladderDepth is how many requests a writer has in flight to each broker, as
// clients have by default.
const ladderDepth = 5

// rung is one line of the ladder.
type rung struct {
	writers    int
	partitions int32
	records    int // in a batch
}

func (g rung) name() string {
	return fmt.Sprintf("rf3-%dw-%dp-%dr", g.writers, g.partitions, g.records)
}

// habit is how the writers of a fenced topic append: those who share a partition
// say "end".
func (g rung) habit() habit {
	if g.partitions == 1 && g.writers > 1 {
		return ending
	}
	return conditional
}

// measure has three ways: the brokers themselves, a proxy and a topic without a
// rule, and a topic under it.
func (g rung) measure() measure {
	return measure{
		name:  g.name(),
		about: fmt.Sprintf("%d writers with %d requests in flight to each broker, %d partitions, batches of %d records of 200 bytes", g.writers, ladderDepth, g.partitions, g.records),
		setUp: func(ctx context.Context, r *run) ([]way, error) {
			var ways []way
			add := func(t *target, name, topic string, h habit) error {
				if err := r.makeTopic(ctx, topic, g.partitions); err != nil {
					return err
				}
				e := entrant{target: t, topic: topic, habit: h, shape: batchShape{records: g.records, valueBytes: 200}}
				ways = append(ways, way{name: name, sample: func(ctx context.Context, _ int) (sample, error) { return r.sampleRung(ctx, g, e) }})
				return nil
			}
			if err := add(r.base(), r.base().name, r.prefix+"-"+g.name(), blind); err != nil {
				return nil, err
			}
			for _, t := range r.fencing() {
				unfenced := t.name + "-unfenced"
				if err := add(t, unfenced, r.prefix+"-"+g.name()+"-"+t.name, blind); err != nil {
					return nil, err
				}
				if err := add(t, t.name, r.topicFor(g.name(), t), g.habit()); err != nil {
					return nil, err
				}
				ways[len(ways)-1].beside = []string{unfenced}
			}
			return ways, nil
		},
	}
}

// sampleRung has the writers append for a while.
func (r *run) sampleRung(ctx context.Context, g rung, e entrant) (sample, error) {
	leaders, err := e.target.leaders(ctx, e.topic)
	if err != nil {
		return nil, err
	}
	var pipelines []pipeline
	for w := range g.writers {
		mine := map[*target][]int32{}
		for partition, leader := range leaders {
			if g.partitions == 1 || partition%g.writers == w {
				mine[leader] = append(mine[leader], int32(partition))
			}
		}
		for leader, on := range mine {
			p := pipeline{entrant: e, on: on, depth: ladderDepth}
			p.target = leader
			pipelines = append(pipelines, p)
		}
	}
	m, err := e.target.meter()
	if err != nil {
		return nil, err
	}
	did := make([]pipelined, len(pipelines))
	errs := make([]error, len(pipelines))
	begun := time.Now()
	var group sync.WaitGroup
	for i, p := range pipelines {
		group.Go(func() { did[i], errs[i] = p.run(ctx, r.seconds) })
	}
	group.Wait()
	took := time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	records := 0
	for i := range did {
		if errs[i] != nil {
			return nil, errs[i]
		}
		records += did[i].records
	}
	if err := r.empty(ctx, e.topic); err != nil {
		return nil, err
	}
	return append(sample{{"rate", "records/s", higher, float64(records) / took.Seconds()}}, used.perRequest(int64(records/g.records))...), nil
}

// leaders are the brokers of a topic's partitions, at their addresses on the way
// of the target. Partitions of one broker share one. Of a new topic brokers hear one
// after the other.
func (t *target) leaders(ctx context.Context, topic string) ([]*target, error) {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	for {
		leaders, err := t.leadersNow(ctx, topic)
		if !errors.Is(err, errNoLeader) {
			return leaders, err
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return nil, err
		}
	}
}

func (t *target) leadersNow(ctx context.Context, topic string) ([]*target, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	metadata, err := kadm.NewClient(client).Metadata(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("leaders of %s: %w", topic, err)
	}
	brokers := map[int32]*target{}
	for _, b := range metadata.Brokers {
		brokers[b.NodeID] = &target{name: fmt.Sprintf("%s-%d", t.name, b.NodeID), address: fmt.Sprintf("%s:%d", b.Host, b.Port)}
	}
	out := make([]*target, len(metadata.Topics[topic].Partitions))
	for _, p := range metadata.Topics[topic].Partitions {
		leader := brokers[p.Leader]
		if leader == nil || int(p.Partition) >= len(out) {
			return nil, fmt.Errorf("partition %d of %s, led by %d among %d brokers: %w", p.Partition, topic, p.Leader, len(brokers), errNoLeader)
		}
		out[p.Partition] = leader
	}
	return out, nil
}

// writeLadder prints the rungs as one table in Markdown: medians, and ratios within
// rounds.
func writeLadder(w io.Writer, rungs []rung, taken []measured) {
	fmt.Fprint(w, "\n| writers | partitions | records a batch | direct | through the proxy, unfenced | fenced | fenced of unfenced |\n|---|---|---|---|---|---|---|\n")
	for i, m := range taken {
		fmt.Fprintf(w, "| %d | %d | %d |", rungs[i].writers, rungs[i].partitions, rungs[i].records)
		for _, way := range m.Ways {
			fmt.Fprintf(w, " %s |", thousands(way.Figures[0].Median))
		}
		for _, b := range m.Besides {
			fmt.Fprintf(w, " %s |", number(b.Median))
		}
		fmt.Fprintln(w)
	}
}

// thousands writes a rate with commas and three digits that say something.
func thousands(v float64) string {
	unit := 1.0
	for v/unit >= 1000 {
		unit *= 10
	}
	digits := strconv.FormatInt(int64(v/unit+.5)*int64(unit), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
