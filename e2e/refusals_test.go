package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// realClient is a library as its users run it.
type realClient struct {
	name     string // as in the table of docs/semantics.md
	argv     func(*testing.T) []string
	settings []clientSetting
}

type clientSetting struct {
	name string
	producerSettings
}

func plainly(name string) clientSetting { return clientSetting{name: name} }

func idempotently(name string) clientSetting {
	return clientSetting{name, producerSettings{Idempotent: true}}
}

var realClients = []realClient{
	{"Java kafka-clients", javaProgram, []clientSetting{idempotently("idempotent (default)"), plainly("not idempotent")}},
	{"librdkafka (confluent-kafka)", pythonProgram("librdkafka.py"), []clientSetting{
		plainly("not idempotent (default)"), idempotently("idempotent"),
		{"idempotent, gapless guarantee", producerSettings{Idempotent: true, Gapless: true}},
	}},
	{"franz-go", goProgram("franz"), []clientSetting{idempotently("idempotent (default)"), plainly("not idempotent")}},
	{"sarama", goProgram("sarama"), []clientSetting{plainly("not idempotent (default)"), idempotently("idempotent")}},
	{"segmentio/kafka-go", goProgram("segmentio"), []clientSetting{plainly("not idempotent (only)")}},
	{"kafka-python", pythonProgram("kafka_python.py"), []clientSetting{idempotently("idempotent (default)"), plainly("not idempotent")}},
	{"aiokafka", pythonProgram("aio.py"), []clientSetting{plainly("not idempotent (default)"), idempotently("idempotent")}},
	{"kafkajs", nodeProgram, []clientSetting{plainly("not idempotent (default)"), idempotently("idempotent")}},
}

// partitionOf gives each client and setting a partition of its own, so that one
// topic serves them all.
func partitionOf(client, setting int) int32 { return int32(4*client + setting) }

var clientPartitions = partitionOf(len(realClients), 0)

// What is looked at beside each refusal.
const (
	messageColumn = "the proxy's message"
	afterColumn   = "the producer"
	nextColumn    = "what to expect next"

	producerDead = "dead: all that follows fails"
)

// clientRefusal is one way to be refused.
type clientRefusal struct {
	name      string
	column    string // as in the table
	code      int16
	message   string // part of the proxy's
	tellsNext bool
	// ask makes the command that is refused of one that would be appended.
	ask func(t *testing.T, w *clientWriter, c clientCommand) clientCommand
}

// notServed is every Produce through a proxy that cannot fence the topic.
var notServed = clientRefusal{"not served", policyColumn, kerr.PolicyViolation.Code, "topic is not served", false, nil}

const (
	refusedColumn   = "taken, not reached (1)"
	malformedColumn = "malformed, no condition, any by `error_code` (87)"
	policyColumn    = "topic not served, any by `error_code` (44)"
)

// takenWith is taken under a rule that has this code for it.
func takenWith(column string, code int16) clientRefusal {
	return clientRefusal{fmt.Sprintf("taken by error_code %d", code), column, code, "expected-offset taken: ", true, askTaken}
}

func askTaken(_ *testing.T, w *clientWriter, c clientCommand) clientCommand {
	return w.expecting(c, strconv.Itoa(len(w.log)-1))
}

var clientRefusals = []clientRefusal{
	{"taken", refusedColumn, kerr.OffsetOutOfRange.Code, "expected-offset taken: ", true, askTaken},
	{"not reached", refusedColumn, kerr.OffsetOutOfRange.Code, "expected-offset not reached: ", true, func(_ *testing.T, w *clientWriter, c clientCommand) clientCommand {
		return w.expecting(c, strconv.Itoa(len(w.log)+100))
	}},
	{"malformed", malformedColumn, kerr.InvalidRecord.Code, "expected-offset has a sign", false, func(_ *testing.T, w *clientWriter, c clientCommand) clientCommand {
		return w.expecting(c, "+1")
	}},
	{"without a condition", malformedColumn, kerr.InvalidRecord.Code, "requires an expected-offset", false, func(_ *testing.T, _ *clientWriter, c clientCommand) clientCommand {
		c.Headers = nil
		return c
	}},
	{"old timestamp", "old timestamp (32)", kerr.InvalidTimestamp.Code, "timestamps are older", false, func(_ *testing.T, _ *clientWriter, c clientCommand) clientCommand {
		c.Timestamp = time.Now().Add(-48 * time.Hour).UnixMilli()
		return c
	}},
	{"unknown", "unknown (−1)", kerr.UnknownServerError.Code, "outcome unknown: ", true, func(t *testing.T, w *clientWriter, c clientCommand) clientCommand {
		// Without append-ids, what another has written in the same words may
		// be this client's own.
		c.Headers = c.Headers[:1]
		w.twin(t, c)
		return c
	}},
}

