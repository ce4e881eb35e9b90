package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

type segmentio struct{ writer *kafka.Writer }

func openSegmentio(c command) (producer, error) {
	if c.Idempotent || c.TransactionalID != "" {
		return nil, errors.New("this client has no producer ids")
	}
	return segmentio{&kafka.Writer{
		Addr:         kafka.TCP(c.Bootstrap),
		Balancer:     kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return int(message.WriterData.(command).Partition) }),
		RequiredAcks: map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}[c.Acks],
		BatchSize:    1,
		Async:        true,
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				reports.ended(message.WriterData.(command).Tag, message.Offset, err)
			}
		},
	}}, nil
}

func (s segmentio) send(c command) {
	message := kafka.Message{Topic: c.Topic, Value: []byte(c.Value), WriterData: c}
	if c.Timestamp != 0 {
		message.Time = time.UnixMilli(c.Timestamp)
	}
	for _, h := range c.Headers {
		message.Headers = append(message.Headers, kafka.Header{Key: h.Name, Value: []byte(h.Value)})
	}
	if err := s.writer.WriteMessages(context.Background(), message); err != nil {
		reports.ended(c.Tag, -1, err)
	}
}

func (segmentio) begin() error  { return errNoTransactions }
func (segmentio) commit() error { return errNoTransactions }
func (segmentio) abort() error  { return errNoTransactions }
func (s segmentio) close()      { _ = s.writer.Close() }

func nextSegmentio(c command) (int64, error) {
	client := &kafka.Client{Addr: kafka.TCP(c.Bootstrap), Timeout: timeout}
	response, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{c.Topic: {kafka.LastOffsetOf(int(c.Partition))}},
	})
	if err != nil {
		return -1, err
	}
	for _, found := range response.Topics[c.Topic] {
		if found.Partition == int(c.Partition) {
			return found.LastOffset, found.Error
		}
	}
	return -1, errors.New("the answer lacks the partition")
}

func describeSegmentio(err error) (string, int16) {
	var answered kafka.Error
	if errors.As(err, &answered) {
		return "kafka." + strings.ReplaceAll(answered.Title(), " ", ""), int16(answered)
	}
	return "error", 0
}
