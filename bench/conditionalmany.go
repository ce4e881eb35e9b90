package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	manyPartitions = 1000
	// manyClients share the partitions: each sends what is there for all of its own
	// in one Produce.
	manyClients = 4
	// manyWarmUp is how many appends of each writer come before they count: at
	// first every partition must be looked at. It takes no longer than manyPatience.
	manyWarmUp   = 3
	manyPatience = time.Minute
)

var manyMeasure = measure{
	name:  "parts-1000",
	about: fmt.Sprintf("%d partitions and a writer for each, closed loop, records of 200 bytes, on %d kgo clients, which send the records of many partitions in one request", manyPartitions, manyClients),
	setUp: setUpMany,
}

func setUpMany(ctx context.Context, r *run) ([]way, error) {
	var ways []way
	for _, t := range append([]*target{r.base()}, r.fencing()...) {
		topic := r.topicFor("parts-1000", t)
		if err := r.makeTopic(ctx, topic, r.volume.inForce().many); err != nil {
			return nil, err
		}
		ways = append(ways, way{name: t.name, target: t, sample: func(ctx context.Context, _ int) (sample, error) { return sampleMany(ctx, r, t, topic) }})
	}
	return ways, nil
}

func sampleMany(ctx context.Context, r *run, t *target, topic string) (sample, error) {
	ends, err := r.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	w := &manyWriters{topic: topic, warm: make(chan struct{})}
	for range manyClients {
		client, err := t.client(
			kgo.DefaultProduceTopic(topic),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.ProducerLinger(0),
			// What a proxy gives back, as it has no time for all at once, is sent again.
			kgo.RecordDeliveryTimeout(manyPatience),
		)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		w.clients = append(w.clients, client)
	}
	w.begin(ctx, ends)
	warmCtx, cancel := context.WithTimeoutCause(ctx, manyPatience, errStillCold)
	defer cancel()
	select {
	case <-w.warm:
	case <-warmCtx.Done():
		return nil, errors.Join(context.Cause(warmCtx), w.end())
	}
	before, begun := w.appends.Load(), time.Now()
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	pause(ctx, r.seconds)
	for w.appends.Load() == before && w.failed.Load() == nil && ctx.Err() == nil {
		pause(ctx, time.Millisecond) // a machine may be too busy for one append
	}
	appends, took := w.appends.Load()-before, time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	if err := w.end(); err != nil {
		return nil, err
	}
	if err := r.empty(ctx, topic); err != nil {
		return nil, err
	}
	return append(sample{{"rate", "appends/s", higher, float64(appends) / took.Seconds()}}, used.perRequest(appends)...), nil
}

var errStillCold = errors.New("some writers have appended next to nothing")

// manyWriters append to a partition each, in closed loops.
type manyWriters struct {
	topic   string
	clients []*kgo.Client

	cold     atomic.Int64  // writers that are not warm
	warm     chan struct{} // closed when all are
	appends  atomic.Int64
	stopping atomic.Bool
	failed   atomic.Pointer[error] // the first
	running  sync.WaitGroup
}

// begin sends the first record of each partition; the next one follows when it is
// acknowledged.
func (w *manyWriters) begin(ctx context.Context, ends []int64) {
	w.cold.Store(int64(len(ends)))
	for partition, end := range ends {
		client := w.clients[partition%len(w.clients)]
		r := &kgo.Record{Value: filler(conditionalShape.valueBytes), Headers: []kgo.RecordHeader{{Key: conditionHeader, Value: make([]byte, conditionDigits)}}}
		w.running.Add(1)
		w.append(ctx, client, r, int32(partition), end, 1)
	}
}

// append sends a record, its writer's nth, and the next when it is acknowledged.
func (w *manyWriters) append(ctx context.Context, client *kgo.Client, r *kgo.Record, partition int32, next int64, nth int) {
	*r = kgo.Record{Partition: partition, Value: r.Value, Headers: r.Headers}
	putDecimal(r.Headers[0].Value, next)
	client.Produce(ctx, r, func(r *kgo.Record, err error) {
		switch {
		case err != nil:
			err = fmt.Errorf("append at offset %d of partition %d of %s: %w", next, partition, w.topic, err)
		case r.Offset != next:
			err = fmt.Errorf("%w: partition %d of %s: asked for %d, got %d", errElsewhere, partition, w.topic, next, r.Offset)
		}
		if err != nil {
			w.failed.CompareAndSwap(nil, &err)
			if !w.stopping.Swap(true) && w.cold.Swap(-1) > 0 {
				close(w.warm) // nobody waits for what does not come
			}
		}
		if w.stopping.Load() {
			w.running.Done()
			return
		}
		w.appends.Add(1)
		if nth == manyWarmUp && w.cold.Add(-1) == 0 {
			close(w.warm)
		}
		w.append(ctx, client, r, partition, next+1, nth+1)
	})
}

// end waits for the last answers.
func (w *manyWriters) end() error {
	w.stopping.Store(true)
	w.running.Wait()
	if failed := w.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}
