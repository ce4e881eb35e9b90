package verify

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// flight is one transmission on its way.
type flight struct {
	link      *link
	partition Partition
	expected  Offset
	addr      string
	conn      *appender.Conn // nil: it has not left, or nothing is to be waited for
	request   *kmsg.ProduceRequest
	try       Try
	// message is the answer's, for people.
	message string
}

// depart sends a batch, if it can.
func (w *writer) depart(ctx context.Context, l *link, op *Op, c cut, batch []byte) flight {
	f := flight{
		link: l, partition: op.Partition, expected: op.Expected,
		try: Try{Offset: NoOffset, Next: NoOffset, Proxy: l.proxy, First: c.first, Records: c.records, Start: w.clock()},
	}
	if op.Expected != NoOffset {
		f.expected += Offset(c.first)
	}
	var err error
	if f.addr, err = l.leader(ctx, op.Partition); err != nil {
		f.try.End = w.clock()
		return f
	}
	conn, err := l.conn(ctx, f.addr)
	if err == nil {
		f.request = w.request(op.Partition, batch)
		f.try.Start = w.clock()
		err = conn.Send(f.request)
	}
	if err == nil {
		f.conn = conn
		return f
	}
	var failed *appender.ExchangeError
	if errors.As(err, &failed) && failed.Sent {
		f.try.Outcome = Unknown
	}
	f.lost()
	f.try.End = w.clock()
	return f
}

// arrive waits for the answer.
func (w *writer) arrive(f *flight) {
	if f.conn == nil {
		return
	}
	answer, err := f.conn.Receive(f.request)
	f.try.End = w.clock()
	f.try.Outcome = Unknown
	if err != nil {
		f.lost()
		return
	}
	for _, t := range answer.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if t.Topic != f.link.topic || p.Partition != int32(f.partition) {
				continue
			}
			if p.ErrorMessage != nil {
				f.message = *p.ErrorMessage
			}
			f.try.said(f.expected, p.ErrorCode, Offset(p.BaseOffset), f.message)
			if f.try.passing() || f.try.Outcome == Unknown {
				f.link.forget(f.partition) // the leader may have moved
			}
		}
	}
}

// lost: the connection is of no use any more.
func (f *flight) lost() {
	f.link.drop(f.addr)
	f.link.forget(f.partition)
}

// request makes a Produce with acks=all.
func (w *writer) request(p Partition, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(produceVersion)
	req.Acks = -1
	req.TimeoutMillis = int32(w.run.cfg.RequestTimeout.Milliseconds())
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = w.run.cfg.Topic
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = int32(p), batch
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// passing tells whether a refusal may go away by sending again.
func (t *Try) passing() bool {
	return t.Outcome == Refused && (&appender.BrokerError{Code: appender.Code(t.Code)}).MayPass()
}
