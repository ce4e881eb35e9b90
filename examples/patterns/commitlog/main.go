// Command commitlog BOOTSTRAP TOPIC NAME... keeps a state machine in a log: who has which
// seat. Each NAME reads partition 0 to its end, takes the lowest free seat, and appends
// that on the condition that the end has not moved. It ends when no seat is free.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const seats = 40

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: commitlog BOOTSTRAP TOPIC NAME...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range os.Args[3:] {
		wg.Go(func() {
			if err := takeSeats(ctx, os.Args[1], os.Args[2], name); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// replica is the state that the log says, up to an offset.
type replica struct {
	client *kgo.Client // reads partition 0 from its start
	topic  string
	next   int64         // the first offset that the state does not hold yet
	owner  [seats]string // by seat; "": free
}

// entry is one append: the same value, offset and id each time it is sent.
type entry struct {
	at        int64
	value, id string
}

func takeSeats(ctx context.Context, bootstrap, topic, name string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(10*time.Second), // then the outcome is unknown
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	r := &replica{client: client, topic: topic}
	var pending *entry // sent, and not known to be in the log or never to be
	for {
		if err := r.catchUp(ctx); err != nil {
			return err
		}
		if pending == nil || pending.at < r.next { // decided: the state has it or has another
			seat := r.free()
			if seat == seats {
				fmt.Printf("%s has %d seats\n", name, r.count(name))
				return nil
			}
			pending = &entry{at: r.next, value: fmt.Sprintf("%d %s", seat, name), id: rand.Text()}
		}
		offset, err := r.append(ctx, pending)
		var answer *kerr.Error
		switch {
		case err == nil && offset != pending.at:
			return fmt.Errorf("appended at %d, not at %d: is there a rule for the topic here?", offset, pending.at)
		case err == nil, errors.Is(err, kerr.OffsetOutOfRange):
			pending = nil // won, or refused: catchUp reads what is there, and it is decided anew
		case errors.As(err, &answer) && !answer.Retriable && !errors.Is(err, kerr.UnknownServerError):
			return err // not appended, and would not be next time
		default:
			// Unknown: if catchUp finds nothing in its place the same is sent again,
			// under the same id, so that it is in the log once at most.
		}
	}
}

// catchUp reads on to the end of the log.
func (r *replica) catchUp(ctx context.Context) error {
	ends, err := kadm.NewClient(r.client).ListEndOffsets(ctx, r.topic)
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(r.topic, 0)
	if end.Err != nil {
		return end.Err
	}
	for r.next < end.Offset {
		fetches := r.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for record := range fetches.RecordsAll() {
			if err := r.apply(record); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply is deterministic: all who have read the same records have the same state.
func (r *replica) apply(record *kgo.Record) error {
	number, name, _ := strings.Cut(string(record.Value), " ")
	seat, err := strconv.Atoi(number)
	if err != nil || seat < 0 || seat >= seats || r.owner[seat] != "" {
		return fmt.Errorf("offset %d gives seat %q to %q, and it is not free", record.Offset, number, name)
	}
	r.owner[seat], r.next = name, record.Offset+1
	return nil
}

func (r *replica) free() int {
	for seat, owner := range r.owner {
		if owner == "" {
			return seat
		}
	}
	return seats
}

func (r *replica) count(name string) (n int) {
	for _, owner := range r.owner {
		if owner == name {
			n++
		}
	}
	return n
}

func (r *replica) append(ctx context.Context, e *entry) (int64, error) {
	record, err := r.client.ProduceSync(ctx, &kgo.Record{
		Topic: r.topic, Partition: 0, Value: []byte(e.value),
		Headers: []kgo.RecordHeader{
			{Key: "expected-offset", Value: strconv.AppendInt(nil, e.at, 10)},
			{Key: "append-id", Value: []byte(e.id)},
		},
	}).First()
	if err != nil {
		return 0, err
	}
	return record.Offset, nil
}
