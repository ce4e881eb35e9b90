package e2e

import (
	"fmt"
	"slices"
	"testing"
)

// What is looked at when rules come and go.
const (
	beginsColumn = "a rule begins"
	endsColumn   = "it ends"
	opensColumn  = "it ends for a producer made while it held"
)

// TestRuleChangesForRealClients restarts a proxy with other rules under the
// feet of producers without conditions. Whatever they are told, what is
// acknowledged is in the log once, in order.
func TestRuleChangesForRealClients(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "rule-changes"
	createTopic(t, adminAt(t, brokers.addresses()...), topic, 2*clientPartitions)
	p := newProxyProcess(t)
	restart := func(flags ...string) {
		t.Helper()
		p.stop(t)
		p.start(t, program, append([]string{
			"--bootstrap", brokers.bootstrap, "--listen", p.bootstrap,
			"--broker-ports", p.brokerPorts(), "--broker-kind", brokers.kind(),
		}, flags...)...)
	}
	seen := sightings{columns: []string{beginsColumn, endsColumn, opensColumn}}
	restart()
	var before, during []*plainWriter
	for i, client := range realClients {
		process := startClient(t, client.argv(t))
		for j, setting := range client.settings {
			w := plainWriter{
				process: process, setting: setting, seen: &seen, line: clientOfLine{client.name, process.version, setting.name},
				bootstrap: p.bootstrap, topic: topic, partition: partitionOf(i, j),
			}
			later := w
			later.partition += clientPartitions
			before, during = append(before, &w), append(during, &later)
		}
	}
	for _, w := range before {
		w.open(t)
		w.mustSend(t, "without a rule")
	}
	restart("--enforce", topic)
	for _, w := range before {
		w.sees(t, beginsColumn)
	}
	for _, w := range during {
		w.open(t)
		w.mustSend(t, "under the rule")
	}
	restart()
	for _, w := range before {
		w.sees(t, endsColumn)
	}
	for _, w := range during {
		w.sees(t, opensColumn)
	}
	for _, w := range slices.Concat(before, during) {
		w.check(t)
		w.process.must(t, clientCommand{Do: "close", Producer: w.producer})
	}
	if !t.Failed() {
		checkDocument(t, "rules", &seen)
	}
}

// plainWriter is a user of a library who writes without conditions.
type plainWriter struct {
	process   *clientProcess
	setting   clientSetting
	seen      *sightings
	line      clientOfLine
	bootstrap string
	topic     string
	partition int32

	producers int
	producer  string
	sent      int
	log       []string // acknowledged, by offset
}

func (w *plainWriter) open(t *testing.T) {
	t.Helper()
	w.producers++
	w.producer = fmt.Sprintf("%s-%d-%d", w.topic, w.partition, w.producers)
	w.process.must(t, clientCommand{Do: "open", Producer: w.producer, Bootstrap: w.bootstrap, producerSettings: w.setting.producerSettings})
}

// send appends one record.
func (w *plainWriter) send(t *testing.T, what string) *clientError {
	t.Helper()
	w.sent++
	value := fmt.Sprintf("%d: %s", w.sent, what)
	got := w.process.do(t, clientCommand{Do: "send", Producer: w.producer, Topic: w.topic, Partition: w.partition, Value: value})
	if got.Error != nil {
		return got.Error
	}
	if got.Offset != int64(len(w.log)) {
		t.Errorf("%v, %s: told offset %d, want %d", w.line, value, got.Offset, len(w.log))
	}
	w.log = append(w.log, value)
	return nil
}

// mustSend appends several records.
func (w *plainWriter) mustSend(t *testing.T, what string) {
	t.Helper()
	for range 3 {
		if err := w.send(t, what); err != nil {
			t.Fatalf("%v, %s: %v", w.line, what, err)
		}
	}
}

// sees notes what the rules' change does to a producer. One that is dead is
// followed by another, which must work.
func (w *plainWriter) sees(t *testing.T, column string) {
	t.Helper()
	first := w.send(t, column)
	if first == nil {
		w.seen.add(t, w.line, column, "works")
		w.mustSend(t, column)
		return
	}
	if next := w.send(t, column); next == nil {
		w.seen.add(t, w.line, column, "one record fails: `"+first.Kind+"`")
	} else {
		w.seen.add(t, w.line, column, "dead: `"+first.Kind+"`")
		w.process.must(t, clientCommand{Do: "close", Producer: w.producer})
		w.open(t)
	}
	w.mustSend(t, column)
}

// check reads the partition, from the brokers.
func (w *plainWriter) check(t *testing.T) {
	t.Helper()
	var want []logRecord
	for i, value := range w.log {
		want = append(want, logRecord{int64(i), value})
	}
	if got := readLog(t, w.topic, w.partition); !slices.Equal(got, want) {
		t.Errorf("%v: the log holds %v, want %v", w.line, got, want)
	}
}
