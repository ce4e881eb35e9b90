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
}

// ReadTopic asks a broker for a topic by name. It never creates one: a topic
// that does not exist is a *BrokerError with UNKNOWN_TOPIC_OR_PARTITION (3).
func (p *Pool) ReadTopic(ctx context.Context, node int32, name string) (TopicInfo, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return TopicInfo{}, fmt.Errorf("read topic %q: %w", name, err)
	}
	info, err := c.readTopic(ctx, Topic{Name: name})
	if err != nil {
		return TopicInfo{}, fmt.Errorf("read topic %q: %w", name, err)
	}
	return info, nil
}

// ReadTopicByID asks a broker for the topic with an id (Metadata v12, Kafka
// 3.1 and later). An id that no topic has is a *BrokerError with
// UNKNOWN_TOPIC_ID (100).
func (p *Pool) ReadTopicByID(ctx context.Context, node int32, id [16]byte) (TopicInfo, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return TopicInfo{}, fmt.Errorf("read topic with id %x: %w", id, err)
	}
	info, err := c.readTopic(ctx, Topic{ID: id})
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
		info.Partitions[i] = PartitionInfo{gp.Partition, gp.Leader, gp.LeaderEpoch, gp.ErrorCode}
	}
	return info, nil
}

// knownEpoch is a leader epoch, and when it was asked for.
type knownEpoch struct {
	epoch int32
	at    time.Time
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
func (p *Pool) leaderEpoch(ctx context.Context, c *conn, t Topic, partition int32) (int32, error) {
	key := epochKey{t.Name, t.ID, partition}
	if known, ok := p.epochs.Get(key); ok && time.Since(known.at) < p.cfg.EpochMaxAge {
		return known.epoch, nil
	}
	asked := time.Now()
	info, err := c.readTopic(ctx, Topic{Name: t.Name})
	if err != nil {
		return 0, err
	}
	if t.ID != ([16]byte{}) && info.Topic.ID != t.ID {
		return 0, &BrokerError{Code: codeUnknownTopicID, Op: apiMetadata.name}
	}
	p.refreshEpochs(t, info, c.node, asked)
	for _, pi := range info.Partitions {
		if pi.Partition != partition {
			continue
		}
		// A replica may be down (REPLICA_NOT_AVAILABLE) with the leader well,
		// so what decides is whether a leader is named.
		switch {
		case pi.Leader < 0 || pi.LeaderEpoch < 0:
			return 0, &BrokerError{Code: codeLeaderNotAvailable, Op: apiMetadata.name}
		case pi.Leader != c.node:
			return 0, &BrokerError{Code: codeNotLeader, Op: apiMetadata.name}
		}
		p.epochs.Add(key, knownEpoch{pi.LeaderEpoch, asked})
		return pi.LeaderEpoch, nil
	}
	return 0, &BrokerError{Code: codeUnknownTopic, Op: apiMetadata.name}
}

// refreshEpochs renews remembered epochs that an answer raises or confirms:
// after an election most partitions of a topic need it at once.
func (p *Pool) refreshEpochs(t Topic, info TopicInfo, node int32, asked time.Time) {
	for _, pi := range info.Partitions {
		if pi.Leader != node {
			continue
		}
		key := epochKey{t.Name, t.ID, pi.Partition}
		if known, ok := p.epochs.Peek(key); ok && known.epoch <= pi.LeaderEpoch {
			p.epochs.Add(key, knownEpoch{pi.LeaderEpoch, asked})
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
