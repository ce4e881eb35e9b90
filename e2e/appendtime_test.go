package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// timestampType is the setting of whose clock records' timestamps are.
const timestampType = "message.timestamp.type"

var (
	logAppendTime = map[string]*string{timestampType: new("LogAppendTime")}
	createTime    = map[string]*string{timestampType: new("CreateTime")}
)

// TestTopicWithAppendTime has no marks of duplicates, so each success is read
// back, and equal records must be told apart by append-ids.
func TestTopicWithAppendTime(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "append-time"
	p := startProxy(t, "--require", topic)
	createConfiguredTopic(t, adminAt(t, p.bootstrap), topic, 1, logAppendTime)
	conn := dialLeader(t, p, topic)
	answer, err := conn.produce(topic, 0, encodeBatch(conditional(0, "x")))
	if err != nil {
		t.Fatal(err)
	}
	if got := toldOf(answer); got.code != kerr.InvalidRecord.Code || !strings.Contains(got.message, "append-id") {
		t.Errorf("without an append-id: got %+v, want INVALID_RECORD that asks for it", got)
	}
	first := encodeBatch(identified(conditional(0, "a"), "1"), identified(conditional(1, "b"), "2"))
	conn.mustTell(t, topic, first, wonAt(0))
	conn.mustTell(t, topic, encodeBatch(identified(conditional(1, "x"), "3")), takenAt(1, 2))
	conn.mustTell(t, topic, first, wonAt(0)) // its own, again
	old := setTimestamp(encodeBatch(identified(conditional(2, "of 1970"), "4")), 0)
	conn.mustTell(t, topic, old, wonAt(2))
	mustHold(t, topic, "a", "b", "of 1970")
}

// TestAppendTimeThroughAnotherProxy: one that did not send a batch, or knows
// nothing any more, finds it in the log by its append-id.
func TestAppendTimeThroughAnotherProxy(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "append-time-others"
	createConfiguredTopic(t, adminAt(t, brokers.addresses()...), topic, 1, logAppendTime)
	first := startProxy(t, "--require", topic)
	restarted := newProxyProcess(t)
	restart := func() *rawConn {
		t.Helper()
		restarted.start(t, program, "--bootstrap", brokers.bootstrap, "--listen", restarted.bootstrap,
			"--broker-ports", restarted.brokerPorts(), "--require", topic)
		return dialLeader(t, restarted, topic)
	}
	one, other := dialLeader(t, first, topic), restart()
	a, b := encodeBatch(identified(conditional(0, "a"), "1")), encodeBatch(identified(conditional(1, "b"), "2"))
	one.mustTell(t, topic, a, wonAt(0))
	other.mustTell(t, topic, a, wonAt(0))
	other.mustTell(t, topic, encodeBatch(identified(conditional(0, "x"), "3")), takenAt(0, 1))
	other.mustTell(t, topic, encodeBatch(identified(conditional(0, "a"), "3")), takenAt(0, 1))
	other.mustTell(t, topic, b, wonAt(1))
	// The first proxy takes 1 for the end, and sends with the sequence of b: what
	// the broker answers is b's own.
	one.mustTell(t, topic, encodeBatch(identified(conditional(1, "x"), "4")), takenAt(1, 2))
	one.mustTell(t, topic, b, wonAt(1))
	one.mustTell(t, topic, encodeBatch(identified(conditional(2, "c"), "5"), identified(conditional(3, "d"), "6")), wonAt(2))
	restarted.kill(t)
	other = restart()
	other.mustTell(t, topic, a, wonAt(0))
	other.mustTell(t, topic, b, wonAt(1))
	other.mustTell(t, topic, encodeBatch(identified(conditional(3, "d"), "7")), takenAt(3, 4))
	other.mustTell(t, topic, encodeBatch(identified(conditional(4, "e"), "8")), wonAt(4))
	mustHold(t, topic, "a", "b", "c", "d", "e")
}

// identifiedBatch has each attempt bear its value as its append-id.
func identifiedBatch(a attempt, record rawRecord) []byte {
	return encodeBatch(identified(record, a.value))
}

// TestRaceWithAppendTime has every answer look like that to a duplicate.
func TestRaceWithAppendTime(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	places := int64(150)
	if longRuns {
		places = 10_000
	}
	c := newConfiguredContest(t, "race-append-time", places, logAppendTime)
	c.batch = identifiedBatch
	c.run(t, 2*time.Minute)
	c.checkPlaces(t)
}

