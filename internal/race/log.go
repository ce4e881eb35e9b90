package race

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Stored is one record of the log.
type Stored struct {
	Offset appender.Offset
	Value  string
}

// ReadLog reads a partition from its start to its end as of now, from the
// brokers given, uncommitted transactions included; opts are for the client that
// reads.
func ReadLog(ctx context.Context, bootstrap []string, topic string, partition appender.Partition, opts ...kgo.Opt) ([]Stored, error) {
	client, err := kgo.NewClient(append(opts,
		kgo.SeedBrokers(bootstrap...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(partition): kgo.NewOffset().AtStart()}}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read the log's end: %w", err)
	}
	end, ok := ends.Lookup(topic, int32(partition))
	if !ok {
		return nil, fmt.Errorf("read the log's end: no partition %d", partition)
	}
	var log []Stored
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read the log from %d: %w", next, err)
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("read the log from %d: %w", next, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < end.Offset {
				log = append(log, Stored{Offset: appender.Offset(r.Offset), Value: string(r.Value)})
			}
			next = r.Offset + 1
		})
	}
	return log, nil
}
