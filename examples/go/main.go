// Command go BOOTSTRAP TOPIC appends one record to partition 0 at its next
// offset, then asks for the same offset again and is refused.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go BOOTSTRAP TOPIC")
	}
	bootstrap, topic := os.Args[1], os.Args[2]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	offsets, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		log.Fatal(err)
	}
	next, ok := offsets.Lookup(topic, 0)
	if !ok || next.Err != nil {
		log.Fatalf("no offset of %s: %v", topic, next.Err)
	}
	for _, value := range []string{"first", "second"} {
		offset, err := appendAt(ctx, client, topic, next.Offset, value)
		switch {
		case err == nil:
			fmt.Println("appended at", offset)
		case errors.Is(err, kerr.OffsetOutOfRange):
			fmt.Println("refused:", err)
		default: // the record may be in the log: read the partition from next
			fmt.Println("not known to be appended:", err)
		}
	}
}

func appendAt(ctx context.Context, client *kgo.Client, topic string, expected int64, value string) (int64, error) {
	record, err := client.ProduceSync(ctx, &kgo.Record{
		Topic: topic, Partition: 0, Value: []byte(value),
		Headers: []kgo.RecordHeader{
			{Key: "expected-offset", Value: strconv.AppendInt(nil, expected, 10)},
			{Key: "append-id", Value: []byte(rand.Text())},
		},
	}).First()
	if err != nil {
		return 0, err
	}
	return record.Offset, nil
}