func refusalColumns() []string {
	var columns []string
	for _, refusal := range slices.Concat(clientRefusals[:3], []clientRefusal{notServed}, clientRefusals[3:]) {
		if !slices.Contains(columns, refusal.column) {
			columns = append(columns, refusal.column)
		}
	}
	return columns
}

// TestRefusalsOfRealClients shows each library each refusal, with the settings
// that change what it does then, and holds the table of docs/semantics.md to
// what was seen.
func TestRefusalsOfRealClients(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic, invalid, policy = "refusals", "refusals-87", "refusals-44"
	p := startProxy(t, "--require", topic, "--require", invalid+" error_code=87", "--require", policy+" error_code=44")
	// It is told that they are other brokers than they are.
	unable := startProxy(t, "--require", topic, "--broker-kind", "kfake")
	for _, topic := range []string{topic, invalid, policy} {
		createTopic(t, adminAt(t, p.bootstrap), topic, clientPartitions)
	}
	twins := franzClient(t, p, kgo.DisableIdempotentWrite())
	seen := sightings{columns: slices.Concat(refusalColumns(), []string{messageColumn, afterColumn, nextColumn})}
	t.Run("clients", func(t *testing.T) {
		for i, client := range realClients {
			t.Run(client.name, func(t *testing.T) {
				t.Parallel()
				process := startClient(t, client.argv(t))
				for j, setting := range client.settings {
					w := clientWriter{
						client: client.name, process: process, setting: setting, seen: &seen, twins: twins,
						bootstrap: p.bootstrap, topic: topic, partition: partitionOf(i, j),
					}
					w.refusedAll(t, clientRefusals...)
					w.topic, w.log = invalid, nil
					w.refusedAll(t, takenWith(malformedColumn, kerr.InvalidRecord.Code))
					w.topic, w.log = policy, nil
					w.refusedAll(t, takenWith(policyColumn, kerr.PolicyViolation.Code))
					w.topic, w.bootstrap = topic, unable.bootstrap
					w.notServed(t)
				}
			})
		}
	})
	if !t.Failed() {
		checkDocument(t, "refusals", &seen)
	}
}

// clientWriter is a user of a library who writes one partition.
type clientWriter struct {
	client    string
	process   *clientProcess
	setting   clientSetting
	seen      *sightings
	twins     *kgo.Client // writes as another does
	bootstrap string
	topic     string
	partition int32

	producers int
	producer  string   // the one in use, if any
	log       []string // what the partition must hold
}

// open takes a new producer.
func (w *clientWriter) open(t *testing.T) {
	t.Helper()
	w.producers++
	w.producer = fmt.Sprintf("%s-%d-%d", w.topic, w.partition, w.producers)
	w.process.must(t, clientCommand{Do: "open", Producer: w.producer, Bootstrap: w.bootstrap, producerSettings: w.setting.producerSettings})
}

func (w *clientWriter) close(t *testing.T) {
	t.Helper()
	if w.producer == "" {
		return
	}
	w.process.must(t, clientCommand{Do: "close", Producer: w.producer})
	w.producer = ""
}

// append is the command for a record at the partition's next offset.
func (w *clientWriter) append(value string) clientCommand {
	return w.expecting(clientCommand{
		Do: "send", Producer: w.producer, Topic: w.topic, Partition: w.partition, Value: value,
		Headers: []clientHeader{{"expected-offset", ""}, {"append-id", value}},
	}, strconv.Itoa(len(w.log)))
}

func (w *clientWriter) expecting(c clientCommand, offset string) clientCommand {
	c.Headers = slices.Clone(c.Headers)
	c.Headers[0].Value = offset
	return c
}

// tryAppend is an append at the partition's end.
func (w *clientWriter) tryAppend(t *testing.T, value string) *clientError {
	t.Helper()
	got := w.process.do(t, w.append(value))
	if got.Error != nil {
		return got.Error
	}
	w.appended(t, got.Offset, value)
	return nil
}

