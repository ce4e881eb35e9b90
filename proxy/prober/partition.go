package prober

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps that ListOffsets gives a meaning to.
const (
	latest   int64 = -1
	earliest int64 = -2
)

// consumerReplica is the replica id of those who are none; the broker then
// answers only as leader, and with the high watermark instead of the log end.
const consumerReplica int32 = -1

// target is a partition in an epoch, on the connection to its leader. Its
// methods come in pairs: one makes a request, the other reads its answer.
type target struct {
	conn      *conn
	topic     Topic
	partition int32
	epoch     int32
}

// epochEnd asks for the end of the current epoch, which is the log end.
func (t target) epochEnd() (*kmsg.OffsetForLeaderEpochRequest, error) {
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = t.partition, t.epoch, t.epoch
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = t.topic.Name
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = consumerReplica
	req.Topics = append(req.Topics, topic)
	return req, t.conn.setVersion(apiEpochEnd, req)
}

// epochEndAnswer returns the log end. An end that belongs to another epoch
// counts as UNKNOWN_LEADER_EPOCH.
func (t target) epochEndAnswer(req kmsg.Request, answer []byte) (int64, error) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	if err := t.conn.decode(req, answer, resp); err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != t.topic.Name || len(resp.Topics[0].Partitions) != 1 ||
		resp.Topics[0].Partitions[0].Partition != t.partition {
		return 0, t.conn.malformed(apiEpochEnd.name, "not the partition asked for")
	}
	p := resp.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode != codeNone:
		return 0, &BrokerError{Code: p.ErrorCode, Op: apiEpochEnd.name}
	case p.LeaderEpoch != t.epoch:
		return 0, &BrokerError{Code: codeUnknownLeaderEpoch, Op: apiEpochEnd.name}
	case p.EndOffset < 0:
		return 0, t.conn.malformed(apiEpochEnd.name, fmt.Sprintf("end offset %d", p.EndOffset))
	}
	return p.EndOffset, nil
}

// producers asks for all producer ids with state.
func (t target) producers() (*kmsg.DescribeProducersRequest, error) {
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic = t.topic.Name
	topic.Partitions = []int32{t.partition}
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = append(req.Topics, topic)
	return req, t.conn.setVersion(apiDescribeProducers, req)
}

// fenceState is the state of the fence id in a partition.
type fenceState struct {
	has           bool
	lastSequence  int32
	epoch         int16
	lastTimestamp int64
}

var noState = fenceState{lastSequence: -1, epoch: -1, lastTimestamp: -1}

// producersAnswer finds the fence among the producers.
func (t target) producersAnswer(req kmsg.Request, answer []byte, fence int64) (fenceState, error) {
	resp := kmsg.NewPtrDescribeProducersResponse()
	if err := t.conn.decode(req, answer, resp); err != nil {
		return noState, err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != t.topic.Name || len(resp.Topics[0].Partitions) != 1 ||
		resp.Topics[0].Partitions[0].Partition != t.partition {
		return noState, t.conn.malformed(apiDescribeProducers.name, "not the partition asked for")
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != codeNone {
		return noState, &BrokerError{Code: p.ErrorCode, Op: apiDescribeProducers.name}
	}
	for _, a := range p.ActiveProducers {
		if a.ProducerID != fence {
			continue
		}
		epoch := int16(a.ProducerEpoch)
		if int32(epoch) != a.ProducerEpoch || epoch < 0 || a.LastSequence < -1 {
			return noState, t.conn.malformed(apiDescribeProducers.name, "producer state out of range")
		}
		return fenceState{true, a.LastSequence, epoch, max(a.LastTimestamp, -1)}, nil
	}
	return noState, nil
}

// offset asks for the offset at latest (the high watermark) or earliest.
func (t target) offset(at int64) (*kmsg.ListOffsetsRequest, error) {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = t.partition, t.epoch, at
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = t.topic.Name
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = consumerReplica
	req.IsolationLevel = 0 // read_committed would answer the last stable offset
	req.Topics = append(req.Topics, topic)
	return req, t.conn.setVersion(apiListOffsets, req)
}

// offsetAnswer returns the offset, −1 where the broker does not know it yet
// (OFFSET_NOT_AVAILABLE). The epoch answered is that of the record there, so
// it says nothing that current_leader_epoch has not.
func (t target) offsetAnswer(req kmsg.Request, answer []byte) (int64, error) {
	resp := kmsg.NewPtrListOffsetsResponse()
	if err := t.conn.decode(req, answer, resp); err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != t.topic.Name || len(resp.Topics[0].Partitions) != 1 ||
		resp.Topics[0].Partitions[0].Partition != t.partition {
		return 0, t.conn.malformed(apiListOffsets.name, "not the partition asked for")
	}
	p := resp.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode == codeOffsetNotAvailable:
		return -1, nil
	case p.ErrorCode != codeNone:
		return 0, &BrokerError{Code: p.ErrorCode, Op: apiListOffsets.name}
	case p.Offset < 0:
		return 0, t.conn.malformed(apiListOffsets.name, fmt.Sprintf("offset %d", p.Offset))
	}
	return p.Offset, nil
}

// fetch asks for the batches from offset on, uncommitted transactions too. At
// least one whole batch comes if there is one, however small maxBytes
// (KIP-74).
func (t target) fetch(offset int64, maxBytes int) (*kmsg.FetchRequest, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = t.partition, t.epoch, offset
	p.PartitionMaxBytes = int32(maxBytes)
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = t.topic.Name, t.topic.ID
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = consumerReplica
	req.MaxWaitMillis, req.MinBytes = 0, 0
	req.MaxBytes = int32(maxBytes)
	req.IsolationLevel = 0
	req.SessionEpoch = -1 // no fetch session (KIP-227)
	req.Topics = append(req.Topics, topic)
	if t.topic.ID != ([16]byte{}) {
		if err := t.conn.setVersion(apiFetchByID, req); err == nil {
			return req, nil
		} // else by name, as the broker has no ids
	}
	return req, t.conn.setVersion(apiFetch, req)
}

// fetched is what a Fetch answered.
type fetched struct {
	highWatermark, logStart int64
	// batches is a record set whose last batch may be incomplete.
	batches []byte
}

func (t target) fetchAnswer(req kmsg.Request, answer []byte) (fetched, error) {
	resp := kmsg.NewPtrFetchResponse()
	if err := t.conn.decode(req, answer, resp); err != nil {
		return fetched{}, err
	}
	if resp.ErrorCode != codeNone {
		return fetched{}, &BrokerError{Code: resp.ErrorCode, Op: apiFetch.name}
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != t.partition {
		return fetched{}, t.conn.malformed(apiFetch.name, "not the partition asked for")
	}
	topic := resp.Topics[0]
	if req.GetVersion() >= apiFetchByID.min && topic.TopicID != t.topic.ID ||
		req.GetVersion() < apiFetchByID.min && topic.Topic != t.topic.Name {
		return fetched{}, t.conn.malformed(apiFetch.name, "not the topic asked for")
	}
	p := topic.Partitions[0]
	if p.ErrorCode != codeNone {
		return fetched{}, &BrokerError{Code: p.ErrorCode, Op: apiFetch.name}
	}
	if p.HighWatermark < 0 {
		return fetched{}, t.conn.malformed(apiFetch.name, "no high watermark")
	}
	return fetched{p.HighWatermark, max(p.LogStartOffset, -1), p.RecordBatches}, nil
}
