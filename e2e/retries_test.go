package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

// TestRetriesOfRealClients breaks the connection of each library's Produce
// requests, before, within and behind them, with the answer lost. Libraries
// retry by themselves, each in its way: as it was, stamped anew, cut anew, or not
// at all. Whatever they do, a conditional record lies where it was promised,
// once, and its user is told of it or told that nothing is known.
func TestRetriesOfRealClients(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "retries"
	p := startProxy(t, "--require", topic, "--advertised-host", relayHost)
	createTopic(t, adminAt(t, brokers.addresses()...), topic, clientPartitions)
	var armed atomic.Int32
	r := startRelay(t, p, func(int) deed { return deed(armed.Swap(int32(letPass))) })
	for i, client := range realClients {
		t.Run(client.name, func(t *testing.T) {
			process := startClient(t, client.argv(t))
			for j, setting := range client.settings {
				w := &retryingWriter{relay: r, armed: &armed, clientWriter: clientWriter{
					client: client.name, process: process, setting: setting,
					bootstrap: r.bootstrap, topic: topic, partition: partitionOf(i, j),
				}}
				cuts := []deed{cutWithin, loseAnswer}
				if longRuns {
					cuts = append(cuts, cutBefore)
				}
				for _, c := range cuts {
					w.broken(t, c, true)
					w.broken(t, c, false)
				}
				w.check(t)
			}
		})
	}
}

// retryingWriter is a user whose connection breaks.
type retryingWriter struct {
	clientWriter
	relay *relay
	armed *atomic.Int32
}

// broken appends a record while the connection breaks, and again if the library
// gives up, as its user would.
func (w *retryingWriter) broken(t *testing.T, c deed, appendID bool) {
	t.Helper()
	name := fmt.Sprintf("%s, %v, append-id %v", w.setting.name, c, appendID)
	w.open(t)
	defer w.close(t)
	w.mustAppend(t, name+": before")
	record := w.append(name)
	if !appendID {
		record.Headers = record.Headers[:1]
	}
	cuts := w.relay.done()
	w.armed.Store(int32(c))
	got := w.process.do(t, record)
	if w.relay.done() != cuts+1 {
		t.Fatalf("%s: nothing was cut", name)
	}
	if got.Error == nil {
		w.appended(t, got.Offset, name)
		return
	}
	t.Logf("%s: the library gives up with %v", name, got.Error)
	stored := readLog(t, w.topic, w.partition)
	switch {
	case got.Error.Code != -1 && got.Error.Code != 0:
		t.Errorf("%s: refused, though nobody else writes: %v", name, got.Error)
	case appendID:
		// Its user sends it again, perhaps by a new producer.
		w.close(t)
		w.open(t)
		record.Producer = w.producer
		w.appended(t, w.process.must(t, record), name)
	case slices.Contains(stored, logRecord{int64(len(w.log)), name}):
		w.log = append(w.log, name)
	}
}
