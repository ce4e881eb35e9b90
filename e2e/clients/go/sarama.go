package main

import (
	"cmp"
	"errors"
	"io"
	"time"

	"github.com/IBM/sarama"
)

type saramaProducer struct{ sarama.AsyncProducer }

func openSarama(c command) (producer, error) {
	config := saramaConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse}[c.Acks]
	if c.Retries > 0 {
		config.Producer.Retry.Max = c.Retries
	}
	if c.BatchBytes > 0 {
		config.Producer.Flush.MaxMessages = 1 // it has no bytes of a batch
	}
	if c.Idempotent || c.TransactionalID != "" {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	}
	config.Producer.Transaction.ID = c.TransactionalID
	client, err := sarama.NewAsyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	p := saramaProducer{client}
	go p.reportSuccesses()
	go p.reportErrors()
	return p, nil
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ApiVersionsRequest = true
	return config
}

func (p saramaProducer) reportSuccesses() {
	for message := range p.Successes() {
		reports.ended(message.Metadata.(string), message.Offset, nil)
	}
}

func (p saramaProducer) reportErrors() {
	for failed := range p.Errors() {
		if tag, ok := failed.Msg.Metadata.(string); ok { // not its own, of a transaction's end
			reports.ended(tag, -1, failed.Err)
		}
	}
}

func (p saramaProducer) send(c command) {
	message := &sarama.ProducerMessage{Topic: c.Topic, Partition: c.Partition, Value: sarama.StringEncoder(c.Value), Metadata: c.Tag}
	if c.Timestamp != 0 {
		message.Timestamp = time.UnixMilli(c.Timestamp)
	}
	for _, h := range c.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: []byte(h.Value)})
	}
	p.Input() <- message
}

func (p saramaProducer) begin() error  { return p.BeginTxn() }
func (p saramaProducer) commit() error { return p.CommitTxn() }
func (p saramaProducer) abort() error  { return p.AbortTxn() }
func (p saramaProducer) close()        { p.AsyncClose() }

func nextSarama(c command) (int64, error) {
	client, err := sarama.NewClient([]string{c.Bootstrap}, saramaConfig())
	if err != nil {
		return -1, err
	}
	defer func() { _ = client.Close() }()
	return client.GetOffset(c.Topic, c.Partition, sarama.OffsetNewest)
}

// saramaNames are the constants of what the tests see; the library has no names
// of them in its errors.
var saramaNames = map[sarama.KError]string{
	sarama.ErrUnknown:                  "sarama.ErrUnknown",
	sarama.ErrOffsetOutOfRange:         "sarama.ErrOffsetOutOfRange",
	sarama.ErrTopicAuthorizationFailed: "sarama.ErrTopicAuthorizationFailed",
	sarama.ErrInvalidTimestamp:         "sarama.ErrInvalidTimestamp",
	sarama.ErrPolicyViolation:          "sarama.ErrPolicyViolation",
	sarama.ErrOutOfOrderSequenceNumber: "sarama.ErrOutOfOrderSequenceNumber",
	sarama.ErrInvalidRecord:            "sarama.ErrInvalidRecord",
}

func describeSarama(err error) (string, int16) {
	var answered sarama.KError
	switch {
	case errors.As(err, &answered):
		return cmp.Or(saramaNames[answered], "sarama.KError"), int16(answered)
	case errors.Is(err, io.EOF):
		return "io.EOF", 0
	}
	return "error", 0
}
