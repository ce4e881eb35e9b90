package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/IBM/sarama"
)

type saramaSubject struct {
	bootstrap []string
	topic     string
}

func newSaramaSubject(bootstrap, topic string) (subject, error) {
	return &saramaSubject{strings.Split(bootstrap, ","), topic}, nil
}

func (s *saramaSubject) producer(set func(*sarama.Config)) (sarama.SyncProducer, error) {
	config := saramaConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	set(config)
	return sarama.NewSyncProducer(s.bootstrap, config)
}

func (s *saramaSubject) messages(values []record) []*sarama.ProducerMessage {
	var all []*sarama.ProducerMessage
	for _, r := range values {
		all = append(all, &sarama.ProducerMessage{Topic: s.topic, Partition: r.partition, Value: sarama.StringEncoder(r.value)})
	}
	return all
}

func (s *saramaSubject) produce(values []record, how writing) error {
	p, err := s.producer(func(config *sarama.Config) {
		config.Producer.Compression = map[string]sarama.CompressionCodec{
			"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
		}[how.codec]
		switch how.acks {
		case "1":
			config.Producer.RequiredAcks = sarama.WaitForLocal
		case "0":
			config.Producer.RequiredAcks = sarama.NoResponse
		}
		if how.idempotent {
			config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(p.SendMessages(s.messages(values)), p.Close())
}

func (s *saramaSubject) transact(committed, aborted []record) error {
	p, err := s.producer(func(config *sarama.Config) {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
		config.Producer.Transaction.ID = s.topic
	})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	for _, end := range []struct {
		values []record
		end    func() error
	}{{committed, p.CommitTxn}, {aborted, p.AbortTxn}} {
		if err := p.BeginTxn(); err != nil {
			return err
		}
		if err := p.SendMessages(s.messages(end.values)); err != nil {
			return err
		}
		if err := end.end(); err != nil {
			return err
		}
	}
	return nil
}

func (s *saramaSubject) read(group string, kind groupKind, r *reading) error {
	switch kind {
	case consumerGroup:
		return cannot("it has no option for them")
	case shareGroup:
		return cannot("it has no share consumer")
	}
	config := saramaConfig()
	config.Consumer.Offsets.Initial, config.Consumer.IsolationLevel = sarama.OffsetOldest, sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	client, err := sarama.NewConsumerGroup(s.bootstrap, group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), r.deadline)
	defer cancel()
	err = client.Consume(ctx, []string{s.topic}, &saramaReader{reading: r, stop: cancel})
	r.goesOn()
	return errors.Join(err, client.Close())
}

// saramaReader has a goroutine for each partition.
type saramaReader struct {
	mu      sync.Mutex
	reading *reading
	stop    func()
}

func (*saramaReader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*saramaReader) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (s *saramaReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(message, "")
			s.took(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *saramaReader) took(value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reading.took(value) {
		s.stop()
	}
}

func (s *saramaSubject) admin(do func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(s.bootstrap, saramaConfig())
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

func (s *saramaSubject) topics(name string) error {
	return s.admin(func(admin sarama.ClusterAdmin) error {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: matrixPartitions, ReplicationFactor: 3}, false); err != nil {
			return err
		}
		if err := awaited(func() (bool, error) {
			listed, err := admin.ListTopics()
			_, ok := listed[name]
			return ok, err
		}); err != nil {
			return err
		}
		return admin.DeleteTopic(name)
	})
}

func (s *saramaSubject) cluster() error {
	return s.admin(func(admin sarama.ClusterAdmin) error {
		brokers, _, err := admin.DescribeCluster()
		if err != nil {
			return err
		}
		for _, broker := range brokers {
			tellBroker(broker.Addr())
		}
		if len(brokers) != 3 {
			return fmt.Errorf("%d brokers", len(brokers))
		}
		return nil
	})
}

func (s *saramaSubject) configs() error {
	return s.admin(func(admin sarama.ClusterAdmin) error {
		value := matrixSetting
		if err := admin.IncrementalAlterConfig(sarama.TopicResource, s.topic, map[string]sarama.IncrementalAlterConfigsEntry{
			matrixConfig: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false); err != nil {
			return err
		}
		return awaited(func() (bool, error) {
			entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: s.topic})
			for _, entry := range entries {
				if entry.Name == matrixConfig && entry.Value == matrixSetting {
					return true, nil
				}
			}
			return false, err
		})
	})
}

func (s *saramaSubject) groups(group string) error {
	return s.admin(func(admin sarama.ClusterAdmin) error {
		listed, err := admin.ListConsumerGroups()
		if err != nil {
			return err
		}
		if _, ok := listed[group]; !ok {
			return errors.New("the group is not listed")
		}
		described, err := admin.DescribeConsumerGroups([]string{group})
		if err != nil {
			return err
		}
		if described[0].Err != sarama.ErrNoError {
			return described[0].Err
		}
		return nil
	})
}

func (s *saramaSubject) appendAt(topic string, expected int64) (int64, error) {
	p, err := s.producer(func(*sarama.Config) {})
	if err != nil {
		return -1, err
	}
	defer func() { _ = p.Close() }()
	_, offset, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x"), Headers: []sarama.RecordHeader{
		{Key: []byte("expected-offset"), Value: strconv.AppendInt(nil, expected, 10)}, {Key: []byte("append-id"), Value: newAppendID()},
	}})
	return offset, err
}

func (*saramaSubject) refused(err error) bool { return errors.Is(err, sarama.ErrOffsetOutOfRange) }
