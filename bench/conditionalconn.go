package main

import (
	"bufio"
	"context"
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

const listOffsetsVersion = 5

// appendConn is a raw writer's connection to one broker, direct or through a
// proxy. Not for concurrent use, but that one goroutine may send while another
// receives.
type appendConn struct {
	conn     net.Conn
	in       *bufio.Reader
	stop     func() bool
	answer   []byte
	response kmsg.ProduceResponse
}

// dialAppend connects; the connection breaks when ctx ends.
func dialAppend(ctx context.Context, t *target) (*appendConn, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &appendConn{
		conn: conn, in: bufio.NewReaderSize(conn, 4<<10),
		stop:     context.AfterFunc(ctx, func() { _ = conn.Close() }),
		response: kmsg.NewProduceResponse(),
	}, nil
}

// close ends the connection.
func (c *appendConn) close() {
	c.stop()
	_ = c.conn.Close()
}

// send writes a frame.
func (c *appendConn) send(f *appendFrame) error {
	_, err := c.conn.Write(f.bytes)
	return err
}

// receive reads one answer, without its length. It is valid until the next.
func (c *appendConn) receive() (answer []byte, err error) {
	c.answer, err = readAnswer(c.in, c.answer)
	return c.answer, err
}

// acked is the answer to one batch.
type acked struct {
	code    int16
	base    offset
	message string
}

// err is nil for an append, else what the answer says: as of appender.Verdict.
func (a acked) err(expected offset) error {
	return appender.Verdict(appender.Offset(expected), appender.Code(a.code), appender.Offset(a.base), a.message)
}

// acknowledgement reads the answer to one frame.
func (c *appendConn) acknowledgement() (acked, error) {
	answer, err := c.receive()
	if err != nil {
		return acked{}, err
	}
	c.response.Version = produceVersion
	p, err := producedPart(answer, &c.response)
	if err != nil {
		return acked{}, err
	}
	a := acked{code: p.ErrorCode, base: offset(p.BaseOffset)}
	if p.ErrorMessage != nil {
		a.message = *p.ErrorMessage
	}
	return a, nil
}

// call sends one frame and reads its answer.
func (c *appendConn) call(f *appendFrame) (acked, error) {
	if err := c.send(f); err != nil {
		return acked{}, err
	}
	return c.acknowledgement()
}

var errNoEnd = errors.New("the answer to a ListOffsets does not name its partition")

// endRequest is a question for the end of a partition, encoded once.
type endRequest []byte

func newEndRequest(topic string, partition int32) endRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.Version = listOffsetsVersion
	request.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 0)
}

// end asks for a partition's next offset.
func (c *appendConn) end(request endRequest) (offset, error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, err
	}
	answer, err := c.receive()
	if err != nil {
		return 0, err
	}
	response := kmsg.NewPtrListOffsetsResponse()
	response.Version = listOffsetsVersion
	if err := response.ReadFrom(answer[4:]); err != nil {
		return 0, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return 0, errNoEnd
	}
	p := response.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return 0, &appender.BrokerError{Code: appender.Code(p.ErrorCode)}
	}
	return offset(p.Offset), nil
}
