package proxy

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// topicSight is what is known of the topic entry of a request whose partitions are
// being examined: it is looked up once for all of them, unless what is known of topics
// turns out to be void meanwhile.
type topicSight struct {
	index   int    // of the topic entry; −1: none yet
	voided  uint64 // topicBook.voided when it was looked up
	name    string
	topic   fencedTopic
	anew    bool // its id is not the request's
	marking fence.Marking
	// code, if not 0, is how all of them are refused.
	code    int16
	message string
}

func (s *topicSight) key(partition int32) ps.Key {
	return ps.Key{Topic: s.name, ID: s.topic.id, Partition: partition}
}

// examine reads a partition under a rule and fills in the entry's batch, or
// says how it is refused: nothing of it has been sent.
func (f *fencing) examine(view *wire.Produce, p *wire.ProducePartition, e *entry, s *topicSight) (int16, string) {
	c := e.x.c
	if view.TransactionalID != nil {
		return kerr.TopicAuthorizationFailed.Code, messageTransactional
	}
	if p.Topic == nil {
		return kerr.NotLeaderForPartition.Code, "the topic's name cannot be found out now; send again"
	}
	if c.node == unknownNode {
		return kerr.NotLeaderForPartition.Code, "this connection is not to a known broker; send to the partition's leader"
	}
	header, code, message := f.examineHeader(view, p)
	if code != 0 {
		return code, message
	}
	f.see(c, view, p, s)
	switch {
	case s.code != 0:
		return s.code, s.message
	case !s.topic.has(p.Partition):
		return kerr.UnknownTopicOrPartition.Code, ""
	}
	e.ticket.Marking = s.marking
	e.idempotent(c, header)
	if code, message := f.inspect(header, p.Records, s.name, &s.topic, e); code != 0 {
		f.refusedBefore(s.key(p.Partition), e)
		return code, message
	}
	if view.Version >= 13 && s.topic.id != p.TopicID {
		if !s.anew { // once for all partitions of the entry, which has one id
			f.topics.forget(s.name)
			s.anew, s.voided = true, f.topics.voided.Load()
		}
		if isIdempotent(p.Records) {
			c.closeAfter(errOutOfTurn) // as after a lookup that fails
		}
		return kerr.UnknownTopicID.Code, "the topic was created anew"
	}
	return 0, ""
}

// see finds out what must be known of a partition's topic, and of the broker.
func (f *fencing) see(c *conn, view *wire.Produce, p *wire.ProducePartition, s *topicSight) {
	voided := f.topics.voided.Load()
	if s.index == p.TopicIndex && s.voided == voided && (s.code != 0 || s.topic.has(p.Partition)) {
		return
	}
	*s = topicSight{index: p.TopicIndex, voided: voided, name: c.rights.nameOf(p.Topic)}
	if s.code, s.message = c.refusedRight(p.Topic); s.code != 0 {
		return
	}
	if s.marking, s.code, s.message = f.examineBroker(c, view); s.code != 0 {
		return
	}
	topic, err := f.topicOf(c, s.name, p.Partition)
	switch {
	case err != nil && isUnknownTopic(err):
		s.code = kerr.UnknownTopicOrPartition.Code
	case err != nil:
		s.code, s.message = kerr.NotLeaderForPartition.Code, "the topic cannot be looked up now; send again"
	case topic.refusal != "":
		s.code, s.message = kerr.PolicyViolation.Code, "topic is not served: "+topic.refusal
	default:
		s.topic = topic
	}
}

// oldestStamped is the Produce version that brought record batches. Answers to
// versions before 2 do not tell a duplicate from an append.
const oldestStamped = 3

