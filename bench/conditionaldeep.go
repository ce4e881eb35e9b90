package main

import (
	"context"
	"fmt"
)

// pipelineMeasure is one writer with so many batches in flight, of so many records
// each, every one conditional.
func pipelineMeasure(depth, records int) measure {
	name := fmt.Sprintf("cond-%dx%d", depth, records)
	return measure{
		name:  name,
		about: fmt.Sprintf("one writer, one partition, %d batches in flight of %d records of 200 bytes, every record conditional; direct has one batch in flight, as a partition of the fence has", depth, records),
		setUp: func(ctx context.Context, r *run) ([]way, error) {
			plain := r.prefix + "-" + name
			if err := r.makeTopic(ctx, plain, 1); err != nil {
				return nil, err
			}
			p := pipeline{
				entrant: entrant{target: r.base(), topic: plain, habit: blind, shape: batchShape{records: records, valueBytes: 200}},
				on:      []int32{0}, depth: 1,
			}
			ways := []way{r.pipelineWay(r.base().name, p)}
			if p.depth = depth; depth > 1 {
				ways = append(ways, r.pipelineWay(fmt.Sprintf("%s-%d-in-flight", r.base().name, depth), p))
			}
			for _, t := range r.fencing() {
				p.target, p.topic, p.habit = t, r.topicFor(name, t), conditional
				if err := r.makeTopic(ctx, p.topic, 1); err != nil {
					return nil, err
				}
				ways = append(ways, r.pipelineWay(t.name, p))
			}
			return ways, nil
		},
	}
}

func (r *run) pipelineWay(name string, p pipeline) way {
	return way{name: name, sample: func(ctx context.Context, _ int) (sample, error) {
		m, err := p.target.meter()
		if err != nil {
			return nil, err
		}
		did, err := p.run(ctx, r.seconds)
		if err != nil {
			return nil, err
		}
		used, err := m.used()
		if err != nil {
			return nil, err
		}
		if err := r.empty(ctx, p.topic); err != nil {
			return nil, err
		}
		return append(sample{{"rate", "records/s", higher, did.perSecond()}}, used.perRequest(int64(did.records/p.shape.records))...), nil
	}}
}
