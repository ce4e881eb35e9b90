package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

const idempotentRecords = 200

// idempotentCuts are the requests of a producer that are cut, from 1.
var idempotentCuts = map[int32]deed{4: loseAnswer, 10: cutWithin, 16: loseAnswer}

// idempotentRetries are enough for all cuts. By default sarama retries three times,
// which the cuts alone use up; it also counts those that send nothing: what finds that
// another of its goroutines has only begun to connect fails as "not connected".
const idempotentRetries = 20

// repeatingClient shows without idempotence what the test would see if nobody
// remembered idempotent clients' batches.
const repeatingClient = "kafka-python"

// losingCount are clients whose idempotent producers use a sequence for
// another batch after an answer is lost, and have it refused then.
var losingCount = []string{"kafkajs"}

// TestIdempotentClientsUnderEnforce has producers without conditions write many
// batches over a connection that breaks, so that libraries retry what was
// appended already. Each record is in the log once, where its user was told.
func TestIdempotentClientsUnderEnforce(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "idempotent"
	p := startProxy(t, "--enforce", topic, "--advertised-host", relayHost)
	createTopic(t, adminAt(t, brokers.addresses()...), topic, clientPartitions)
	var requests atomic.Int32 // of the producer at work
	r := startRelay(t, p, func(int) deed { return idempotentCuts[requests.Add(1)] })
	for i, client := range realClients {
		t.Run(client.name, func(t *testing.T) {
			process := startClient(t, client.argv(t))
			for j, setting := range client.settings {
				if !setting.Idempotent && client.name != repeatingClient {
					continue // it repeats what it does not know of
				}
				setting.BatchBytes, setting.Retries = 1024, idempotentRetries
				w := &plainWriter{
					process: process, setting: setting, line: clientOfLine{client.name, process.version, setting.name},
					bootstrap: r.bootstrap, topic: topic, partition: partitionOf(i, j),
				}
				requests.Store(0)
				cuts := r.done()
				faults := w.many(t, idempotentRecords)
				switch {
				case setting.Idempotent && len(faults) > 0:
					t.Errorf("%v: %d faults: %q", w.line, len(faults), faults[:min(5, len(faults))])
				case !setting.Idempotent && len(faults) == 0:
					t.Errorf("%v: nothing was repeated: the test sees nothing", w.line)
				}
				if got, want := r.done()-cuts, len(idempotentCuts); got != want {
					t.Errorf("%v: %d requests were cut, want %d", w.line, got, want)
				}
			}
		})
	}
}

// many sends records without waiting for each, and returns all that is not once
// in the log, where its user was told.
func (w *plainWriter) many(t *testing.T, records int) (faults []string) {
	t.Helper()
	w.open(t)
	reports := make(map[string]<-chan clientReport, records)
	for i := range records {
		value := fmt.Sprintf("%d %0300d", i, 0) // a few fit into a batch
		reports[value] = w.process.begin(t, clientCommand{
			Do: "send", Producer: w.producer, Topic: w.topic, Partition: w.partition, Value: value,
		})
	}
	told := make(map[string]int64, records)
	var failed *clientError
	for value, report := range reports {
		got := w.process.await(t, report)
		if got.Error != nil {
			failed = got.Error
			continue
		}
		told[value] = got.Offset
	}
	if len(told) < records && !slices.Contains(losingCount, w.line.client) {
		t.Errorf("%v: %d of %d records failed, one with %v", w.line, records-len(told), records, failed)
	}
	stored := map[string]int64{}
	for _, record := range readLog(t, w.topic, w.partition) {
		if earlier, twice := stored[record.value]; twice {
			faults = append(faults, fmt.Sprintf("%.4s: at %d and at %d", record.value, earlier, record.offset))
		}
		stored[record.value] = record.offset
	}
	for value, offset := range told {
		if at, there := stored[value]; !there || at != offset {
			faults = append(faults, fmt.Sprintf("%.4s: told %d, is at %d (%v)", value, offset, at, there))
		}
	}
	w.process.must(t, clientCommand{Do: "close", Producer: w.producer})
	return faults
}
