package main

import (
	"context"
	"fmt"
)

const endingClients = 50

var endMeasure = measure{
	name:  "end-50",
	about: fmt.Sprintf("%d clients say \"end\" to one fenced partition; the floor is one append after the other, as fast as one conditional writer is acknowledged (1/p50)", endingClients),
	setUp: setUpEnd,
}

func setUpEnd(ctx context.Context, r *run) ([]way, error) {
	var ways []way
	for _, t := range r.fencing() {
		topic := r.topicFor("end-50", t)
		if err := r.makeTopic(ctx, topic, 1); err != nil {
			return nil, err
		}
		one := []entrant{{target: t, topic: topic, habit: conditional, shape: conditionalShape}}
		var all []entrant
		for range endingClients {
			all = append(all, entrant{target: t, topic: topic, habit: ending, shape: conditionalShape})
		}
		floor := way{name: t.name + "-1/p50", sample: func(ctx context.Context, _ int) (sample, error) {
			did, err := runRace(ctx, one, r.seconds)
			if err != nil {
				return nil, err
			}
			return sample{
				{"rate", "appends/s", higher, did.acknowledgementRate()},
				{"one writer", "appends/s", higher, did.perSecond()}, // a slow one in a hundred shows here
			}, nil
		}}
		ways = append(ways, floor, way{name: t.name, target: t, beside: []string{floor.name}, sample: func(ctx context.Context, _ int) (sample, error) {
			return sampleEnding(ctx, r, t, all)
		}})
	}
	return ways, nil
}

func sampleEnding(ctx context.Context, r *run, t *target, all []entrant) (sample, error) {
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	did, err := runRace(ctx, all, r.seconds)
	if err != nil {
		return nil, err
	}
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	if err := r.empty(ctx, all[0].topic); err != nil {
		return nil, err
	}
	latency := did.latency()
	return append(sample{latency[2], latency[0], latency[1]}, used.perRequest(int64(len(did.appends)))...), nil
}
