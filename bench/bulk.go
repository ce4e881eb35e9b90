package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// bulkBuffered is what the producer holds at most: a large batch of each
	// partition in flight, and one being filled.
	bulkBuffered = 32 << 20
	// bulkWarmUp is how long a sample's producer runs before it counts.
	bulkWarmUp = 300 * time.Millisecond
	// perRecord is what a record takes in a batch besides its value, about.
	perRecord = 8 + len(conditionHeader) + conditionDigits
)

// bulkMeasure is the rate of a producer that has always more to send.
func bulkMeasure(name string, valueBytes int) measure {
	return measure{
		name:  name,
		about: fmt.Sprintf("kgo produces values of %d KiB to %d partitions as fast as it can, acks=all, batches up to 1 MB", valueBytes>>10, partitions),
		setUp: perTarget(name, func(ctx context.Context, r *run, t *target, topic string) (sample, error) {
			return sampleBulk(ctx, r, t, topic, valueBytes)
		}),
	}
}

func sampleBulk(ctx context.Context, r *run, t *target, topic string, valueBytes int) (sample, error) {
	ends, err := r.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	p, err := newProducer(t, topic, valueBytes, r.volume.inForce().buffered, ends)
	if err != nil {
		return nil, err
	}
	defer p.client.Close()
	if err := p.produce(ctx, r.volume.inForce().warmUp); err != nil {
		return nil, err
	}
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	before, begun := p.bytes.Load(), time.Now()
	if err := p.produce(ctx, r.seconds); err != nil {
		return nil, err
	}
	moved, took := p.bytes.Load()-before, time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	if err := p.finish(ctx); err != nil {
		return nil, err
	}
	if err := r.empty(ctx, topic); err != nil {
		return nil, err
	}
	return append(sample{{"rate", "MB/s", higher, float64(moved) / took.Seconds() / 1e6}}, used.perGB(moved)...), nil
}

// producer is the only one that writes to its topic, so that it knows the offset
// of each record and can have the record ask for it. The producer is idempotent,
// as kgo's are, which keeps the order within a partition with five requests in
// flight. Of one goroutine; answers come in on the client's.
type producer struct {
	client *kgo.Client
	topic  string
	value  []byte
	next   [partitions]int64
	turn   int

	bytes   atomic.Int64 // acknowledged
	records sync.Pool
	failed  atomic.Pointer[error] // the first
}

func newProducer(t *target, topic string, valueBytes, buffered int, ends []int64) (*producer, error) {
	client, err := t.client(
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedBytes(buffered),
		kgo.RecordRetries(0),
		kgo.RecordDeliveryTimeout(produceTimeout),
	)
	if err != nil {
		return nil, err
	}
	p := &producer{client: client, topic: topic, value: filler(valueBytes)}
	copy(p.next[:], ends)
	p.records.New = func() any {
		return &kgo.Record{Headers: []kgo.RecordHeader{{Key: conditionHeader, Value: make([]byte, conditionDigits)}}}
	}
	return p, nil
}

// produce sends for so long, and until something is acknowledged. What it has sent
// may be unanswered when it returns.
func (p *producer) produce(ctx context.Context, limit time.Duration) error {
	before := p.bytes.Load()
	for begun := time.Now(); time.Since(begun) < limit || p.bytes.Load() == before; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if failed := p.failed.Load(); failed != nil {
			return *failed
		}
		for range partitions { // between two looks at the clock
			p.send(ctx)
		}
	}
	return nil
}

func (p *producer) send(ctx context.Context) {
	partition := int32(p.turn % partitions)
	p.turn++
	r := p.records.Get().(*kgo.Record)
	headers := r.Headers
	putDecimal(headers[0].Value, p.next[partition])
	p.next[partition]++
	*r = kgo.Record{Partition: partition, Value: p.value, Headers: headers}
	p.client.Produce(ctx, r, p.acknowledged)
}

// acknowledged takes the answer to one record.
func (p *producer) acknowledged(r *kgo.Record, err error) {
	asked := parseDecimal(r.Headers[0].Value)
	switch {
	case err != nil:
		err = fmt.Errorf("append at offset %d of partition %d: %w", asked, r.Partition, err)
	case r.Offset != asked:
		err = fmt.Errorf("%w: partition %d: asked for %d, got %d", errElsewhere, r.Partition, asked, r.Offset)
	}
	if err != nil {
		p.failed.CompareAndSwap(nil, &err)
		return
	}
	p.bytes.Add(int64(len(p.value) + perRecord))
	p.records.Put(r)
}

// finish waits for all answers.
func (p *producer) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*produceTimeout)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("wait for the last answers: %w", err)
	}
	if failed := p.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// parseDecimal reads what putDecimal writes.
func parseDecimal(digits []byte) int64 {
	var n int64
	for _, d := range digits {
		n = n*10 + int64(d-'0')
	}
	return n
}
