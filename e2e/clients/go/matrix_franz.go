package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzSubject struct {
	bootstrap, topic string
	admin            *kadm.Client
}

func newFranzSubject(bootstrap, topic string) (subject, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(50*time.Millisecond))
	return &franzSubject{bootstrap, topic, kadm.NewClient(client)}, err
}

func (f *franzSubject) with(do func(context.Context, *kgo.Client) error, options ...kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), matrixTimeout)
	defer cancel()
	return do(ctx, client)
}

func (f *franzSubject) records(values []record) []*kgo.Record {
	var all []*kgo.Record
	for _, r := range values {
		all = append(all, &kgo.Record{Topic: f.topic, Partition: r.partition, Value: []byte(r.value)})
	}
	return all
}

func (f *franzSubject) produce(values []record, how writing) error {
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{kgo.ProducerBatchCompression(codecs[how.codec])}
	if !how.idempotent {
		acks := map[string]kgo.Acks{"": kgo.AllISRAcks(), "all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[how.acks]
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks))
	}
	return f.with(func(ctx context.Context, client *kgo.Client) error {
		return client.ProduceSync(ctx, f.records(values)...).FirstErr()
	}, options...)
}

func (f *franzSubject) transact(committed, aborted []record) error {
	return f.with(func(ctx context.Context, client *kgo.Client) error {
		for _, end := range []struct {
			values []record
			how    kgo.TransactionEndTry
		}{{committed, kgo.TryCommit}, {aborted, kgo.TryAbort}} {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
			if err := client.ProduceSync(ctx, f.records(end.values)...).FirstErr(); err != nil {
				return err
			}
			if err := client.EndTransaction(ctx, end.how); err != nil {
				return err
			}
		}
		return nil
	}, kgo.TransactionalID(f.topic))
}

func (f *franzSubject) read(group string, kind groupKind, r *reading) error {
	options := []kgo.Opt{kgo.ConsumeTopics(f.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted())}
	if kind == classicGroup {
		options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	} else {
		more, err := f.newerGroup(group, kind)
		if err != nil {
			return err
		}
		options = append(options, more...)
	}
	return f.with(func(ctx context.Context, client *kgo.Client) error {
		for r.goesOn() {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			fetches.EachRecord(func(one *kgo.Record) { r.took(one.Value) })
		}
		if kind == shareGroup {
			return flushAcks(ctx, client)
		}
		return client.CommitUncommittedOffsets(ctx)
	}, options...)
}

func (f *franzSubject) topics(name string) error {
	ctx := context.Background()
	if made, err := f.admin.CreateTopic(ctx, matrixPartitions, 3, nil, name); err != nil || made.Err != nil {
		return errors.Join(err, made.Err)
	}
	if err := awaited(func() (bool, error) {
		listed, err := f.admin.ListTopics(ctx, name)
		return err == nil && listed.Error() == nil, err
	}); err != nil {
		return err
	}
	gone, err := f.admin.DeleteTopics(ctx, name)
	return errors.Join(err, gone[name].Err)
}

func (f *franzSubject) cluster() error {
	found, err := f.admin.BrokerMetadata(context.Background())
	if err != nil {
		return err
	}
	for _, broker := range found.Brokers {
		tellBroker(net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))))
	}
	if len(found.Brokers) != 3 {
		return fmt.Errorf("%d brokers", len(found.Brokers))
	}
	return nil
}

func (f *franzSubject) configs() error {
	ctx, value := context.Background(), matrixSetting
	altered, err := f.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: matrixConfig, Value: &value}}, f.topic)
	if err != nil || altered[0].Err != nil {
		return errors.Join(err, altered[0].Err)
	}
	return awaited(func() (bool, error) {
		described, err := f.admin.DescribeTopicConfigs(ctx, f.topic)
		if err != nil {
			return false, err
		}
		for _, config := range described[0].Configs {
			if config.Key == matrixConfig {
				return config.MaybeValue() == matrixSetting, nil
			}
		}
		return false, nil
	})
}

func (f *franzSubject) groups(group string) error {
	ctx := context.Background()
	listed, err := f.admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	if _, ok := listed[group]; !ok {
		return errors.New("the group is not listed")
	}
	described, err := f.admin.DescribeGroups(ctx, group)
	if err != nil || described[group].Err != nil {
		return errors.Join(err, described[group].Err)
	}
	at := described[group].Coordinator
	tellBroker(net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
	return nil
}

func (f *franzSubject) appendAt(topic string, expected int64) (int64, error) {
	one := &kgo.Record{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{
		{Key: "expected-offset", Value: strconv.AppendInt(nil, expected, 10)}, {Key: "append-id", Value: newAppendID()},
	}}
	err := f.with(func(ctx context.Context, client *kgo.Client) error { return client.ProduceSync(ctx, one).FirstErr() })
	return one.Offset, err
}

func newAppendID() []byte { return strconv.AppendInt(nil, time.Now().UnixNano(), 10) }

func (*franzSubject) refused(err error) bool { return errors.Is(err, kerr.OffsetOutOfRange) }
