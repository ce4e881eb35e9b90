package main

import (
	"context"
	"slices"
	"time"
)

// conditionalShape is a batch of one record of 200 bytes.
var conditionalShape = batchShape{records: 1, valueBytes: 200}

var conditionalOneMeasure = measure{
	name:  "cond-one",
	about: "one writer, closed loop, a batch of one record of 200 bytes: unconditional, with a look at the log's end before each append (unsafe), and conditional",
	setUp: setUpConditionalOne,
}

func setUpConditionalOne(ctx context.Context, r *run) ([]way, error) {
	const looksFirst = "-looks-first"
	plain := r.prefix + "-cond-one"
	if err := r.makeTopic(ctx, plain, 1); err != nil {
		return nil, err
	}
	direct := r.base()
	ways := []way{
		r.loneWay(direct.name, entrant{target: direct, topic: plain, habit: blind}),
		r.loneWay(direct.name+looksFirst, entrant{target: direct, topic: plain, habit: looking}),
	}
	for _, t := range r.fencing() {
		unfenced, fenced := r.prefix+"-cond-one-"+t.name, r.topicFor("cond-one", t)
		for _, topic := range []string{unfenced, fenced} {
			if err := r.makeTopic(ctx, topic, 1); err != nil {
				return nil, err
			}
		}
		conditionally := r.loneWay(t.name, entrant{target: t, topic: fenced, habit: conditional})
		conditionally.beside = []string{direct.name + looksFirst, t.name + "-unfenced"}
		ways = append(ways, r.loneWay(t.name+"-unfenced", entrant{target: t, topic: unfenced, habit: blind}), conditionally)
	}
	return ways, nil
}

// fencing are the targets that fence topics.
func (r *run) fencing() []*target {
	var out []*target
	for _, t := range r.targets {
		if t.conditional {
			out = append(out, t)
		}
	}
	return out
}

// loneWay samples a writer of whose partition there is no other.
func (r *run) loneWay(name string, e entrant) way {
	e.shape = conditionalShape
	return way{name: name, sample: func(ctx context.Context, _ int) (sample, error) {
		m, err := e.target.meter()
		if err != nil {
			return nil, err
		}
		did, err := runRace(ctx, []entrant{e}, r.seconds)
		if err != nil {
			return nil, err
		}
		used, err := m.used()
		if err != nil {
			return nil, err
		}
		return append(did.latency(), used.perRequest(int64(len(did.appends)))...), nil
	}}
}

// latency is how long an append takes.
func (r *race) latency() sample {
	return append(latencies(r.each), figure{"rate", "appends/s", higher, r.perSecond()})
}

// acknowledgementRate is how many appends a second there are if each begins when
// the one before is acknowledged.
func (r *race) acknowledgementRate() float64 {
	slices.Sort(r.each)
	return float64(time.Second) / float64(max(quantile(r.each, .5), 1))
}
