package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics that are written to while everything is renewed.
const (
	renewedFree     = "renewed-free"
	renewedEnforced = "renewed-enforced" // by writers without a condition
	renewedRequired = "renewed-required" // by writers who race for each place
)

// steadySender sends one record, and tells where it is or what the library said after
// its own retries.
type steadySender interface {
	send(ctx context.Context, topic, value string, headers ...clientHeader) (int64, error)
}

// franzSender is franz-go, in the test's process.
type franzSender struct{ *kgo.Client }

func (s franzSender) send(ctx context.Context, topic, value string, headers ...clientHeader) (int64, error) {
	record := &kgo.Record{Topic: topic, Value: []byte(value)}
	for _, h := range headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	err := s.ProduceSync(ctx, record).FirstErr()
	return record.Offset, err
}

// processSender is a producer of a program of e2e/clients.
type processSender struct {
	process  *clientProcess
	producer string
}

func (e *clientError) Error() string { return e.String() }

// Is has errors.Is find the broker's code.
func (e *clientError) Is(target error) bool {
	var code *kerr.Error
	return e.Code != 0 && errors.As(target, &code) && code.Code == e.Code
}

func (s processSender) send(ctx context.Context, topic, value string, headers ...clientHeader) (int64, error) {
	return s.sendTo(ctx, topic, 0, value, headers...)
}

// sendTo is send to another partition than the first.
func (s processSender) sendTo(ctx context.Context, topic string, partition int32, value string, headers ...clientHeader) (int64, error) {
	report, err := s.process.post(clientCommand{Do: "send", Producer: s.producer, Topic: topic, Partition: partition, Value: value, Headers: headers})
	if err != nil {
		return -1, err
	}
	select {
	case got, ok := <-report:
		switch {
		case !ok:
			return -1, errClientEnded
		case got.Error != nil:
			return -1, got.Error
		}
		return got.Offset, nil
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	}
}

// steadyPause is between two records of a writer, so that brokers that start get the
// processors too.
const steadyPause = 5 * time.Millisecond

// steadyWriter sends one record after the other to partition 0 of a topic.
type steadyWriter struct {
	name   string
	topic  string
	sender steadySender
	// end tells where the topic ends; nil: the writer has no condition.
	end      func(context.Context) (int64, error)
	written  atomic.Int64
	attempts []attempt // to be read when run has returned
}