// TestRaceWhileTheTimestampTypeChanges: writers with append-ids do not notice
// that their topic gets the other type, and then this one again.
func TestRaceWhileTheTimestampTypeChanges(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	places := int64(400)
	if longRuns {
		places = 15_000
	}
	c := newConfiguredContest(t, "race-types", places, nil)
	c.batch = identifiedBatch
	admin := adminAt(t, brokers.addresses()...)
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan error, 1) // one send, by who changes the type
	go func() { changed <- c.changeTypes(ctx, admin) }()
	c.run(t, 2*time.Minute)
	cancel()
	if err := <-changed; err != nil {
		t.Error(err)
	}
	c.checkPlaces(t)
	var types []int8 // of runs of records
	for _, record := range readRecords(t, c.topic, 0) {
		if is := record.Attrs.TimestampType(); len(types) == 0 || types[len(types)-1] != is {
			types = append(types, is)
		}
	}
	if want := []int8{0, 1, 0}; !slices.Equal(types, want) {
		t.Errorf("got records of the types %v one after the other, want %v", types, want)
	}
}

// changeTypes takes its cues from how far the writers are.
func (c *contest) changeTypes(ctx context.Context, admin *kadm.Client) error {
	for i, configs := range []map[string]*string{logAppendTime, createTime} {
		select {
		case <-c.reached(c.places * int64(i+1) / 3):
		case <-ctx.Done():
			return fmt.Errorf("change %d never had its turn: %w", i, ctx.Err())
		}
		if err := alterTopic(ctx, admin, c.topic, configs); err != nil {
			return err
		}
	}
	return nil
}

// alterTopic sets a topic's configurations.
func alterTopic(ctx context.Context, admin *kadm.Client, topic string, configs map[string]*string) error {
	var changes []kadm.AlterConfig
	for name, value := range configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	changed, err := admin.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	return errors.Join(changed[0].Err)
}

// TestTimestampTypeChangesUnderAWriter: one without append-ids is told at once
// that it needs them, and old timestamps pass only while they make no difference.
func TestTimestampTypeChangesUnderAWriter(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "changes-type"
	p := startProxy(t, "--require", topic)
	admin := adminAt(t, brokers.addresses()...)
	createTopic(t, admin, topic, 1)
	conn := dialLeader(t, p, topic)
	conn.mustTell(t, topic, encodeBatch(conditional(0, "0")), wonAt(0))
	if err := alterTopic(t.Context(), admin, topic, logAppendTime); err != nil {
		t.Fatal(err)
	}
	// The broker learns of it in its time. Then an append cannot be told from a
	// duplicate, and the next batch gets the words for it.
	next, values := int64(1), []string{"0"}
	waitFor(t, "a batch without append-id is refused", 30*time.Second, func() error {
		value := fmt.Sprint(next)
		answer, err := conn.produce(topic, 0, encodeBatch(conditional(next, value)))
		if err != nil {
			t.Fatal(err)
		}
		switch got := toldOf(answer); {
		case got == wonAt(next), got == unknownAt(next, next+1):
			next, values = next+1, append(values, value)
			return fmt.Errorf("got %+v", got)
		case got.code != kerr.InvalidRecord.Code || !strings.Contains(got.message, "append-id"):
			t.Fatalf("got %+v, want INVALID_RECORD that asks for append-ids", got)
		}
		return nil
	})
	old := func(id string) []byte {
		return setTimestamp(encodeBatch(identified(conditional(next, "of 1970, "+id), id)), 0)
	}
	conn.mustTell(t, topic, old("1"), wonAt(next))
	next, values = next+1, append(values, "of 1970, 1")
	if err := alterTopic(t.Context(), admin, topic, createTime); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "an old batch is refused", 30*time.Second, func() error {
		value := fmt.Sprint(next)
		conn.mustTell(t, topic, encodeBatch(identified(conditional(next, value), value)), wonAt(next))
		next, values = next+1, append(values, value)
		answer, err := conn.produce(topic, 0, old("2"))
		if err != nil {
			t.Fatal(err)
		}
		switch got := toldOf(answer); {
		case got == wonAt(next):
			next, values = next+1, append(values, "of 1970, 2")
			return fmt.Errorf("got %+v", got)
		case got.code != kerr.InvalidTimestamp.Code:
			t.Fatalf("got %+v, want INVALID_TIMESTAMP", got)
		}
		return nil
	})
	conn.mustTell(t, topic, encodeBatch(conditional(next, "last")), wonAt(next))
	mustHold(t, topic, append(values, "last")...)
}
