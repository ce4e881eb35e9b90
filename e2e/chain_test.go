package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// chainLength is how many batches a writer sends without waiting, of which the
// first is refused.
const chainLength = 5

// What is looked at.
const (
	flightColumn = "batches sent before the first answer"
	behindColumn = "behind a refused batch"
)

// TestChainsOfRealClients has each library send several batches at once, the
// first of which is refused. Those behind it expect what the first would have
// made theirs, and some would match by accident. What an idempotent library had
// sent before it learnt of the refusal is refused; what it sends later is
// judged alone, as all that others send.
func TestChainsOfRealClients(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	const topic = "chains"
	p := startProxy(t, "--require", topic, "--advertised-host", relayHost)
	createTopic(t, adminAt(t, brokers.addresses()...), topic, clientPartitions)
	var gate answerGate
	r := startRelay(t, p, func(int) deed {
		gate.passed()
		return letPass
	})
	r.holdAnswers(gate.wait)
	seen := sightings{columns: []string{flightColumn, behindColumn, afterColumn}}
	for i, client := range realClients {
		t.Run(client.name, func(t *testing.T) {
			process := startClient(t, client.argv(t))
			for j, setting := range client.settings {
				setting.BatchBytes = 1024
				w := &clientWriter{
					client: client.name, process: process, setting: setting, seen: &seen,
					bootstrap: r.bootstrap, topic: topic, partition: partitionOf(i, j),
				}
				w.chain(t, &gate)
				w.check(t)
			}
		})
	}
	if !t.Failed() {
		checkDocument(t, "chains", &seen)
	}
}

// chain sends batches of one record each.
func (w *clientWriter) chain(t *testing.T, gate *answerGate) {
	t.Helper()
	w.open(t)
	for i := range 2 { // the first also finds its way to the broker
		w.mustAppend(t, fmt.Sprintf("before %d", i))
	}
	gate.shut(chainLength)
	refused := len(w.log) - 1
	var reports []<-chan clientReport
	var values []string
	for i := range chainLength {
		value := fmt.Sprintf("%d %0400d", i, 0) // with its append-id, no two fit into one batch
		values = append(values, value)
		reports = append(reports, w.process.begin(t, w.expecting(w.append(value), fmt.Sprint(refused+i))))
	}
	var appended, refusals int
	for i, report := range reports {
		got := w.process.await(t, report)
		switch {
		case got.Error == nil:
			w.appended(t, got.Offset, values[i])
			appended++
		case got.Error.Code == kerr.OffsetOutOfRange.Code:
			refusals++
		default:
			t.Errorf("%s, batch %d: %v", w.setting.name, i, got.Error)
		}
	}
	sent := gate.count()
	w.saw(t, flightColumn, fmt.Sprint(sent))
	switch {
	case appended == 0:
		w.saw(t, behindColumn, "refused")
	case refusals == 1:
		w.saw(t, behindColumn, "judged alone")
	default: // what came too early was not reached
		w.saw(t, behindColumn, "judged alone, and sent in another order")
	}
	if w.setting.Idempotent && appended > chainLength-sent {
		t.Errorf("%s: %d appended though %d of %d were in the proxy with the first", w.setting.name, appended, sent, chainLength)
	}
	if err := w.tryAppend(t, "after"); err != nil {
		w.saw(t, afterColumn, producerDead)
		w.close(t)
		w.open(t)
		w.mustAppend(t, "anew")
	} else {
		w.saw(t, afterColumn, "goes on")
	}
	w.close(t)
}

// answerGate holds answers back until so many Produce requests have passed, or
// no more come.
type answerGate struct {
	expected, seen atomic.Int32

	mu   sync.Mutex
	open chan struct{} // closed when answers may pass; nil: they may
}

// gatePatience is for how long a library that sends no more holds up the test.
const gatePatience = time.Second

func (g *answerGate) shut(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected.Store(int32(n))
	g.seen.Store(0)
	open := make(chan struct{})
	g.open = open
	time.AfterFunc(gatePatience, func() { g.lift(open) })
}

// lift opens the gate that was shut with open, once.
func (g *answerGate) lift(open chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == open && open != nil {
		close(open)
		g.open = nil
	}
}

// passed counts a request.
func (g *answerGate) passed() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil && g.seen.Add(1) == g.expected.Load() {
		g.lift(open)
	}
}

// count is how many requests had passed when the gate opened.
func (g *answerGate) count() int { return int(g.seen.Load()) }

func (g *answerGate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}
