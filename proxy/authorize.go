package proxy

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// Much of what a client is told under a rule is told without asking the broker,
// by whose ACLs the client may not have a right to it: where a log ends, that a
// record is in it. And what a client sends counts before the broker has seen
// it: it waits in line, and moves what is known of its producer id. So before
// the first batch of a connection for a topic under a rule, the broker is asked
// on that connection, as which it knows the client, whether the client may
// write there. It is asked by a Produce that appends nothing, to a partition that
// no topic has: brokers look at rights first. Metadata tells them too (KIP-430),
// with all partitions of a topic, for each connection.

// writeRightAge is for how long the answer counts.
const writeRightAge = 10 * time.Minute

const (
	// rightsVersion of Produce has headers without tagged fields and names topics
	// by name; every broker since 2.4 has it.
	rightsVersion = 8
	// rightsPartition is the partition that no topic has.
	rightsPartition = math.MaxInt32
)

const (
	messageMayNotWrite   = "the client may not write to the topic: grant its principal WRITE"
	messageRightsUnknown = "whether the client may write to the topic cannot be found out now; send again"
)

// writeRights is what one connection's client may write to. The clientLoop's own.
type writeRights struct {
	allowed map[string]writeRight
	denied  map[string]bool // of the request at hand
}

// writeRight is the right to write to a topic.
type writeRight struct {
	name  string     // the topic's
	asked ps.Instant // when the answer was asked for
}

// knows reports whether nothing has to be asked about a topic.
func (w *writeRights) knows(topic []byte, at ps.Instant) bool {
	right, ok := w.allowed[string(topic)]
	return ok && at.Sub(right.asked) < writeRightAge
}

// nameOf is a topic's name as a string. It does not allocate where the right to
// the topic is known.
func (w *writeRights) nameOf(topic []byte) string {
	if right, ok := w.allowed[string(topic)]; ok {
		return right.name
	}
	return string(topic)
}

// askRights finds out whether the client may write to the topics under a rule
// that a request names, as far as that is not known. Topics of which it does not
// find out are neither allowed nor denied.
func (f *fencing) askRights(x *exchange, view *wire.Produce, rules []*rule) {
	c, at := x.c, x.clock().Instant
	clear(c.rights.denied)
	var ask []kmsg.ProduceRequestTopic
	var asked map[string]bool
	looked := -1 // the topic entry that was looked at
	for i := range view.Partitions {
		topic := view.Partitions[i].Topic
		if topic == nil || !rules[i].fenced() || view.Partitions[i].TopicIndex == looked {
			continue
		}
		looked = view.Partitions[i].TopicIndex
		if c.rights.knows(topic, at) || asked[string(topic)] {
			continue
		}
		if asked == nil {
			asked = map[string]bool{}
		}
		nothing := kmsg.NewProduceRequestTopicPartition()
		nothing.Partition, nothing.Records = rightsPartition, []byte{}
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.Partitions = string(topic), append(t.Partitions, nothing)
		asked[t.Topic] = true
		ask = append(ask, t)
	}
	if len(ask) == 0 || c.node == unknownNode {
		return
	}
	answer, err := c.askUpstream(ask, x.clientID)
	if err != nil {
		f.logger.Debug("client's rights cannot be found out", "remote", c.remote(), "err", err)
		return
	}
	if len(c.rights.allowed)+len(ask) > f.maxPartitions {
		clear(c.rights.allowed)
	}
	for i := range answer.Topics {
		t := &answer.Topics[i]
		if !asked[t.Topic] || len(t.Partitions) != 1 {
			continue
		}
		switch t.Partitions[0].ErrorCode {
		case kerr.UnknownTopicOrPartition.Code:
			c.rights.allow(t.Topic, at)
		case kerr.TopicAuthorizationFailed.Code:
			c.rights.deny(t.Topic)
		}
	}
}

func (w *writeRights) allow(topic string, at ps.Instant) {
	if w.allowed == nil {
		w.allowed = map[string]writeRight{}
	}
	w.allowed[topic] = writeRight{topic, at}
}

func (w *writeRights) deny(topic string) {
	if w.denied == nil {
		w.denied = map[string]bool{}
	}
	w.denied[topic] = true
	delete(w.allowed, topic)
}

// refusedRight says how a batch is refused for what its client may not do.
func (c *conn) refusedRight(topic []byte) (int16, string) {
	switch _, allowed := c.rights.allowed[string(topic)]; {
	case c.rights.denied[string(topic)]:
		return kerr.TopicAuthorizationFailed.Code, messageMayNotWrite
	case !allowed:
		return kerr.NotLeaderForPartition.Code, messageRightsUnknown
	}
	return 0, ""
}

// askUpstream asks the broker about topics, as the client, and waits for the
// answer behind those of the client's requests that are on their way. It runs
// on the clientLoop.
func (c *conn) askUpstream(topics []kmsg.ProduceRequestTopic, clientID []byte) (*kmsg.ProduceResponse, error) {
	ctx, cancel, err := c.lookup()
	if err != nil {
		return nil, err
	}
	defer cancel()
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks, request.Topics = rightsVersion, 1, topics
	request.TimeoutMillis = int32(c.p.cfg.LookupTimeout.Milliseconds())
	var as []kmsg.RequestFormatterOpt
	if clientID != nil {
		as = append(as, kmsg.FormatterClientID(string(clientID)))
	}
	frame := kmsg.NewRequestFormatter(as...).AppendRequest(nil, request, 0)
	type outcome struct {
		answer *kmsg.ProduceResponse
		err    error
	}
	told := make(chan outcome, 1) // one send, which never blocks
	err = c.sendUpstream(frame, func(body []byte, err error) {
		answer := kmsg.NewPtrProduceResponse()
		answer.Version = rightsVersion
		if err == nil {
			if err = answer.ReadFrom(body); err != nil {
				err = fmt.Errorf("%w: rights: %w", errAnswer, err)
			}
		}
		told <- outcome{answer, err}
	})
	if err == nil {
		err = c.flushUpstream()
	}
	if err != nil {
		return nil, err
	}
	select {
	case o := <-told:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
