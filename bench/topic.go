package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const topicTimeout = 30 * time.Second

// base is the target through which topics are made.
func (r *run) base() *target { return r.targets[0] }

// makeTopic makes an empty topic, in place of one that an earlier run has left,
// and waits until it has leaders.
func (r *run) makeTopic(ctx context.Context, topic string, partitions int32) error {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	client, err := r.base().client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	// A name is taken for a moment after its topic is gone.
	var last error
	for ctx.Err() == nil {
		if _, last = admin.CreateTopic(ctx, partitions, max(r.replicas, 1), nil, topic); last == nil {
			break
		}
		if !errors.Is(last, kerr.TopicAlreadyExists) && !kerr.IsRetriable(last) {
			return fmt.Errorf("create topic %s: %w", topic, last)
		}
		pause(ctx, 20*time.Millisecond)
	}
	for ctx.Err() == nil {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if last = errors.Join(err, ends.Error()); last == nil && len(ends[topic]) == int(partitions) {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("topic %s has no leaders after %s: %w", topic, topicTimeout, errors.Join(last, ctx.Err()))
}

// ends are the next offsets of a topic's partitions, as the base tells them.
func (r *run) ends(ctx context.Context, topic string) ([]int64, error) {
	client, err := r.base().client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, fmt.Errorf("ends of topic %s: %w", topic, err)
	}
	out := make([]int64, len(listed[topic]))
	for p, end := range listed[topic] {
		out[p] = end.Offset
	}
	return out, nil
}

// empty lets the broker forget what a topic holds, so that a long run does not
// fill the disk. Offsets go on.
func (r *run) empty(ctx context.Context, topic string) error {
	client, err := r.base().client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return fmt.Errorf("ends of topic %s: %w", topic, err)
	}
	deleted, err := admin.DeleteRecords(ctx, ends.Offsets())
	if err = errors.Join(err, deleted.Error()); err != nil {
		return fmt.Errorf("empty topic %s: %w", topic, err)
	}
	return nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
