package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestRecordsThatWereDeleted: what expects their offsets is refused with the
// log's start, since what was there cannot be compared any more.
func TestRecordsThatWereDeleted(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "deleted"
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	for i := range int64(5) {
		conn.mustTell(t, topic, encodeBatch(conditional(i, fmt.Sprint(i))), wonAt(i))
	}
	deleteRecords(t, topic, 3)
	// A proxy that has not seen them.
	conn = dialLeader(t, startProxy(t, "--require", topic), topic)
	conn.mustTell(t, topic, encodeBatch(conditional(1, "x")), goneAt(1, 5, 3))
	conn.mustTell(t, topic, encodeBatch(conditional(0, "x"), conditional(1, "y"), conditional(2, "z")), goneAt(0, 5, 3))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "1")), goneAt(1, 5, 3)) // once its own
	conn.mustTell(t, topic, encodeBatch(conditional(2, "x"), conditional(3, "y")), unknownAt(2, 5))
	conn.mustTell(t, topic, encodeBatch(conditional(3, "x")), takenAt(3, 5))
	deleteRecords(t, topic, 5)
	conn = dialLeader(t, startProxy(t, "--require", topic), topic)
	conn.mustTell(t, topic, encodeBatch(conditional(4, "x")), goneAt(4, 5, 5))
	conn.mustTell(t, topic, encodeBatch(conditional(6, "x")), notReachedAt(6, 5))
	conn.mustTell(t, topic, encodeBatch(conditional(5, "5")), wonAt(5))
	if got, want := readLog(t, topic, 0), []logRecord{{5, "5"}}; !slices.Equal(got, want) {
		t.Errorf("the log holds %v, want %v", got, want)
	}
}

// deleteRecords deletes what lies before an offset of partition 0.
func deleteRecords(t *testing.T, topic string, before int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: before})
	deleted, err := adminAt(t, brokers.addresses()...).DeleteRecords(t.Context(), offsets)
	if err != nil {
		t.Fatal(err)
	}
	if err := deleted.Error(); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsThatWereCompactedAway: the same in the middle of a log. Of a batch
// of which something is left nothing can be said.
func TestRecordsThatWereCompactedAway(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic, backoff = "compacted", "log.cleaner.backoff.ms"
	admin := adminAt(t, brokers.addresses()...)
	setBrokers(t, admin, backoff, new("100"))
	t.Cleanup(func() { setBrokers(t, admin, backoff, nil) })
	p := startProxy(t, "--require", topic)
	createConfiguredTopic(t, admin, topic, 1, map[string]*string{
		"cleanup.policy": new("compact"), "segment.ms": new("100"), "min.cleanable.dirty.ratio": new("0.01"),
		"max.compaction.lag.ms": new("100"), "delete.retention.ms": new("0"),
	})
	conn := dialLeader(t, p, topic)
	answer, err := conn.produce(topic, 0, encodeBatch(conditional(0, "without a key")))
	if err != nil {
		t.Fatal(err)
	}
	if got := toldOf(answer); got.code != kerr.InvalidRecord.Code || got.offset != -1 {
		t.Errorf("a record without a key: got %+v, want the broker's INVALID_RECORD", got)
	}
	at := func(offset int64, key, value string) rawRecord { return keyed(key, conditional(offset, value)) }
	mine := encodeBatch(at(1, "k", "b"))
	half := encodeBatch(at(2, "l", "c"), at(3, "k", "d"))
	conn.mustTell(t, topic, encodeBatch(at(0, "k", "a")), wonAt(0))
	conn.mustTell(t, topic, mine, wonAt(1))
	conn.mustTell(t, topic, half, wonAt(2))
	conn.mustTell(t, topic, encodeBatch(at(4, "k", "e")), wonAt(4))
	next := int64(5)
	// A segment ends when something is appended after its time, and is compacted
	// when it is not the last.
	waitFor(t, "compaction", time.Minute, func() error {
		conn.mustTell(t, topic, encodeBatch(at(next, "m", fmt.Sprint(next))), wonAt(next))
		next++
		if log := readLog(t, topic, 0); log[0] != (logRecord{2, "c"}) || log[1] != (logRecord{4, "e"}) {
			pause(t.Context(), 100*time.Millisecond)
			return fmt.Errorf("the log begins with %v", log[:2])
		}
		return nil
	})
	// A proxy that has not seen them.
	conn = dialLeader(t, startProxy(t, "--require", topic), topic)
	conn.mustTell(t, topic, encodeBatch(at(0, "k", "x")), goneAt(0, next, 0))
	conn.mustTell(t, topic, encodeBatch(at(0, "k", "x"), at(1, "k", "y")), goneAt(0, next, 0))
	conn.mustTell(t, topic, mine, goneAt(1, next, 0)) // once its own
	conn.mustTell(t, topic, half, unknownAt(2, next))
	conn.mustTell(t, topic, encodeBatch(at(2, "l", "x"), at(3, "k", "y")), unknownAt(2, next))
	conn.mustTell(t, topic, encodeBatch(at(2, "l", "x")), takenAt(2, next))
	conn.mustTell(t, topic, encodeBatch(at(next, "m", "last")), wonAt(next))
	log := readLog(t, topic, 0)
	if got, want := log[len(log)-1], (logRecord{next, "last"}); got != want {
		t.Errorf("the log ends with %v, want %v", got, want)
	}
}
