package prober

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicInfo is a topic as one broker's metadata has it, which may lag behind.
type TopicInfo struct {
	// Topic has the id zero where brokers have none (before 2.8).
	Topic Topic
	// Partitions in the order of the answer.
	Partitions []PartitionInfo
}

// PartitionInfo is where a partition is led.
type PartitionInfo struct {
	Partition int32
	// Leader is a node id; −1: none.
	Leader int32
	// LeaderEpoch; −1: unknown.
	LeaderEpoch int32
	// Code is the error code the broker gave for this partition; 0: none.
	Code int16
	// Replicas are the node ids of those that should have it.
	Replicas []int32
}

// Find is what the answer says of a partition, if it does.
func (i TopicInfo) Find(partition int32) (PartitionInfo, bool) {
	// Brokers list partitions in their order, mostly.
	if n := int(partition); 0 <= n && n < len(i.Partitions) && i.Partitions[n].Partition == partition {
		return i.Partitions[n], true
	}
	for _, p := range i.Partitions {
		if p.Partition == partition {
			return p, true
		}
	}
	return PartitionInfo{}, false
}

// ReadTopic asks a broker for a topic by name. It never creates one: a topic
// that does not exist is a *BrokerError with UNKNOWN_TOPIC_OR_PARTITION (3).
// Calls at the same time share an answer, which is not to be changed.
func (p *Pool) ReadTopic(ctx context.Context, node int32, name string) (TopicInfo, error) {
	info, _, err := p.askTopic(ctx, node, Topic{Name: name})
	if err != nil {
		return TopicInfo{}, fmt.Errorf("read topic %q: %w", name, err)
	}
	return info, nil
}

// ReadTopicByID asks a broker for the topic with an id (Metadata v12, Kafka
// 3.1 and later). An id that no topic has is a *BrokerError with
// UNKNOWN_TOPIC_ID (100). Calls at the same time share an answer.
func (p *Pool) ReadTopicByID(ctx context.Context, node int32, id [16]byte) (TopicInfo, error) {
	info, _, err := p.askTopic(ctx, node, Topic{ID: id})
	if err != nil {
		return TopicInfo{}, fmt.Errorf("read topic with id %x: %w", id, err)
	}
	return info, nil
}

// readTopic asks by name if there is one, else by id.
func (c *conn) readTopic(ctx context.Context, t Topic) (TopicInfo, error) {
	ask := kmsg.NewMetadataRequestTopic()
	use := apiMetadata
	if t.Name != "" {
		ask.Topic = kmsg.StringPtr(t.Name)
	} else {
		ask.TopicID = t.ID
		use = apiMetadataByID
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = append(req.Topics, ask)
	if err := c.setVersion(use, req); err != nil {
		return TopicInfo{}, err
	}
	answers, err := c.roundTrip(ctx, req)
	if err != nil {
		return TopicInfo{}, err
	}
	resp := kmsg.NewPtrMetadataResponse()
	if err := c.decode(req, answers[0], resp); err != nil {
		return TopicInfo{}, err
	}
	if len(resp.Topics) != 1 {
		return TopicInfo{}, c.malformed(use.name, "not one topic")
	}
	got := resp.Topics[0]
	if got.ErrorCode != codeNone {
		return TopicInfo{}, &BrokerError{Code: got.ErrorCode, Op: use.name}
	}
	if got.Topic == nil || t.Name != "" && *got.Topic != t.Name || t.Name == "" && got.TopicID != t.ID {
		return TopicInfo{}, c.malformed(use.name, "not the topic asked for")
	}
	info := TopicInfo{Topic: Topic{Name: *got.Topic, ID: got.TopicID}}
	info.Partitions = make([]PartitionInfo, len(got.Partitions))
	for i, gp := range got.Partitions {
		info.Partitions[i] = PartitionInfo{gp.Partition, gp.Leader, gp.LeaderEpoch, gp.ErrorCode, gp.Replicas}
	}
	return info, nil
}

// knownEpoch is a leader epoch, and when it was asked for, on the Pool's clock.
type knownEpoch struct {
	epoch int32
	at    time.Duration
}

// epochKey is what leader epochs are remembered under.
type epochKey struct {
	topic     string
	id        [16]byte
	partition int32
}

// leaderEpoch returns the partition's leader epoch, remembered or asked of the
// broker itself, which must be the leader. With the epoch it is asked whether
// the name still stands for the same topic: the requests of a view go by name,
// and a topic created anew may have the same epoch. Hence Config.EpochMaxAge.
func (p *Pool) leaderEpoch(ctx context.Context, node int32, t Topic, partition int32) (int32, error) {
	key := epochKey{t.Name, t.ID, partition}
	if known, ok := p.epochs.Get(key); ok && p.fresh(known) {
		return known.epoch, nil
	}
	info, asked, err := p.askTopic(ctx, node, Topic{Name: t.Name})
	if err != nil {
		return 0, err
	}
	if t.ID != ([16]byte{}) && info.Topic.ID != t.ID {
		return 0, &BrokerError{Code: codeUnknownTopicID, Op: apiMetadata.name}
	}
	pi, ok := info.Find(partition)
	// A replica may be down (REPLICA_NOT_AVAILABLE) with the leader well, so
	// what decides is whether a leader is named.
	switch {
	case !ok:
		return 0, &BrokerError{Code: codeUnknownTopic, Op: apiMetadata.name}
	case pi.Leader < 0 || pi.LeaderEpoch < 0:
		return 0, &BrokerError{Code: codeLeaderNotAvailable, Op: apiMetadata.name}
	case pi.Leader != node:
		return 0, &BrokerError{Code: codeNotLeader, Op: apiMetadata.name}
	}
	p.rememberEpoch(key, knownEpoch{pi.LeaderEpoch, asked})
	return pi.LeaderEpoch, nil
}

// rememberEpoch remembers an epoch, unless a newer one is known that is of use.
func (p *Pool) rememberEpoch(key epochKey, e knownEpoch) {
	known, ok := p.epochs.Peek(key)
	newer := known.epoch > e.epoch || known.epoch == e.epoch && known.at > e.at
	if ok && newer && p.fresh(known) {
		return
	}
	p.epochs.Add(key, e)
}

// fresh reports whether an epoch may be used without asking again.
func (p *Pool) fresh(e knownEpoch) bool { return p.cfg.Clock()-e.at < p.cfg.EpochMaxAge }

// rememberEpochs remembers the epochs of all partitions that the broker asked
// says it leads: whoever needs one of them will soon need others. Of a topic
// that would push out too many others', only those that are known already.
func (p *Pool) rememberEpochs(node int32, ask *topicAsk) {
	all := len(ask.info.Partitions) <= p.cfg.Epochs/2
	for _, pi := range ask.info.Partitions {
		if pi.Leader != node || pi.LeaderEpoch < 0 {
			continue
		}
		key := epochKey{ask.info.Topic.Name, ask.info.Topic.ID, pi.Partition}
		if all || p.epochs.Contains(key) {
			p.rememberEpoch(key, knownEpoch{pi.LeaderEpoch, ask.at})
		}
	}
}

// forgetEpoch makes the next leaderEpoch ask, unless another caller has
// learnt a different one meanwhile.
func (p *Pool) forgetEpoch(t Topic, partition, epoch int32) {
	key := epochKey{t.Name, t.ID, partition}
	if known, ok := p.epochs.Peek(key); ok && known.epoch == epoch {
		p.epochs.Remove(key)
	}
}
