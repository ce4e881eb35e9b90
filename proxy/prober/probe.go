package prober

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// Session names one control connection of a Pool, and with it one life of a
// broker: a broker that restarts, to be another version from then on, loses
// its connections. 0 is none.
type Session uint64

// DuplicateMark is by what a broker tells that it did not append a batch, since
// the same sequences of the producer are in the log already.
type DuplicateMark int

const (
	// Unmarked: by nothing that a probe has seen.
	Unmarked DuplicateMark = iota
	// ByLogAppendTime: log_append_time is −1 only for what is appended
	// (Apache Kafka, on topics with CreateTime).
	ByLogAppendTime
	// ByLogStartOffset: log_start_offset is −1 only for duplicates (kfake).
	ByLogStartOffset
)

// Behaviour is what a probe has seen a broker do with producer ids.
type Behaviour struct {
	// Duplicates is how they are marked.
	Duplicates DuplicateMark
	// ListsIdle: DescribeProducers lists producers without a transaction.
	ListsIdle bool
	// ArmsAnywhere: a producer id without state may begin at any sequence, not
	// only at 0, in a partition that was written before.
	ArmsAnywhere bool
	// ChecksSequences: a batch whose sequence leaves a gap is refused. Without
	// that nothing can be fenced.
	ChecksSequences bool
}

var (
	// ErrProbeTimestamps says that the probe topic has LogAppendTime, where the
	// mark of Apache Kafka cannot be seen.
	ErrProbeTimestamps = errors.New("the probe topic has message.timestamp.type=LogAppendTime")
	// ErrNotProbed answers what needs to know a broker's behaviour on a
	// connection on which it was neither probed nor assumed.
	ErrNotProbed = errors.New("the broker has not been probed on this connection")
)

// NoProbePartitionError says that a broker leads no partition of the probe
// topic.
type NoProbePartitionError struct {
	// Partitions is how many the topic has.
	Partitions int32
	// Replica: the broker has a replica of one, so it may come to lead.
	Replica bool
}

// Error implements error.
func (e *NoProbePartitionError) Error() string {
	return "the broker leads no partition of the probe topic"
}

// apiProbe is Produce with log_start_offset in its answer, by topic name.
var apiProbe = api{int16(kmsg.Produce), "Produce", 5, 9}

// firstProbeID is far above what brokers hand out, which count from 0.
const firstProbeID = int64(1) << 62

// Probe finds out how a broker deals with producer ids, on a partition that it
// leads of a topic made for that. It writes up to four records of two random
// producer ids, and remembers the behaviour with the connection, whose session
// it returns (see Config.StateFrom).
//
// Needs DESCRIBE, READ and WRITE on the topic. Errors: *NoProbePartitionError,
// ErrProbeTimestamps, and those of ReadView; *BrokerError.Op tells which right
// is missing.
func (p *Pool) Probe(ctx context.Context, node int32, topic string) (Behaviour, Session, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return Behaviour{}, 0, err
	}
	b, err := p.probe(ctx, c, topic)
	if err != nil {
		return Behaviour{}, 0, fmt.Errorf("probe broker %d on topic %q: %w", node, topic, err)
	}
	source := TailBatch
	if b.ListsIdle {
		source = Describe
	}
	c.assumed.Store(&assumption{source, !b.ArmsAnywhere})
	return b, c.session, nil
}

// Confirm reports, by nil, that a session goes on: the broker has answered on
// it since the call. Otherwise the error is ErrNotProbed, and those of ReadView.
func (p *Pool) Confirm(ctx context.Context, node int32, s Session) error {
	c, err := p.connection(ctx, node)
	if err != nil {
		return err
	}
	if c.session != s {
		return ErrNotProbed
	}
	req := kmsg.NewPtrApiVersionsRequest() // needs no right, and is answered at once
	req.Version = 0
	_, err = c.roundTrip(ctx, req)
	return err
}

// Assume has views of this broker read from a source for as long as its
// connection lasts, without a probe.
func (p *Pool) Assume(ctx context.Context, node int32, source StateSource) error {
	c, err := p.connection(ctx, node)
	if err != nil {
		return err
	}
	c.assumed.Store(&assumption{source: source})
	return nil
}

func (p *Pool) probe(ctx context.Context, c *conn, topic string) (Behaviour, error) {
	info, err := c.readTopic(ctx, Topic{Name: topic})
	if err != nil {
		return Behaviour{}, err
	}
	partition, err := probePartition(info, c.node)
	if err != nil {
		return Behaviour{}, err
	}
	// The first id's batch is written to begin with, so that the partition was
	// written before when the second id begins in the middle: brokers may want
	// the very first batch of a partition to have sequence 0.
	first, second := p.probeID(), p.probeID()
	at := target{conn: c, topic: Topic{Name: topic}, partition: partition}
	written := p.cfg.WallClock()
	fresh, again := at.probeBatch(written, first, 0), at.probeBatch(written, first, 0)
	gap, armed := at.probeBatch(written, first, 5), at.probeBatch(written, second, 7)
	producers, err := at.producers()
	if err != nil {
		return Behaviour{}, err
	}
	for _, r := range []*kmsg.ProduceRequest{fresh, again, gap, armed} {
		if err := c.setVersion(apiProbe, r); err != nil {
			return Behaviour{}, err
		}
	}
	answers, err := c.roundTrip(ctx, fresh, again, producers, gap, armed)
	if err != nil {
		return Behaviour{}, err
	}
	var told [4]kmsg.ProduceResponseTopicPartition
	for i, of := range []struct {
		req    kmsg.Request
		answer []byte
	}{{fresh, answers[0]}, {again, answers[1]}, {gap, answers[3]}, {armed, answers[4]}} {
		if told[i], err = at.probeAnswer(of.req, of.answer); err != nil {
			return Behaviour{}, err
		}
	}
	state, err := at.producersAnswer(producers, answers[2], first)
	if err != nil {
		return Behaviour{}, err
	}
	return behaviour(told[0], told[1], told[2], told[3], state.has)
}

