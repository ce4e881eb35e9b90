package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// refusedTransaction is one way in which a transaction meets a fenced topic.
type refusedTransaction struct {
	name   string
	before bool // another topic is named first
	commit bool // its user takes no notice, and commits
}

var refusedTransactions = []refusedTransaction{
	{"first-abort", false, false},
	{"first-commit", false, true},
	{"second-abort", true, false},
	{"second-commit", true, true},
}

// What is looked at.
const (
	sendColumn   = "the record for it"
	commitColumn = "commit of the rest"
	abortColumn  = "abort"
	againColumn  = "the producer's next transaction, elsewhere"
)

// withoutTransactions are clients that have none.
var withoutTransactions = []string{"segmentio/kafka-go"}

// TestRefusedTransactionsOfRealClients: a transaction that names a fenced topic
// fails, nothing of it is on that topic, and transactions elsewhere work. What
// is refused depends on the brokers: before 4.0 the partitions are named in
// requests of their own.
func TestRefusedTransactionsOfRealClients(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const fenced, plain = "transactions-fenced", "transactions-plain"
	p := startProxy(t, "--require", fenced)
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, fenced, clientPartitions)
	createTopic(t, admin, plain, clientPartitions)
	seen := sightings{settings: "the fenced topic is", columns: []string{sendColumn, commitColumn, abortColumn, againColumn}}
	t.Run("clients", func(t *testing.T) {
		for i, client := range realClients {
			if slices.Contains(withoutTransactions, client.name) {
				continue
			}
			t.Run(client.name, func(t *testing.T) {
				t.Parallel()
				w := &transactionWriter{
					process: startClient(t, client.argv(t)), seen: &seen, bootstrap: p.bootstrap,
					fenced: fenced, plain: plain, partition: partitionOf(i, 0),
				}
				w.line = clientOfLine{client.name, w.process.version, ""}
				for _, transaction := range refusedTransactions {
					w.run(t, transaction)
				}
				if got := readLog(t, fenced, w.partition); len(got) != 0 {
					t.Errorf("the fenced topic holds %v", got)
				}
				w.checkCommitted(t)
			})
		}
	})
	if t.Failed() {
		return
	}
	table := "transactions-4"
	if strings.HasPrefix(cluster.Version(), "3.") {
		table = "transactions-3"
	}
	checkDocument(t, table, &seen)
}

// transactionWriter is a user of transactions.
type transactionWriter struct {
	process       *clientProcess
	seen          *sightings
	line          clientOfLine
	bootstrap     string
	fenced, plain string
	partition     int32
	committed     []string // what the plain topic must hold
	failed        []string // what it must not: of transactions that were not committed
}

func (w *transactionWriter) run(t *testing.T, transaction refusedTransaction) {
	t.Helper()
	id := fmt.Sprintf("%s-%d", transaction.name, w.partition)
	w.open(t, id, id)
	w.must(t, id, "begin")
	before := transaction.name + ": before"
	w.line.setting = "first"
	if transaction.before {
		w.line.setting = "after another"
		w.mustSend(t, id, w.plain, before)
	}
	got := w.send(t, id, w.fenced, transaction.name+": refused")
	if got.Error == nil {
		t.Fatalf("%s: appended to the fenced topic at %d", transaction.name, got.Offset)
	}
	w.saw(t, sendColumn, "fails", got.Error)
	ended := false
	if transaction.commit {
		got = w.process.do(t, clientCommand{Do: "commit", Producer: id})
		w.saw(t, commitColumn, "fails", got.Error)
		if ended = got.Error == nil; ended && transaction.before {
			w.committed = append(w.committed, before)
		}
	}
	if !ended {
		if transaction.before {
			w.failed = append(w.failed, before)
		}
		w.saw(t, abortColumn, "fails", w.process.do(t, clientCommand{Do: "abort", Producer: id}).Error)
	}
	err := w.elsewhere(t, id, transaction.name+": elsewhere")
	w.must(t, id, "close")
	if err != nil {
		w.saw(t, againColumn, "dead", err)
		anew := id + "-anew"
		w.open(t, anew, id)
		if err := w.elsewhere(t, anew, transaction.name+": anew"); err != nil {
			t.Errorf("%s: a new producer: %v", transaction.name, err)
		}
		w.must(t, anew, "close")
		return
	}
	w.saw(t, againColumn, "", nil)
}

// checkCommitted reads what became of all transactions, from the brokers.
func (w *transactionWriter) checkCommitted(t *testing.T) {
	t.Helper()
	got := readCommitted(t, w.plain, w.partition)
	astray := func(value string) bool { return slices.Contains(w.failed, value) }
	if slices.ContainsFunc(got, astray) {
		w.seen.add(t, w.line, abortColumn, "**but is committed with the next transaction**")
		got = slices.DeleteFunc(got, astray)
	}
	if !slices.Equal(got, w.committed) {
		t.Errorf("committed is %q, want %q", got, w.committed)
	}
}

// saw notes an error, and after what else it was seen.
func (w *transactionWriter) saw(t *testing.T, column, what string, err *clientError) {
	t.Helper()
	text := "works"
	if err != nil {
		text = what + ": `" + err.Kind + "`"
	}
	w.seen.add(t, w.line, column, text)
}

// elsewhere is a transaction that names no fenced topic.
func (w *transactionWriter) elsewhere(t *testing.T, producer, value string) *clientError {
	t.Helper()
	if got := w.process.do(t, clientCommand{Do: "begin", Producer: producer}); got.Error != nil {
		return got.Error
	}
	if got := w.send(t, producer, w.plain, value); got.Error != nil {
		return got.Error
	}
	if got := w.process.do(t, clientCommand{Do: "commit", Producer: producer}); got.Error != nil {
		return got.Error
	}
	w.committed = append(w.committed, value)
	return nil
}

func (w *transactionWriter) open(t *testing.T, producer, transactionalID string) {
	t.Helper()
	w.process.must(t, clientCommand{
		Do: "open", Producer: producer, Bootstrap: w.bootstrap,
		producerSettings: producerSettings{Idempotent: true, TransactionalID: transactionalID},
	})
}

func (w *transactionWriter) must(t *testing.T, producer, do string) {
	t.Helper()
	w.process.must(t, clientCommand{Do: do, Producer: producer})
}

func (w *transactionWriter) send(t *testing.T, producer, topic, value string) clientReport {
	t.Helper()
	return w.process.do(t, clientCommand{Do: "send", Producer: producer, Topic: topic, Partition: w.partition, Value: value,
		Headers: []clientHeader{{"expected-offset", "0"}, {"append-id", value}}})
}

func (w *transactionWriter) mustSend(t *testing.T, producer, topic, value string) {
	t.Helper()
	if got := w.send(t, producer, topic, value); got.Error != nil {
		t.Fatalf("%s: %v", value, got.Error)
	}
}

// readCommitted reads the values that committed transactions left, from the
// brokers.
func readCommitted(t *testing.T, topic string, partition int32) []string {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers.addresses()...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// A commit is answered before its marker is in every partition.
	var end kadm.ListedOffset
	waitFor(t, "the end of all transactions on "+topic, 30*time.Second, func() error {
		stable, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		end, _ = ends.Lookup(topic, partition)
		if got, _ := stable.Lookup(topic, partition); got.Offset != end.Offset {
			return fmt.Errorf("stable up to %d of %d", got.Offset, end.Offset)
		}
		return nil
	})
	var values []string
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s from %d to %d: %v", topic, next, end.Offset, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			if !record.Attrs.IsControl() {
				values = append(values, string(record.Value))
			}
		})
	}
	return values
}