// examineHeader reads a batch's header, or says how the batch is refused for it.
func (f *fencing) examineHeader(view *wire.Produce, p *wire.ProducePartition) (wire.BatchHeader, int16, string) {
	if view.Version < oldestStamped {
		return wire.BatchHeader{}, kerr.UnsupportedForMessageFormat.Code, "the topic is fenced: Produce version 3 or later is needed"
	}
	header, err := p.Batch()
	switch {
	case err != nil:
		return header, kafkaCode(err), err.Error()
	case header.Transactional():
		return header, kerr.TopicAuthorizationFailed.Code, messageTransactional
	case header.ProducerID >= 0 && header.BaseSequence < 0:
		return header, kerr.InvalidRecord.Code, messageNoSequence
	case header.ProducerID == f.fenceID:
		return header, kerr.InvalidRecord.Code, "the producer id is the proxies' own; use another"
	}
	return header, 0, ""
}

// inspect reads the batch's records for their conditions and digests.
func (f *fencing) inspect(header wire.BatchHeader, batch []byte, name string, topic *fencedTopic, e *entry) (int16, string) {
	found, err := f.inspectRecords(e.rule, header, batch)
	defer found.done()
	at := e.examined(&found, len(batch))
	if err != nil {
		f.traceIfSampled(e, name, found.in)
		return kafkaCode(err), err.Error()
	}
	e.unconditional = found.Kind == wire.Unconditional
	if found.Kind == wire.Conditional {
		e.ticket.Expected = ps.Offset(found.Expected)
	} else {
		e.ticket.AtEnd, e.ticket.Expected = true, ps.NoOffset
	}
	if !e.unconditional {
		f.traceIfSampled(e, name, found.in)
		e.traced.expects(e.ticket.AtEnd, e.ticket.Expected)
	}
	switch {
	case found.Kind == wire.Unconditional && e.rule.mode == ModeRequire:
		return kerr.InvalidRecord.Code, e.rule.messageNoCondition()
	case topic.appendTime && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, "the topic has LogAppendTime, where equal records cannot be told apart: give every record an append-id header" + e.rule.namedAppendID()
	case topic.typeUnknown && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, messageTypeUnknown + e.rule.namedAppendID()
	case e.ticket.Marking == fence.MarkNone && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, messageUnmarked
	}
	if code, message := f.checkTimestamps(&found.Inspection, topic, e.rule, at.Wall); code != 0 {
		return code, message
	}
	if e.x == nil { // only observed
		return 0, ""
	}
	records := e.x.makeRecords(len(found.Digests))
	for i, d := range found.Digests {
		records[i] = ps.Record{Digest: d, AppendID: found.AllAppendIDs}
	}
	e.maxTime = found.MaxTimestamp
	e.appendTime = topic.appendTime
	e.ticket.Records = records
	e.ticket.Replay = e.rule.replay
	e.ticket.MaxTimestamp = ps.Timestamp(found.MaxTimestamp)
	e.ticket.FirstTimestamp = ps.Timestamp(found.FirstTimestamp)
	return 0, ""
}

// After so many bytes, or batches, that were examined the clock is read again.
const (
	clockBytes   = 256 << 10
	clockBatches = 32
)

// examined gives the time, after a batch was read.
func (e *entry) examined(found *inspection, bytes int) ps.Now {
	x := e.x
	if x == nil {
		return now()
	}
	x.examined += max(bytes, clockBytes/clockBatches)
	if found.turns != nil || x.examined >= clockBytes {
		x.examined, x.c.waited = 0, true
	}
	return x.clock()
}

// checkTimestamps refuses batches with which the fence's producer state would
// expire at once, or whose duplicates could not be told from appends.
func (f *fencing) checkTimestamps(found *wire.Inspection, topic *fencedTopic, r *rule, wall ps.Timestamp) (int16, string) {
	if found.MinTimestamp < 0 {
		return kerr.InvalidTimestamp.Code, "records of a fenced topic need a timestamp"
	}
	oldest := f.core.Load().OldestTimestamp()
	age := wall.Sub(ps.Timestamp(found.MaxTimestamp))
	if !topic.appendTime && age > oldest && !r.options.AllowOldTimestamps {
		return kerr.InvalidTimestamp.Code, fmt.Sprintf(
			"timestamps are older than %s, half of %s: the brokers would forget the fence; load old events into a topic with LogAppendTime", oldest, configProducerExpiry)
	}
	return 0, ""
}