// run goes on until stop is closed; what is in the library then is waited for.
func (w *steadyWriter) run(ctx context.Context, stop <-chan struct{}, id int) error {
	for next := int64(0); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		a := attempt{writer: id, value: fmt.Sprintf("%s-%d", w.name, len(w.attempts)), anywhere: w.end == nil, expected: next}
		headers := []clientHeader{{"append-id", a.value}}
		if !a.anywhere {
			headers = append(headers, clientHeader{"expected-offset", fmt.Sprint(next)})
		}
		offset, err := w.sender.send(ctx, w.topic, a.value, headers...)
		a.outcome, a.offset, a.answer = won, offset, fmt.Sprint(err)
		switch {
		case err == nil:
			next = offset + 1
		case a.anywhere:
			return fmt.Errorf("%s: %w", a.value, err)
		case errors.Is(err, kerr.OffsetOutOfRange):
			a.outcome = taken
		default:
			a.outcome = unknown
		}
		w.attempts = append(w.attempts, a)
		w.written.Add(1)
		pause(ctx, steadyPause)
		for err != nil && ctx.Err() == nil {
			if next, err = w.end(ctx); err != nil {
				pause(ctx, 50*time.Millisecond)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// renewal is a proxy and its cluster, of which everything is renewed under load.
type renewal struct {
	*inTLS
	t       *testing.T
	admin   *kgo.Client // of the brokers themselves
	client  *secret     // of the proxy's clients
	renewed int         // times that the rules were
	writers []*steadyWriter
}

var renewedTopics = []string{renewedFree, renewedEnforced, renewedRequired}

// rules are other ones each time, about topics that nobody uses.
func (r *renewal) rules() string {
	r.renewed++
	return fmt.Sprintf("{topics: %s, mode: enforce}, {topics: %s, mode: require}, {topics: other-%d, mode: require}", renewedEnforced, renewedRequired, r.renewed)
}

// senders opens a producer of each of three libraries.
func (r *renewal) senders(idempotent bool) map[string]steadySender {
	r.t.Helper()
	var opts []kgo.Opt
	if !idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	all := map[string]steadySender{"franz": franzSender{r.officeClient(r.t, opts...)}}
	for name, p := range map[string]struct {
		argv       []string
		properties map[string]string
	}{
		"java":       {javaProgram(r.t), javaTLS(r.t, r.client.pemFiles)},
		"librdkafka": {pythonProgram("librdkafka.py")(r.t), librdkafkaTLS(r.client.pemFiles)},
	} {
		process := startClient(r.t, p.argv)
		producer := fmt.Sprintf("renewed-%t", idempotent)
		process.must(r.t, clientCommand{
			Do: "open", Producer: producer, Bootstrap: r.officeBootstrap(), producerSettings: producerSettings{Idempotent: idempotent}, Properties: p.properties,
		})
		r.t.Cleanup(func() { process.must(r.t, clientCommand{Do: "close", Producer: producer}) })
		all[name] = processSender{process, producer}
	}
	return all
}

// underLoad waits until every writer was told of a few more records.
func (r *renewal) underLoad(ctx context.Context) {
	r.t.Helper()
	before := make([]int64, len(r.writers))
	for i, w := range r.writers {
		before[i] = w.written.Load()
	}
	waitFor(r.t, "all write", time.Minute, func() error {
		for i, w := range r.writers {
			if got := w.written.Load() - before[i]; got < 3 && ctx.Err() == nil {
				return fmt.Errorf("%s on %s: %d records", w.name, w.topic, got)
			}
		}
		return nil
	})
}

// testEverythingIsRenewed replaces the certificates of both sides as
// Kubernetes does, changes the rules, and restarts all brokers one after the other,
// while three libraries write through the proxy: to a topic without a rule, without
// conditions to one that is fenced, and with conditions, each racing the others. No
// send without a condition fails, the others end won, refused or unknown, and the logs
// show that it is true.
func testEverythingIsRenewed(t *testing.T, cluster *tlsCluster) {
	r := &renewal{t: t, admin: newClient(t, cluster.direct()...), client: newSecret(t)}
	r.client.write(t, cluster.outside, cluster.outside, "client")
	r.inTLS = cluster.front(t, r.rules())
	r.topics(t, r.admin, 1, renewedTopics...)
	end := func(ctx context.Context) (int64, error) {
		ends, err := kadm.NewClient(r.admin).ListEndOffsets(ctx, renewedRequired)
		if err != nil {
			return 0, err
		}
		found, _ := ends.Lookup(renewedRequired, 0)
		return found.Offset, found.Err
	}
	for name, sender := range r.senders(true) {
		r.writers = append(r.writers,
			&steadyWriter{name: name, topic: renewedFree, sender: sender},
			&steadyWriter{name: name, topic: renewedEnforced, sender: sender})
	}
	for name, sender := range r.senders(false) {
		r.writers = append(r.writers, &steadyWriter{name: name, topic: renewedRequired, sender: sender, end: end})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i, w := range r.writers {
		group.Go(func() {
			if err := w.run(ctx, stop, i); err != nil {
				t.Errorf("on %s: %v", w.topic, err)
				cancel()
			}
		})
	}
	r.renewAll(ctx)
	close(stop)
	group.Wait()
	r.check()
}

// renewAll goes through everything once for each broker, of which one comes back at
// another address.
func (r *renewal) renewAll(ctx context.Context) {
	read := 0
	for i, id := range farNodes {
		r.own.write(r.t, r.authority, r.authority, "offsetproxy")
		r.server.write(r.t, r.outside, r.outside, serverNames...)
		read = r.says(r.t, "TLS files read again", read)
		r.shows(r.server.cert)
		r.underLoad(ctx)
		r.configure(r.t, r.rules())
		read = r.says(r.t, "other rules are in force", read)
		r.underLoad(ctx)
		begun := time.Now()
		if err := r.Shut(id); err != nil {
			r.t.Error(err)
		}
		ended := time.Now()
		if i == 1 {
			if err := r.Move(id); err != nil {
				r.t.Error(err)
			}
		}
		r.underLoad(ctx)
		without := time.Now()
		if err := r.Revive(ctx, id); err != nil {
			r.t.Error(err)
			return
		}
		back := time.Now()
		r.whole(r.t, r.admin, renewedTopics...)
		r.t.Logf("broker %d: gone in %.1f s, written without it for %.1f s, back in %.1f s, in sync in %.1f s", id,
			ended.Sub(begun).Seconds(), without.Sub(ended).Seconds(), back.Sub(without).Seconds(), time.Since(back).Seconds())
	}
	r.underLoad(ctx)
}

// shows checks which certificate a new client is shown.
func (r *renewal) shows(file string) {
	r.t.Helper()
	block, _ := pem.Decode([]byte(readText(r.t, file)))
	conn, err := tls.Dial("tcp", r.officeAt, &tls.Config{
		RootCAs: r.outside.Pool(), ServerName: officeHost, Certificates: []tls.Certificate{r.outside.Sign(time.Hour, "test")},
	})
	if err != nil {
		r.t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	if shown := conn.ConnectionState().PeerCertificates[0]; !bytes.Equal(shown.Raw, block.Bytes) {
		r.t.Errorf("a new client is shown certificate %d, not the new one", shown.SerialNumber)
	}
}

// check compares the logs with what the writers were told.
func (r *renewal) check() {
	r.t.Helper()
	for _, topic := range renewedTopics {
		var attempts []attempt
		counts := map[outcome]int{}
		for _, w := range r.writers {
			if w.topic == topic {
				attempts = append(attempts, w.attempts...)
			}
		}
		for _, a := range attempts {
			counts[a.outcome]++
		}
		var log []logRecord
		for _, record := range readRecordsAt(r.t, topic, 0, r.direct()...) {
			log = append(log, logRecord{record.Offset, string(record.Value)})
		}
		r.t.Logf("%s: %d records, %v", topic, len(log), counts)
		violations := checkLog(log, attempts, 0, int64(len(log)))
		for _, violation := range violations[:min(10, len(violations))] {
			r.t.Errorf("%s: %s", topic, violation)
		}
	}
	lines, _ := r.proxy.output.lines(0)
	for _, line := range lines {
		if strings.Contains(line, "level=ERROR") {
			r.t.Errorf("the log says %s", line)
		}
	}
}
