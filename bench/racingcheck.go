package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// wrong counts the acknowledgements that are not true: told at another offset than
// was expected, or for a record that does not lie there.
func (r *race) wrong(log map[offset]mark) int {
	n := 0
	for _, a := range r.appends {
		if a.at != a.expected || log[a.at] != a.mark {
			n++
		}
	}
	return n
}

// readMarks reads a partition from an offset to its end as of now, through t, which should be
// the broker itself.
func readMarks(ctx context.Context, t *target, topic string, partition int32, from offset) (map[offset]mark, error) {
	client, err := t.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(int64(from))}}))
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	defer client.Close()
	end, err := endOf(ctx, client, topic, partition)
	if err != nil {
		return nil, err
	}
	log := make(map[offset]mark, max(end-from, 0))
	for next := from; next < end; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read the log from %d: %w", next, err)
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("read the log from %d: %w", next, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if m, ok := markOf(r.Value); ok {
				log[offset(r.Offset)] = m
			}
			next = offset(r.Offset) + 1
		})
	}
	return log, nil
}

// endOf asks for the next offset of a partition.
func endOf(ctx context.Context, client *kgo.Client, topic string, partition int32) (offset, error) {
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("read the log's end: %w", err)
	}
	end, ok := ends.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("read the log's end: topic %s has no partition %d", topic, partition)
	}
	return offset(end.Offset), nil
}
