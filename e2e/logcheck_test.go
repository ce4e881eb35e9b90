package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// outcome is what a writer was told of one attempt.
type outcome int

const (
	won        outcome = iota
	taken              // refused: another record has the place
	notReached         // refused: the log is not that far
	notWritten         // a retriable answer that says nothing was appended
	unknown            // may be in the log
)

func (o outcome) String() string {
	return [...]string{"won", "taken", "not reached", "not written", "unknown"}[o]
}

// attempt is one transmission of one record. Values are unique, so a record in
// the log names its attempt.
type attempt struct {
	writer   int
	value    string
	expected int64
	outcome  outcome
	offset   int64  // acknowledged, if won
	answer   string // as the client saw it
	code     error  // of the answer, where it has no condition
	// anywhere: it has no condition, and expected nothing.
	anywhere bool
}

// logRecord is what the log holds at an offset.
type logRecord struct {
	offset int64
	value  string
}

// checkLog compares the places [from, to) of a log with what the writers were
// told and returns all that breaks the promise:
//   - a success lies at its expected offset, with its value, and nowhere else
//   - a record that was refused is nowhere
//   - what was left unknown is at its expected offset or nowhere
//   - every place has exactly one record
func checkLog(log []logRecord, attempts []attempt, from, to int64) []string {
	var violations []string
	violate := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }

	byValue := make(map[string]attempt, len(attempts))
	attempts = placed(log, attempts)
	for _, a := range attempts {
		if _, twice := byValue[a.value]; twice {
			violate("value %s was attempted twice: the check itself is broken", a.value)
		}
		byValue[a.value] = a
	}
	stored := make(map[string]int64, len(log))
	places := make(map[int64]bool, len(log))
	for _, record := range log {
		if earlier, twice := stored[record.value]; twice {
			violate("value %s lies at %d and at %d", record.value, earlier, record.offset)
		}
		stored[record.value] = record.offset
		places[record.offset] = true
		a, known := byValue[record.value]
		switch {
		case !known:
			violate("offset %d holds %s, which nobody wrote", record.offset, record.value)
		case a.outcome != won && a.outcome != unknown:
			violate("offset %d holds %s, which was refused (%s)", record.offset, record.value, a.answer)
		case record.offset != a.expected:
			violate("offset %d holds %s, which expected %d (%s)", record.offset, record.value, a.expected, a.outcome)
		}
	}
	successes := make(map[int64]int)
	for _, a := range attempts {
		at, there := stored[a.value]
		switch {
		case a.outcome == won && a.offset != a.expected:
			violate("success at %d was promised %d", a.offset, a.expected)
		case a.outcome == won && (!there || at != a.offset):
			violate("success %s at %d is not in the log there", a.value, a.offset)
		}
		if a.outcome == won || a.outcome == unknown && there {
			successes[a.expected]++
		}
	}
	for place := from; place < to; place++ {
		if !places[place] {
			violate("place %d is empty", place)
		}
		if n := successes[place]; n != 1 {
			violate("place %d has %d successes", place, n)
		}
	}
	return violations
}

// placed has the attempts without a condition expect where they were told that
// they lie, or where they lie if they were told nothing.
func placed(log []logRecord, attempts []attempt) []attempt {
	stored := make(map[string]int64, len(log))
	for _, record := range log {
		stored[record.value] = record.offset
	}
	attempts = slices.Clone(attempts)
	for i := range attempts {
		switch a := &attempts[i]; {
		case !a.anywhere:
		case a.outcome == won:
			a.expected = a.offset
		default:
			a.expected = stored[a.value]
		}
	}
	return attempts
}

// readLog reads the values of a partition.
func readLog(t *testing.T, topic string, partition int32) []logRecord {
	t.Helper()
	var log []logRecord
	for _, record := range readRecords(t, topic, partition) {
		log = append(log, logRecord{record.Offset, string(record.Value)})
	}
	return log
}

// readRecords reads a partition from the brokers, not through a proxy, from its
// start up to its end as it is now.
func readRecords(t *testing.T, topic string, partition int32) []*kgo.Record {
	t.Helper()
	return readRecordsAt(t, topic, partition, kgo.SeedBrokers(brokers.addresses()...))
}

// readRecordsAt is readRecords by a client with these options.
func readRecordsAt(t *testing.T, topic string, partition int32, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := ends.Lookup(topic, partition)
	if !ok || end.Err != nil {
		t.Fatalf("end of %s: %v", topic, errors.Join(end.Err, errors.New("not listed")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s from %d to %d: %v", topic, next, end.Offset, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			records = append(records, record)
			next = record.Offset + 1
		})
	}
	return records
}

// TestCheckLogFindsEveryViolation plants one fault at a time.
func TestCheckLogFindsEveryViolation(t *testing.T) {
	good := func() ([]logRecord, []attempt) {
		return []logRecord{{0, "a"}, {1, "b"}, {2, "u"}}, []attempt{
			{value: "a", expected: 0, outcome: won, offset: 0},
			{value: "x", expected: 0, outcome: taken},
			{value: "b", expected: 1, outcome: won, offset: 1},
			{value: "u", expected: 2, outcome: unknown},
			{value: "v", expected: 2, outcome: unknown},
		}
	}
	log, attempts := good()
	if got := checkLog(log, attempts, 0, 3); len(got) != 0 {
		t.Fatalf("a log without fault: got %q", got)
	}
	for name, plant := range map[string]func(log []logRecord, attempts []attempt) ([]logRecord, []attempt){
		"refused record is stored": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return append(l, logRecord{3, "x"}), a
		},
		"success is lost": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return []logRecord{{0, "a"}, {1, "v"}, {2, "u"}}, a
		},
		"success lies elsewhere": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			a[2].offset = 5
			return l, a
		},
		"unknown lies elsewhere": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return append(l, logRecord{3, "v"}), a
		},
		"value is stored twice": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return append(l, logRecord{3, "u"}), a
		},
		"stranger writes": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return append(l, logRecord{3, "z"}), a
		},
		"two successes at one place": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			a[1].outcome = won
			return l, a
		},
		"place is empty": func(l []logRecord, a []attempt) ([]logRecord, []attempt) {
			return l[:2], a
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, attempts := plant(good())
			if got := checkLog(log, attempts, 0, 3); len(got) == 0 {
				t.Error("found nothing")
			}
		})
	}
}
