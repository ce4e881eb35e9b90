package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = time.Minute

type franz struct{ client *kgo.Client }

func openFranz(c command) (producer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if !c.Idempotent {
		acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[c.Acks]
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks))
	}
	if c.BatchBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(c.BatchBytes))
	}
	if c.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(c.TransactionalID))
	}
	client, err := kgo.NewClient(options...)
	return franz{client}, err
}

func (f franz) send(c command) {
	record := &kgo.Record{Topic: c.Topic, Partition: c.Partition, Value: []byte(c.Value)}
	if c.Timestamp != 0 {
		record.Timestamp = time.UnixMilli(c.Timestamp)
	}
	for _, h := range c.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	f.client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		reports.ended(c.Tag, record.Offset, err)
	})
}

func (f franz) begin() error { return f.client.BeginTransaction() }

func (f franz) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := f.client.Flush(ctx); err != nil {
		return err
	}
	return f.client.EndTransaction(ctx, kgo.TryCommit)
}

func (f franz) abort() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := f.client.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return f.client.EndTransaction(ctx, kgo.TryAbort)
}

func (f franz) close() { f.client.Close() }

func nextFranz(c command) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		return -1, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, c.Topic)
	if err != nil {
		return -1, err
	}
	end, _ := ends.Lookup(c.Topic, c.Partition)
	return end.Offset, end.Err
}

func describeFranz(err error) (string, int16) {
	var answered *kerr.Error
	if errors.As(err, &answered) {
		return "kerr." + answered.Message, answered.Code
	}
	return "error", 0
}
