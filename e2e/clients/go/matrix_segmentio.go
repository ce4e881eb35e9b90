package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

type segmentioSubject struct {
	bootstrap []string
	topic     string
	client    *kafka.Client
}

func newSegmentioSubject(bootstrap, topic string) (subject, error) {
	at := strings.Split(bootstrap, ",")
	return &segmentioSubject{at, topic, &kafka.Client{Addr: kafka.TCP(at...), Timeout: matrixTimeout}}, nil
}

func (s *segmentioSubject) writer() *kafka.Writer {
	return &kafka.Writer{
		Addr:         s.client.Addr,
		BatchSize:    matrixRecords,
		BatchTimeout: 20 * time.Millisecond,
		RequiredAcks: kafka.RequireAll,
		Balancer:     kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return int(message.WriterData.(int32)) }),
	}
}

func (s *segmentioSubject) produce(values []record, how writing) error {
	if how.idempotent {
		return cannot("it has no producer ids")
	}
	writer := s.writer()
	writer.Compression = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[how.codec]
	switch how.acks {
	case "1":
		writer.RequiredAcks = kafka.RequireOne
	case "0":
		writer.RequiredAcks = kafka.RequireNone
	}
	var messages []kafka.Message
	for _, r := range values {
		messages = append(messages, kafka.Message{Topic: s.topic, Value: []byte(r.value), WriterData: r.partition})
	}
	return errors.Join(writer.WriteMessages(context.Background(), messages...), writer.Close())
}

func (*segmentioSubject) transact(_, _ []record) error {
	return cannot("it has no transactional producer")
}

func (s *segmentioSubject) read(group string, kind groupKind, r *reading) error {
	switch kind {
	case consumerGroup:
		return cannot("it has no option for them")
	case shareGroup:
		return cannot("it has no share consumer")
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.bootstrap, GroupID: group, Topic: s.topic,
		StartOffset: kafka.FirstOffset, IsolationLevel: kafka.ReadCommitted, MaxWait: 200 * time.Millisecond,
	})
	ctx, cancel := context.WithDeadline(context.Background(), r.deadline)
	defer cancel()
	var last []kafka.Message
	for r.goesOn() {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return errors.Join(err, reader.Close())
		}
		last = append(last, message)
		r.took(message.Value)
	}
	return errors.Join(reader.CommitMessages(ctx, last...), reader.Close())
}

func (s *segmentioSubject) topics(name string) error {
	ctx := context.Background()
	made, err := s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: name, NumPartitions: matrixPartitions, ReplicationFactor: 3},
	}})
	if err != nil || made.Errors[name] != nil {
		return errors.Join(err, made.Errors[name])
	}
	if err := awaited(func() (bool, error) {
		found, err := s.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
		return err == nil && found.Topics[0].Error == nil, err
	}); err != nil {
		return err
	}
	gone, err := s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
	if err != nil {
		return err
	}
	return gone.Errors[name]
}

func (s *segmentioSubject) cluster() error {
	found, err := s.client.Metadata(context.Background(), &kafka.MetadataRequest{})
	if err != nil {
		return err
	}
	for _, broker := range append(found.Brokers, found.Controller) {
		tellBroker(net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)))
	}
	if len(found.Brokers) != 3 {
		return fmt.Errorf("%d brokers", len(found.Brokers))
	}
	return nil
}

func (s *segmentioSubject) configs() error {
	ctx := context.Background()
	altered, err := s.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: s.topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: matrixConfig, Value: matrixSetting, ConfigOperation: kafka.ConfigOperationSet}},
	}}})
	if err != nil || altered.Resources[0].Error != nil {
		return errors.Join(err, altered.Resources[0].Error)
	}
	return awaited(func() (bool, error) {
		described, err := s.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: s.topic, ConfigNames: []string{matrixConfig},
		}}})
		if err != nil {
			return false, err
		}
		for _, entry := range described.Resources[0].ConfigEntries {
			if entry.ConfigName == matrixConfig && entry.ConfigValue == matrixSetting {
				return true, nil
			}
		}
		return false, described.Resources[0].Error
	})
}

func (s *segmentioSubject) groups(group string) error {
	ctx := context.Background()
	// It asks one broker, which knows the groups that it coordinates.
	found, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return err
	}
	listed := false
	for _, broker := range found.Brokers {
		at := kafka.TCP(net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)))
		groups, err := s.client.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: at})
		if err != nil || groups.Error != nil {
			return errors.Join(err, groups.Error)
		}
		for _, one := range groups.Groups {
			listed = listed || one.GroupID == group
		}
	}
	if !listed {
		return errors.New("the group is not listed")
	}
	described, err := s.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return described.Groups[0].Error
}

func (s *segmentioSubject) appendAt(topic string, expected int64) (int64, error) {
	writer := s.writer()
	writer.BatchSize = 1
	offset := int64(-1)
	writer.Completion = func(messages []kafka.Message, _ error) { offset = messages[0].Offset }
	err := writer.WriteMessages(context.Background(), kafka.Message{
		Topic: topic, Value: []byte("x"), WriterData: int32(0),
		Headers: []kafka.Header{{Key: "expected-offset", Value: strconv.AppendInt(nil, expected, 10)}, {Key: "append-id", Value: newAppendID()}},
	})
	return offset, errors.Join(err, writer.Close())
}

func (*segmentioSubject) refused(err error) bool {
	var failures kafka.WriteErrors
	if errors.As(err, &failures) && len(failures) == 1 {
		err = failures[0]
	}
	return errors.Is(err, kafka.OffsetOutOfRange)
}
