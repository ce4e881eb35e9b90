package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// anywhere writes records without a condition of their own to a contest's
// partition, for as long as it has free places.
type anywhere struct {
	writer
	// end: each record says so; otherwise none says anything.
	end bool
}

func (w *anywhere) run(ctx context.Context) error {
	defer w.hangUp()
	for !w.contest.over() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.conn == nil && !w.connect() {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		w.sent++
		record := rawRecord{value: fmt.Sprintf("a%d-%d", w.id, w.sent)}
		if w.end {
			record.headers = append(record.headers, rawHeader{"expected-offset", "end"})
		}
		a := attempt{writer: w.id, value: record.value, expected: -1, anywhere: true}
		answer, err := w.conn.produce(w.contest.topic, 0, encodeBatch(record))
		switch code := kerr.ErrorForCode(answer.ErrorCode); {
		case err != nil:
			a.outcome, a.answer = unknown, err.Error()
		case code == nil:
			a.outcome, a.offset = won, answer.BaseOffset
		case code == kerr.UnknownServerError && w.end:
			a.outcome, a.answer = unknown, code.Error()
		case kerr.IsRetriable(code):
			a.outcome, a.answer = notWritten, code.Error()
		default:
			return fmt.Errorf("%w: %v", errUnexpected, code)
		}
		if a.outcome != won {
			w.hangUp()
			pause(ctx, 20*time.Millisecond)
		}
		w.contest.add(a, a.offset+1)
	}
	return nil
}

// newMixedContest has writers of all kinds write one partition under enforce.
func newMixedContest(t *testing.T, topic string, places int64, flags ...string) *contest {
	t.Helper()
	c := &contest{topic: topic, places: places, writers: 2, anywhere: 4}
	for range raceProxies {
		c.proxies = append(c.proxies, startProxy(t, append([]string{"--enforce", topic}, flags...)...))
	}
	createTopic(t, adminAt(t, c.proxies[0].bootstrap), topic, 1)
	return c
}

// TestWritersOfAllKindsShareAPartition: under enforce, conditional records lie
// where they expected, and all others where their writers were told, once.
func TestWritersOfAllKindsShareAPartition(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	c := newMixedContest(t, "enforce", 1_000)
	c.run(t, 3*time.Minute)
	c.checkPlaces(t)
}
