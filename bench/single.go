package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	smallBatch = 200 // bytes
	writers    = 16
)

var oneMeasure = measure{
	name:  "one",
	about: "one request in flight: one connection, a batch of one record in 200 bytes",
	setUp: perTarget("one", sampleOne),
}

var sixteenMeasure = measure{
	name:  "sixteen",
	about: "16 of them at once, a connection and a partition each",
	setUp: perTarget("sixteen", sampleSixteen),
}

func sampleOne(ctx context.Context, r *run, t *target, topic string) (sample, error) {
	w, err := r.newWriter(ctx, t, topic, 0, smallBatch)
	if err != nil {
		return nil, err
	}
	defer w.close()
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	took, err := closedLoop(ctx, w, r.seconds)
	if err != nil {
		return nil, err
	}
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	return append(latencies(took), used.perRequest(int64(len(took)))...), nil
}

// latencies are figures of round trips, which it sorts.
func latencies(took []time.Duration) sample {
	slices.Sort(took)
	return sample{
		{"p50", "µs", lower, micros(quantile(took, .5))},
		{"p99", "µs", lower, micros(quantile(took, .99))},
	}
}

func sampleSixteen(ctx context.Context, r *run, t *target, topic string) (sample, error) {
	all := make([]*writer, writers)
	for i := range all {
		w, err := r.newWriter(ctx, t, topic, int32(i), smallBatch)
		if err != nil {
			return nil, err
		}
		defer w.close()
		all[i] = w
	}
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	requests := make([]int, writers)
	failures := make([]error, writers)
	var done sync.WaitGroup
	for i, w := range all {
		done.Go(func() {
			var took []time.Duration
			took, failures[i] = closedLoop(ctx, w, r.seconds)
			requests[i] = len(took)
		})
	}
	done.Wait()
	elapsed := time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	total := 0
	for i := range all {
		if failures[i] != nil {
			return nil, failures[i]
		}
		total += requests[i]
	}
	return append(sample{{"rate", "requests/s", higher, float64(total) / elapsed.Seconds()}}, used.perRequest(int64(total))...), nil
}

// closedLoop sends one batch after the other and gives each round trip.
func closedLoop(ctx context.Context, w *writer, limit time.Duration) ([]time.Duration, error) {
	took := make([]time.Duration, 0, 1<<16)
	begun := time.Now()
	for sent := begun; sent.Sub(begun) < limit || len(took) == 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.send(); err != nil {
			return nil, err
		}
		if err := w.acknowledged(); err != nil {
			return nil, err
		}
		now := time.Now()
		took = append(took, now.Sub(sent))
		sent = now
	}
	return took, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
