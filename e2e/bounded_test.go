package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// peakMemory is the most memory that a proxy has had, in bytes; 0 where the system
// does not tell.
func (p *proxyProcess) peakMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	return 0
}

// Forty clients send long appends at once, of which not all may be in memory: all are
// won, one after the other, in much less memory than they have together.
func TestLongAppendsShareABoundedMemory(t *testing.T) {
	needsFence(t)
	const writers, size, room = 40, 5 << 20, 16 << 20
	p := startProxy(t, "--require", "bounded", "--max-buffered", strconv.Itoa(room), "--arrival-timeout", "1m")
	most := "16777216"
	createReplicatedTopic(t, adminAt(t, brokers.addresses()...), "bounded", writers, 1, map[string]*string{"max.message.bytes": &most})
	addresses := leaderAddresses(t, p, "bounded")
	before := p.peakMemory(t)
	batch := encodeBatch(conditional(0, strings.Repeat("v", size)))
	var group sync.WaitGroup
	for partition := range int32(writers) {
		conn, err := dialRaw(addresses[partition])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.close)
		_ = conn.SetDeadline(time.Now().Add(90 * time.Second))
		group.Go(func() {
			got, err := conn.produce("bounded", partition, batch)
			if err != nil || got.ErrorCode != 0 || got.BaseOffset != 0 {
				t.Errorf("partition %d: got %+v, %v, want offset 0", partition, got, err)
			}
		})
	}
	group.Wait()
	if !p.output.contains("the memory for frames is used up") {
		t.Error("nobody had to wait, so this shows nothing")
	}
	grown := p.peakMemory(t) - before
	t.Logf("memory grew by %d MiB for requests of %d MiB, with room for %d", grown>>20, writers*size>>20, room>>20)
	if grown > writers*size*3/4 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}

// leaderAddresses are where a proxy serves the leaders of a topic, by partition.
func leaderAddresses(t *testing.T, p *proxyProcess, topic string) map[int32]string {
	t.Helper()
	conn, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	metadata, err := conn.metadata(topic)
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[int32]string{}
	for _, partition := range metadata.Topics[0].Partitions {
		address, served := brokerMap(metadata)[partition.Leader]
		if !served {
			t.Fatalf("no leader of %s/%d", topic, partition.Partition)
		}
		addresses[partition.Partition] = address
	}
	return addresses
}

// At a read-only listener two libraries read and cannot write, and are told so.
func TestReadOnlyListenerForRealClients(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "read-only"
	p, reader := newProxyProcess(t), newProxyProcess(t)
	file := filepath.Join(t.TempDir(), "serve.yaml")
	text := fmt.Sprintf("bootstrap: [%s]\nbrokers: {kind: %s}\nlisteners:\n- {name: all, listen: %s, broker_ports: %s}\n- {name: readers, listen: %s, broker_ports: %s, read_only: true}\nrules:\n- {topics: %s, mode: require}\n",
		strings.Join(brokers.addresses(), ", "), brokers.kind(), p.bootstrap, p.brokerPorts(), reader.bootstrap, reader.brokerPorts(), topic)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t, program, "--config", file)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	writer := dialLeader(t, p, topic)
	if got, err := writer.produce(topic, 0, encodeBatch(conditional(0, "v"))); err != nil || got.ErrorCode != 0 {
		t.Fatalf("append at the other listener: %+v, %v", got, err)
	}

	franz, err := kgo.NewClient(kgo.SeedBrokers(reader.bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableIdempotentWrite(), kgo.RecordRetries(2), kgo.FetchMaxWait(200*time.Millisecond), kgo.ConsumerGroup("readers"))
	if err != nil {
		t.Fatal(err)
	}
	defer franz.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if fetches := franz.PollFetches(ctx); fetches.Err() != nil || fetches.NumRecords() != 1 {
		t.Errorf("franz-go read %d records: %v, want 1", fetches.NumRecords(), fetches.Err())
	}
	if err := franz.CommitUncommittedOffsets(ctx); err != nil {
		t.Errorf("franz-go: commit: %v", err)
	}
	if err := appendBy(ctx, franz, topic, "1", "w"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("franz-go: append: got %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}

	librdkafka := startClient(t, pythonProgram("librdkafka.py")(t))
	if got := librdkafka.must(t, clientCommand{Do: "next", Bootstrap: reader.bootstrap, Topic: topic}); got != 1 {
		t.Errorf("librdkafka: next offset %d, want 1", got)
	}
	librdkafka.must(t, clientCommand{Do: "open", Producer: topic, Bootstrap: reader.bootstrap, producerSettings: producerSettings{Acks: "all"}})
	got := librdkafka.do(t, clientCommand{
		Do: "send", Producer: topic, Topic: topic, Value: "w", Headers: []clientHeader{{Name: "expected-offset", Value: "1"}},
	})
	if got.Error == nil || got.Error.Code != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("librdkafka: append: got offset %d, %v, want TOPIC_AUTHORIZATION_FAILED", got.Offset, got.Error)
	}
	librdkafka.must(t, clientCommand{Do: "close", Producer: topic})
	mustHold(t, topic, "v")
}

// SIGTERM while many append: each request is answered, or was never sent. So the log
// holds what was answered and nothing more.
func TestSIGTERMUnderLoadLosesNothing(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const fenced, free, each = "drain-fenced", "drain-free", 4
	p := startProxy(t, "--require", fenced)
	admin := adminAt(t, brokers.addresses()...)
	createTopic(t, admin, fenced, each)
	createTopic(t, admin, free, each)
	type writer struct {
		topic     string
		partition int32
		answered  atomic.Int64
		conn      *rawConn
	}
	var writers []*writer
	for _, topic := range []string{fenced, free} {
		addresses := leaderAddresses(t, p, topic)
		for partition := range int32(each) {
			conn, err := dialRaw(addresses[partition])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.close)
			writers = append(writers, &writer{topic: topic, partition: partition, conn: conn})
		}
	}
	var group sync.WaitGroup
	for _, w := range writers {
		group.Go(func() {
			for {
				next := w.answered.Load()
				got, err := w.conn.produce(w.topic, w.partition, encodeBatch(conditional(next, "v")))
				if err != nil {
					return
				}
				if got.ErrorCode != 0 || got.BaseOffset != next {
					t.Errorf("%s/%d: got %+v, want offset %d", w.topic, w.partition, got, next)
					return
				}
				w.answered.Add(1)
			}
		})
	}
	waitFor(t, "all write", 30*time.Second, func() error {
		for _, w := range writers {
			if w.answered.Load() < 20 {
				return fmt.Errorf("%s/%d has %d answers", w.topic, w.partition, w.answered.Load())
			}
		}
		return nil
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if _, err := net.DialTimeout("tcp", p.bootstrap, time.Second); err == nil {
		t.Error("clients are still accepted")
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		if err != nil { // exit status 0: nothing was cut off
			t.Errorf("proxy ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("proxy did not end within 20 s of SIGTERM")
	}
	if !p.output.contains("cut_by_timeout=0 client_gone=0 upstream_lost=0") {
		t.Errorf("the log does not say that all was answered:\n%s", p.output.tail(5))
	}
	ends, err := admin.ListEndOffsets(t.Context(), fenced, free)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writers {
		end, ok := ends.Lookup(w.topic, w.partition)
		if got := w.answered.Load(); !ok || end.Offset != got {
			t.Errorf("%s/%d: %d records are stored, and %d were answered", w.topic, w.partition, end.Offset, got)
		}
	}
}
