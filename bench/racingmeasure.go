package main

import (
	"context"
	"errors"
	"fmt"
)

// raceMeasure is what writers do that race for the places of one partition.
func raceMeasure(n int) measure {
	name := fmt.Sprintf("race-%d", n)
	return measure{
		name:  name,
		about: fmt.Sprintf("%d writers race for the places of one partition, each in a closed loop, beside one that has it for itself; those that look first need no fence and get other offsets than they expected, which do not count", n),
		setUp: func(ctx context.Context, r *run) ([]way, error) { return setUpRace(ctx, r, name, n) },
	}
}

func setUpRace(ctx context.Context, r *run, name string, n int) ([]way, error) {
	var ways []way
	for _, t := range r.fencing() {
		topic := r.topicFor(name, t)
		if err := r.makeTopic(ctx, topic, 1); err != nil {
			return nil, err
		}
		e := entrant{topic: topic, habit: conditional}
		ways = append(ways, r.raceWay(t.name+"-1", "", e, 1, t), r.raceWay(fmt.Sprintf("%s-%d", t.name, n), t.name+"-1", e, n, t))
		twin, err := t.twinOf(ctx)
		if errors.Is(err, errNoTwin) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the second proxy of %s: %w", t.name, err)
		}
		ways = append(ways, r.raceWay(fmt.Sprintf("%s-%d-through-2", t.name, n), t.name+"-1", e, n, t, twin))
	}
	topic := r.prefix + "-" + name
	if err := r.makeTopic(ctx, topic, 1); err != nil {
		return nil, err
	}
	direct, e := r.base(), entrant{topic: topic, habit: looking}
	lone := direct.name + "-looks-first-1"
	return append(ways, r.raceWay(lone, "", e, 1, direct), r.raceWay(fmt.Sprintf("%s-looks-first-%d", direct.name, n), lone, e, n, direct)), nil
}

// raceWay samples n writers, dealt out to the targets in turn; base is the way of
// one alone.
func (r *run) raceWay(name, base string, e entrant, n int, through ...*target) way {
	e.shape = conditionalShape
	entrants := make([]entrant, n)
	all := &target{}
	for i := range entrants {
		e.target = through[i%len(through)]
		entrants[i] = e
	}
	for _, t := range through {
		all.pids = append(all.pids, t.pids...)
	}
	w := way{name: name, sample: func(ctx context.Context, _ int) (sample, error) { return r.sampleRace(ctx, entrants, all) }}
	if base != "" {
		w.beside, w.target = []string{base}, through[0]
	}
	return w
}

// sampleRace takes one race and looks in the log whether what its writers were
// told is true. all has the processes that the race goes through.
func (r *run) sampleRace(ctx context.Context, entrants []entrant, all *target) (sample, error) {
	topic, partition := entrants[0].topic, entrants[0].partition
	ends, err := r.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	m, err := all.meter()
	if err != nil {
		return nil, err
	}
	did, err := runRace(ctx, entrants, r.seconds)
	if err != nil {
		return nil, err
	}
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	log, err := readMarks(ctx, r.base(), topic, partition, offset(ends[partition]))
	if err != nil {
		return nil, err
	}
	wrong := did.wrong(log)
	if wrong > 0 && entrants[0].habit == conditional {
		return nil, fmt.Errorf("%w: %d of %d acknowledgements in topic %s", errElsewhere, wrong, len(did.appends), topic)
	}
	if err := r.empty(ctx, topic); err != nil {
		return nil, err
	}
	appended := float64(max(len(did.appends), 1))
	right := float64(len(did.appends) - wrong)
	out := sample{
		{"rate", "appends/s", higher, right / did.took.Seconds()},
		{"tries", "1/append", lower, did.triesAnAppend()},
		{"wrong", "%", lower, 100 * float64(wrong) / appended},
		{"p99", "µs", lower, did.latency()[1].value},
		{"unsettled", "1/append", lower, float64(did.unsettled) / appended},
	}
	if used.known {
		out = append(out, used.perRequest(int64(len(did.appends)))[0])
	}
	return out, nil
}
