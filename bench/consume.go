package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// filledBytes is what the topic of the consumer holds. It is read again and
// again, from the memory of the broker's machine.
const filledBytes = 1 << 30

var consumeMeasure = measure{
	name:  "consume",
	about: fmt.Sprintf("kgo reads a topic of %d partitions from its beginning, 1 KiB values in large batches", partitions),
	setUp: setUpConsume,
}

// setUpConsume fills one topic for all targets, around all proxies. That it is
// not fenced makes no difference to a reader.
func setUpConsume(ctx context.Context, r *run) ([]way, error) {
	const valueBytes = 1 << 10
	v := r.volume.inForce()
	topic := r.prefix + "-consume"
	if err := r.makeTopic(ctx, topic, partitions); err != nil {
		return nil, err
	}
	p, err := newProducer(r.base(), topic, valueBytes, v.buffered, make([]int64, partitions))
	if err != nil {
		return nil, err
	}
	defer p.client.Close()
	for range v.filled / valueBytes {
		p.send(ctx)
	}
	if err := p.finish(ctx); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	var ways []way
	for _, t := range r.targets {
		ways = append(ways, way{name: t.name, target: t, sample: func(ctx context.Context, _ int) (sample, error) {
			return sampleConsume(ctx, r, t, topic)
		}})
	}
	return ways, nil
}

func sampleConsume(ctx context.Context, r *run, t *target, topic string) (sample, error) {
	c := &consumer{run: r, target: t, topic: topic}
	defer c.close()
	if _, err := c.read(ctx, r.volume.inForce().warmUp); err != nil {
		return nil, err
	}
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	moved, err := c.read(ctx, r.seconds)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	return append(sample{{"rate", "MB/s", higher, float64(moved) / took.Seconds() / 1e6}}, used.perGB(moved)...), nil
}

// consumer reads the topic over and over.
type consumer struct {
	run    *run
	target *target
	topic  string
	client *kgo.Client // nil: none
	left   int64       // records to the end
}

func (c *consumer) close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// read reads for so long, and until there was something, and gives the bytes of the records.
func (c *consumer) read(ctx context.Context, limit time.Duration) (int64, error) {
	var bytes int64
	for begun := time.Now(); time.Since(begun) < limit || bytes == 0; {
		if c.client == nil || c.left == 0 {
			if err := c.begin(); err != nil {
				return 0, err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, produceTimeout)
		fetches := c.client.PollFetches(waiting)
		cancel()
		if err := fetches.Err(); err != nil {
			return 0, fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			bytes += int64(len(r.Value) + perRecord)
			c.left--
		})
	}
	return bytes, nil
}

// begin goes to the beginning. A client of its own would cost a new connection,
// so the one that there is reads all partitions from 0 again.
func (c *consumer) begin() error {
	c.left = c.run.volume.inForce().filled / (1 << 10)
	if c.client != nil {
		c.client.SetOffsets(c.beginning())
		return nil
	}
	offsets := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		offsets[p] = kgo.NewOffset().At(0)
	}
	var err error
	c.client, err = c.target.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: offsets}))
	return err
}

func (c *consumer) beginning() map[string]map[int32]kgo.EpochOffset {
	offsets := map[int32]kgo.EpochOffset{}
	for p := range int32(partitions) {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: 0}
	}
	return map[string]map[int32]kgo.EpochOffset{c.topic: offsets}
}