// behaviour judges the answers to a batch, to the same batch again, to one that
// leaves a gap, and to the first of another producer with a sequence above 0.
func behaviour(fresh, again, gap, armed kmsg.ProduceResponseTopicPartition, listed bool) (Behaviour, error) {
	switch {
	case fresh.ErrorCode != codeNone:
		return Behaviour{}, refusal(apiProbe, fresh.ErrorCode, fresh.ErrorMessage)
	case fresh.LogAppendTime != -1:
		return Behaviour{}, ErrProbeTimestamps
	}
	b := Behaviour{ListsIdle: listed}
	switch gap.ErrorCode {
	case codeNone:
	case codeOutOfOrderSequence:
		b.ChecksSequences = true
	default:
		return Behaviour{}, refusal(apiProbe, gap.ErrorCode, gap.ErrorMessage)
	}
	switch armed.ErrorCode {
	case codeNone:
		b.ArmsAnywhere = true
	case codeOutOfOrderSequence, codeUnknownProducerID:
	default:
		return Behaviour{}, refusal(apiProbe, armed.ErrorCode, armed.ErrorMessage)
	}
	switch {
	case again.ErrorCode == codeOutOfOrderSequence, again.ErrorCode == codeDuplicateSequence:
		// Told by an error.
	case again.ErrorCode != codeNone:
		return Behaviour{}, refusal(apiProbe, again.ErrorCode, again.ErrorMessage)
	case again.BaseOffset != fresh.BaseOffset:
		// Appended again, it seems: what takes a sequence twice fences nothing.
		b.ChecksSequences = b.ChecksSequences && again.BaseOffset < 0
	case again.LogAppendTime != -1:
		b.Duplicates = ByLogAppendTime
	case again.LogStartOffset == -1 && fresh.LogStartOffset >= 0:
		b.Duplicates = ByLogStartOffset
	}
	return b, nil
}

// probePartition finds a partition that the node leads.
func probePartition(info TopicInfo, node int32) (int32, error) {
	none := &NoProbePartitionError{Partitions: int32(len(info.Partitions))}
	for _, pi := range info.Partitions {
		if pi.Leader == node {
			return pi.Partition, nil
		}
		none.Replica = none.Replica || slices.Contains(pi.Replicas, node)
	}
	return 0, none
}

// probeID picks a producer id that nobody else has.
func (p *Pool) probeID() int64 {
	for {
		if id := firstProbeID | rand.Int64N(firstProbeID); id != p.cfg.FenceID {
			return id
		}
	}
}

// probeBatch makes a request with one record. It asks for an answer as soon as
// the leader has it: a partition of a probe topic may have one replica.
func (t target) probeBatch(written time.Time, id int64, sequence int32) *kmsg.ProduceRequest {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = t.partition, probeRecords(id, sequence, written.UnixMilli())
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = t.topic.Name
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, int32(t.conn.timeout.Milliseconds())
	req.Topics = append(req.Topics, topic)
	return req
}

// probeRecords is a batch with one record, whose key is there for topics that
// are compacted.
func probeRecords(id int64, sequence int32, timestamp int64) []byte {
	record := []byte{7 << 1, 0, 0, 0, 1 << 1, 'p', 1, 0} // length, attributes, deltas, key, no value, no headers
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, NumRecords: 1,
		FirstTimestamp: timestamp, MaxTimestamp: timestamp, Records: record,
	}
	records := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(records[8:], uint32(len(records)-12))
	wire.Seal(records)
	wire.Stamp(records, id, 0, sequence, timestamp)
	return records
}

// probeAnswer gives what was said of the partition.
func (t target) probeAnswer(req kmsg.Request, answer []byte) (kmsg.ProduceResponseTopicPartition, error) {
	resp := kmsg.NewPtrProduceResponse()
	if err := t.conn.decode(req, answer, resp); err != nil {
		return kmsg.ProduceResponseTopicPartition{}, err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != t.topic.Name || len(resp.Topics[0].Partitions) != 1 ||
		resp.Topics[0].Partitions[0].Partition != t.partition {
		return kmsg.ProduceResponseTopicPartition{}, t.conn.malformed(apiProbe.name, "not the partition asked for")
	}
	return resp.Topics[0].Partitions[0], nil
}
