package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawTimeout bounds the connect and each answer of a raw connection.
const rawTimeout = 40 * time.Second

var errWrongCorrelation = errors.New("answer bears another correlation id")

// rawConn sends one request at a time on one connection and never sends
// anything twice. Not for concurrent use.
type rawConn struct {
	net.Conn
	formatter     *kmsg.RequestFormatter
	correlationID int32
}

func dialRaw(address string) (*rawConn, error) {
	conn, err := net.DialTimeout("tcp", address, rawTimeout)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("e2e-raw"))}, nil
}

func (c *rawConn) close() { _ = c.Conn.Close() }

// frame gives a request in the version it is set to, with its length.
func (c *rawConn) frame(request kmsg.Request) []byte {
	c.correlationID++
	return c.formatter.AppendRequest(nil, request, c.correlationID)
}

// roundTrip sends a request and decodes its answer.
func (c *rawConn) roundTrip(request kmsg.Request) (kmsg.Response, error) {
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Write(c.frame(request)); err != nil {
		return nil, err
	}
	body, err := c.answer()
	if err != nil {
		return nil, err
	}
	return decodeAnswer(request, body)
}

// answer reads one frame, checks its correlation id and returns the rest.
func (c *rawConn) answer() ([]byte, error) {
	frame, err := readFrame(c)
	if err != nil {
		return nil, err
	}
	if len(frame) < 4 || int32(binary.BigEndian.Uint32(frame)) != c.correlationID {
		return nil, errWrongCorrelation
	}
	return frame[4:], nil
}

func decodeAnswer(request kmsg.Request, body []byte) (kmsg.Response, error) {
	response := request.ResponseKind()
	response.SetVersion(request.GetVersion())
	// ApiVersions answers keep the old header in all versions (KIP-511).
	if response.IsFlexible() && response.Key() != kmsg.ApiVersions.Int16() {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("answer to api key %d has header tags", response.Key())
		}
		body = body[1:]
	}
	return response, response.ReadFrom(body)
}

// readFrame reads a frame without its length.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func (c *rawConn) metadata(topics ...string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 12 // names topic ids
	request.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = &topic
		request.Topics = append(request.Topics, one)
	}
	response, err := c.roundTrip(request)
	if err != nil {
		return nil, err
	}
	return response.(*kmsg.MetadataResponse), nil
}

// producePart is one partition of a Produce request.
type producePart struct {
	topic     string
	id        [16]byte // in place of topic from version 13 on
	partition int32
	batch     []byte
}

// produceRequest carries one batch for one partition, acks=all, version 9.
func produceRequest(topic string, partition int32, batch []byte) *kmsg.ProduceRequest {
	return produceParts(9, -1, producePart{topic: topic, partition: partition, batch: batch})
}

// produceParts gives every part a topic entry of its own.
func produceParts(version, acks int16, parts ...producePart) *kmsg.ProduceRequest {
	request := kmsg.NewPtrProduceRequest()
	request.Version = version
	request.Acks = acks
	request.TimeoutMillis = 20_000
	for _, part := range parts {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = part.topic, part.id
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition = part.partition
		partition.Records = part.batch
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// produce sends one batch and returns what was said of its partition.
func (c *rawConn) produce(topic string, partition int32, batch []byte) (kmsg.ProduceResponseTopicPartition, error) {
	answers, err := c.produceParts(produceRequest(topic, partition, batch))
	if err != nil {
		return kmsg.ProduceResponseTopicPartition{}, err
	}
	return answers[0], nil
}

// produceParts sends a request and returns the answers to its parts, which must
// come in the order of the request.
func (c *rawConn) produceParts(request *kmsg.ProduceRequest) ([]kmsg.ProduceResponseTopicPartition, error) {
	response, err := c.roundTrip(request)
	if err != nil {
		return nil, err
	}
	topics := response.(*kmsg.ProduceResponse).Topics
	if len(topics) != len(request.Topics) {
		return nil, fmt.Errorf("produce answer has %d topics, the request %d", len(topics), len(request.Topics))
	}
	var answers []kmsg.ProduceResponseTopicPartition
	for i, topic := range topics {
		asked := request.Topics[i]
		if len(topic.Partitions) != 1 || topic.Partitions[0].Partition != asked.Partitions[0].Partition ||
			request.Version < 13 && topic.Topic != asked.Topic || request.Version >= 13 && topic.TopicID != asked.TopicID {
			return nil, fmt.Errorf("produce answer names %+v where the request has %s", topic, asked.Topic)
		}
		answers = append(answers, topic.Partitions[0])
	}
	return answers, nil
}
