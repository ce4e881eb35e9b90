package main

import (
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// scriptedBroker is one broker of a cluster of one. It answers Metadata, leads
// partition 0 of every topic, keeps ListGroups waiting, and does with a Produce
// what the test says.
type scriptedBroker struct {
	server *kafkatest.Server
	node   int32
	// arrived gets one value for each ListGroups, which is answered when
	// release is called.
	arrived  chan struct{}
	released chan struct{} // closed by release
	once     sync.Once
	// produce gives the answer to a Produce; nil cuts the connection.
	produce func(*kmsg.ProduceRequest) *kmsg.ProduceResponse
}

func newScriptedBroker(t *testing.T, node int32) *scriptedBroker {
	b := &scriptedBroker{node: node, arrived: make(chan struct{}, 10), released: make(chan struct{})}
	up := make(chan struct{})
	b.server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		for r, ok := c.Next(); ok && b.answer(c, r); r, ok = c.Next() {
		}
	})
	close(up)
	t.Cleanup(b.release) // before the server waits for its connections
	return b
}

// release answers every ListGroups, those to come as well.
func (b *scriptedBroker) release() { b.once.Do(func() { close(b.released) }) }

func (b *scriptedBroker) answer(c *kafkatest.Conn, r kafkatest.Request) bool {
	request, err := r.Decode()
	if err != nil {
		return false
	}
	answer := request.ResponseKind()
	switch request := request.(type) {
	case *kmsg.MetadataRequest:
		metadata := kafkatest.Metadata(kafkatest.Broker{Node: b.node, Host: "127.0.0.1", Port: b.server.Port()})
		for _, asked := range request.Topics {
			partition := kmsg.NewMetadataResponseTopicPartition()
			partition.Leader = b.node
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.Partitions = asked.Topic, append(topic.Partitions, partition)
			metadata.Topics = append(metadata.Topics, topic)
		}
		answer = metadata
	case *kmsg.ListGroupsRequest:
		b.arrived <- struct{}{}
		<-b.released
	case *kmsg.ProduceRequest:
		produced := b.produce(request)
		if produced == nil {
			return false
		}
		answer = produced
	}
	c.Answer(r, answer)
	return true
}

// produceAnswer answers a Produce of one batch.
func produceAnswer(r *kmsg.ProduceRequest, code int16, base int64, message string) *kmsg.ProduceResponse {
	partition := kmsg.NewProduceResponseTopicPartition()
	partition.ErrorCode, partition.BaseOffset = code, base
	if message != "" {
		partition.ErrorMessage = &message
	}
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic, topic.Partitions = r.Topics[0].Topic, append(topic.Partitions, partition)
	answer := kmsg.NewPtrProduceResponse()
	answer.Topics = append(answer.Topics, topic)
	return answer
}
