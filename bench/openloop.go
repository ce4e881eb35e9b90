package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// openLoopShare is the rate of the open loop, as a share of what the first
// target does one by one.
const openLoopShare = .5

var openLoopMeasure = measure{
	name:  "openloop",
	about: "one batch of 200 bytes at each tick of a clock, to all partitions in turn, whatever became of those before; latency from the tick",
	setUp: setUpOpenLoop,
}

func setUpOpenLoop(ctx context.Context, r *run) ([]way, error) {
	topics := make([]string, len(r.targets))
	for i, t := range r.targets {
		topics[i] = r.topicFor("openloop", t)
		if err := r.makeTopic(ctx, topics[i], partitions); err != nil {
			return nil, err
		}
	}
	rate := r.rate
	if rate == 0 {
		w, err := r.newWriter(ctx, r.base(), topics[0], 0, smallBatch)
		if err != nil {
			return nil, err
		}
		defer w.close()
		for range 2 { // the first is a warm-up
			took, err := closedLoop(ctx, w, r.seconds)
			if err != nil {
				return nil, err
			}
			rate = openLoopShare * float64(len(took)) / r.seconds.Seconds()
		}
	}
	r.log("openloop: %.0f requests/s", rate)
	every := time.Duration(float64(time.Second) / rate)
	var ways []way
	for i, t := range r.targets {
		ways = append(ways, way{name: t.name, target: t, sample: func(ctx context.Context, _ int) (sample, error) {
			return sampleOpenLoop(ctx, r, t, topics[i], every)
		}})
	}
	return ways, nil
}

func sampleOpenLoop(ctx context.Context, r *run, t *target, topic string, every time.Duration) (sample, error) {
	ends, err := r.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	turns := make([]*writer, partitions) // one after the other
	for p := range turns {
		turns[p] = writerOn(conn, topic, int32(p), smallBatch, ends[p])
	}
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	took, err := openLoop(ctx, turns, every, int(r.seconds/every)+1)
	if err != nil {
		return nil, err
	}
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	s := append(latencies(took),
		figure{"p99.9", "µs", lower, micros(quantile(took, .999))},
		figure{"rate", "requests/s", higher, float64(time.Second) / float64(every)})
	return append(s, used.perRequest(int64(len(took)))...), nil
}

// openLoop sends n batches on schedule, behind those that are unanswered if it
// must, by the writers of one connection in turn, and gives how long after its
// scheduled time each was answered. A sender that waits for answers would leave
// out what those waited who could not send.
func openLoop(ctx context.Context, turns []*writer, every time.Duration, n int) ([]time.Duration, error) {
	begun := time.Now()
	scheduled := func(i int) time.Time { return begun.Add(time.Duration(i) * every) }
	sent := make(chan error, 1)
	go func() {
		// A thread of its own: the clock is exact for threads, see waitUntil.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for i := range n {
			waitUntil(scheduled(i))
			if err := errors.Join(ctx.Err(), turns[i%len(turns)].send()); err != nil {
				_ = turns[0].conn.Close() // ends the reader
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	took := make([]time.Duration, 0, n)
	var failed error
	for i := range n {
		if failed = turns[i%len(turns)].acknowledged(); failed != nil {
			_ = turns[0].conn.Close() // ends the sender
			break
		}
		took = append(took, time.Since(scheduled(i)))
	}
	if err := errors.Join(failed, <-sent); err != nil {
		return nil, fmt.Errorf("batch %d of %d: %w", len(took), n, err)
	}
	return took, nil
}