func (w *clientWriter) mustAppend(t *testing.T, value string) {
	t.Helper()
	if err := w.tryAppend(t, value); err != nil {
		t.Fatalf("%s, append %s at %d: %v", w.setting.name, value, len(w.log), err)
	}
}

// appended notes a success.
func (w *clientWriter) appended(t *testing.T, offset int64, value string) {
	t.Helper()
	if offset != int64(len(w.log)) {
		t.Errorf("%s, %s: told offset %d, want %d", w.setting.name, value, offset, len(w.log))
	}
	w.log = append(w.log, value)
}

// twin appends the same record as another writer.
func (w *clientWriter) twin(t *testing.T, c clientCommand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	record := &kgo.Record{Topic: c.Topic, Partition: c.Partition, Value: []byte(c.Value)}
	for _, h := range c.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	record, err := w.twins.ProduceSync(ctx, record).First()
	if err != nil {
		t.Fatalf("append as another: %v", err)
	}
	w.appended(t, record.Offset, c.Value)
}

// refusedAll goes through refusals on the writer's topic, from empty.
func (w *clientWriter) refusedAll(t *testing.T, refusals ...clientRefusal) {
	t.Helper()
	for _, refusal := range refusals {
		w.refused(t, refusal)
	}
	w.check(t)
	w.close(t)
}

// notServed is refused by a proxy that cannot fence.
func (w *clientWriter) notServed(t *testing.T) {
	t.Helper()
	w.open(t)
	got := w.process.do(t, w.append("not served"))
	if got.Error == nil {
		t.Fatalf("%s: appended at %d", w.setting.name, got.Offset)
	}
	w.sawRefusal(t, notServed, got.Error)
	w.close(t)
}

// refused has a working producer refused once, and sees what it is worth after.
// One that is dead is not used again.
func (w *clientWriter) refused(t *testing.T, refusal clientRefusal) {
	t.Helper()
	if w.producer == "" {
		w.open(t)
	}
	w.mustAppend(t, refusal.name+": before")
	got := w.process.do(t, refusal.ask(t, w, w.append(refusal.name+": refused")))
	if got.Error == nil {
		t.Fatalf("%s, %s: appended at %d", w.setting.name, refusal.name, got.Offset)
	}
	w.sawRefusal(t, refusal, got.Error)
	if refusal.tellsNext {
		w.learnsNext(t, got.Error)
	}
	if err := w.tryAppend(t, refusal.name+": after"); err == nil {
		w.saw(t, afterColumn, "goes on")
	} else {
		w.saw(t, afterColumn, producerDead)
		w.close(t)
	}
}

// sawRefusal notes how a refusal looks.
func (w *clientWriter) sawRefusal(t *testing.T, refusal clientRefusal, err *clientError) {
	t.Helper()
	told := "`" + err.Kind + "`"
	if err.Code != refusal.code {
		told += strings.ReplaceAll(fmt.Sprintf(" (%d)", err.Code), "-", "−")
	}
	w.saw(t, refusal.column, told)
	if strings.Contains(err.Message, refusal.message) {
		w.saw(t, messageColumn, "shown")
	} else {
		w.saw(t, messageColumn, "not shown")
	}
}

// learnsNext finds what to expect next, as the writer's user would.
func (w *clientWriter) learnsNext(t *testing.T, refusal *clientError) {
	t.Helper()
	if strings.Contains(refusal.Message, fmt.Sprintf("next=%d", len(w.log))) {
		w.saw(t, nextColumn, "in the message")
		return
	}
	next := w.process.must(t, clientCommand{Do: "next", Bootstrap: w.bootstrap, Topic: w.topic, Partition: w.partition})
	if next != int64(len(w.log)) {
		t.Errorf("%s: told that %d is next, want %d", w.setting.name, next, len(w.log))
	}
	w.saw(t, nextColumn, "ask ListOffsets")
}

func (w *clientWriter) saw(t *testing.T, column, text string) {
	t.Helper()
	w.seen.add(t, clientOfLine{w.client, w.process.version, w.setting.name}, column, text)
}

// check reads the partition, from the brokers.
func (w *clientWriter) check(t *testing.T) {
	t.Helper()
	var want []logRecord
	for i, value := range w.log {
		want = append(want, logRecord{int64(i), value})
	}
	if got := readLog(t, w.topic, w.partition); !slices.Equal(got, want) {
		t.Errorf("%s: the log holds %v, want %v", w.setting.name, got, want)
	}
}
