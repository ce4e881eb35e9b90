package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFranzSequenceOnAFencedTopic has an idempotent client that rewinds its
// sequence send bursts in which one record cannot be appended and the one behind
// it could: what is behind a refused record is in the log no more than that one,
// and the client goes on each time.
func TestFranzSequenceOnAFencedTopic(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic, rounds, burst = "franz-sequence", 30, 5
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	client := franzClient(t, p, kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(512))
	if offset, err := franzAppend(t, client, topic, 0, "0"); err != nil || offset != 0 {
		t.Fatalf("first: got %d, %v", offset, err)
	}
	want := []string{"0"}
	for round := range rounds {
		refused := round % burst
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		errs := make([]error, burst)
		var all sync.WaitGroup
		for i := range burst {
			expected := len(want) + i
			switch {
			case i == refused:
				expected = 0 // taken
			case i > refused:
				expected-- // would follow what is before the refused one
			}
			record := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%d.%d %0400d", round, i, 0), Headers: []kgo.RecordHeader{
				{Key: "expected-offset", Value: strconv.AppendInt(nil, int64(expected), 10)},
			}}
			all.Add(1)
			client.Produce(ctx, record, func(r *kgo.Record, err error) {
				defer all.Done()
				if errs[i] = err; err == nil && r.Offset != int64(expected) {
					errs[i] = fmt.Errorf("%w: offset %d, expected %d", errMisplaced, r.Offset, expected)
				}
			})
		}
		all.Wait()
		cancel()
		for i, err := range errs {
			switch {
			case i < refused && err != nil:
				t.Errorf("round %d: record %d: %v", round, i, err)
			case i < refused:
				want = append(want, fmt.Sprintf("%d.%d %0400d", round, i, 0))
			case i == refused && !errors.Is(err, kerr.OffsetOutOfRange):
				t.Errorf("round %d: record %d, whose offset is taken: got %v, want OFFSET_OUT_OF_RANGE", round, i, err)
			case err == nil:
				t.Errorf("round %d: record %d is behind a refused one and was appended", round, i)
			}
		}
		if t.Failed() {
			return
		}
	}
	mustHold(t, topic, want...)
}

var errMisplaced = errors.New("appended elsewhere")
