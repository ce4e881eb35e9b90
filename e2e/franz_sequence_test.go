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
// it could: what is behind a refused record, and was sent before the client learnt of
// that, is in the log no more than that one, and the client goes on each time.
func TestFranzSequenceOnAFencedTopic(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic, rounds, burst = "franz-sequence", 30, 5
	p := startProxy(t, "--require", topic, "--advertised-host", relayHost)
	var seen answersSeen
	r := startRelay(t, p, func(int) deed {
		seen.request()
		return letPass
	})
	r.holdAnswers(seen.answer)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	client := franzClient(t, p, kgo.SeedBrokers(r.bootstrap), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(512))
	if offset, err := franzAppend(t, client, topic, 0, "0"); err != nil || offset != 0 {
		t.Fatalf("first: got %d, %v", offset, err)
	}
	want, whole := []string{"0"}, 0
	for round := range rounds {
		refused := round % burst
		seen.begin()
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
		if refused+1 < burst && seen.before(burst-1) <= refused {
			whole++
		}
		for i, err := range errs {
			switch {
			case i < refused && err != nil:
				t.Errorf("round %d: record %d: %v", round, i, err)
			case i < refused:
				want = append(want, fmt.Sprintf("%d.%d %0400d", round, i, 0))
			case i == refused && !errors.Is(err, kerr.OffsetOutOfRange):
				t.Errorf("round %d: record %d, whose offset is taken: got %v, want OFFSET_OUT_OF_RANGE", round, i, err)
			case err == nil && seen.before(i) > refused: // the machine was busy
				want = append(want, fmt.Sprintf("%d.%d %0400d", round, i, 0))
			case err == nil:
				t.Errorf("round %d: record %d is behind a refused one and was appended", round, i)
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d bursts were sent as a whole", whole, rounds)
	if whole == 0 {
		t.Error("the client always knew, so that this shows nothing")
	}
	mustHold(t, topic, want...)
}

var errMisplaced = errors.New("appended elsewhere")

// answersSeen tells of each request of a burst what its client may have known.
type answersSeen struct {
	mu      sync.Mutex
	answers int
	sent    []int // answers before each request
}

// begin begins a burst.
func (s *answersSeen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.sent = 0, nil
}

func (s *answersSeen) request() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, s.answers)
}

func (s *answersSeen) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
}

// before is how many answers had begun to pass, at most, when the i-th request was
// sent; one that was not sent is behind them all.
func (s *answersSeen) before(i int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.sent) {
		return s.answers + 1
	}
	return s.sent[i]
}
