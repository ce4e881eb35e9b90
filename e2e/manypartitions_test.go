package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// TestManyPartitionsWithAWriterEach goes through one proxy, which has to learn
// all of them at the same moment.
func TestManyPartitionsWithAWriterEach(t *testing.T) {
	needsFence(t)
	topics, each := 1, int32(1_000)
	if brokers.kafka != nil {
		each = 300 // they cost Kafka some time to make
	}
	if longRuns {
		topics, each = 4, 2_500
	}
	p := startProxy(t, "--require", "many-*")
	var places []place
	for i := range topics {
		name := fmt.Sprintf("many-%d", i)
		createWideTopic(t, p, name, each)
		for partition := range each {
			places = append(places, place{name, partition})
		}
	}
	before := p.mustMemory(t)
	writers := connectWriters(t, p, places)
	for round := range int64(3) {
		writeAll(t, writers, wonAt(round), func(p place) rawRecord { return conditional(round, fmt.Sprintf("%v-%d", p, round)) })
	}
	writeAll(t, writers, takenAt(1, 3), func(place) rawRecord { return conditional(1, "x") })
	after := p.mustMemory(t)
	t.Logf("the proxy takes %d MiB, %d at most; %d before", after.now>>20, after.peak>>20, before.now>>20)
	ends, err := adminAt(t, brokers.addresses()...).ListEndOffsets(t.Context(), topicsOf(places)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range places {
		if end, ok := ends.Lookup(at.topic, at.partition); !ok || end.Err != nil || end.Offset != 3 {
			t.Fatalf("end of %v: got %+v, want 3", at, end)
		}
	}
	for range 5 {
		at := places[rand.IntN(len(places))]
		var want []logRecord
		for round := range int64(3) {
			want = append(want, logRecord{round, fmt.Sprintf("%v-%d", at, round)})
		}
		if got := readLog(t, at.topic, at.partition); !slices.Equal(got, want) {
			t.Errorf("the log of %v holds %v, want %v", at, got, want)
		}
	}
}

func topicsOf(places []place) []string {
	var topics []string
	for _, at := range places {
		topics = append(topics, at.topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

func (p *proxyProcess) mustMemory(t *testing.T) memory {
	t.Helper()
	m, err := p.memory()
	if err != nil && !errors.Is(err, errNoMemoryFigures) {
		t.Fatal(err)
	}
	return m
}

// createWideTopic makes a topic of many partitions with one replica each, and
// waits until every broker says that all have leaders.
func createWideTopic(t *testing.T, p *proxyProcess, name string, partitions int32) {
	t.Helper()
	created, err := adminAt(t, p.bootstrap).CreateTopic(t.Context(), partitions, 1, nil, name)
	if err != nil || created.Err != nil {
		t.Fatalf("create topic %s: %v, %v", name, err, created.Err)
	}
	for _, address := range brokers.addresses() {
		conn, err := dialRaw(address)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "leaders of "+name+" at "+address, 5*time.Minute, func() error {
			metadata, err := conn.metadata(name)
			if err != nil {
				return err
			}
			led := 0
			for _, partition := range metadata.Topics[0].Partitions {
				if partition.ErrorCode == 0 && partition.Leader >= 0 {
					led++
				}
			}
			if led != int(partitions) {
				return fmt.Errorf("%d of %d partitions are led", led, partitions)
			}
			return nil
		})
		conn.close()
	}
	admin := adminAt(t, brokers.addresses()...)
	waitFor(t, "leaders of "+name+" lead", 5*time.Minute, func() error {
		ends, err := admin.ListEndOffsets(t.Context(), name)
		if err != nil {
			return err
		}
		return ends.Error()
	})
}

// writersPerConnection send their requests one behind the other, without waiting
// for answers: sockets are scarcer than partitions.
const writersPerConnection = 8

// fewWriters share a connection.
type fewWriters struct {
	conn   *rawConn
	places []place
}

// connectWriters gives each place's writer a connection to the place's leader.
func connectWriters(t *testing.T, p *proxyProcess, places []place) []*fewWriters {
	t.Helper()
	seed, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer seed.close()
	metadata, err := seed.metadata(topicsOf(places)...)
	if err != nil {
		t.Fatal(err)
	}
	led := map[int32][]place{}
	for _, topic := range metadata.Topics {
		for _, partition := range topic.Partitions {
			led[partition.Leader] = append(led[partition.Leader], place{*topic.Topic, partition.Partition})
		}
	}
	var writers []*fewWriters
	for leader, mine := range led {
		for some := range slices.Chunk(mine, writersPerConnection) {
			conn, err := dialRaw(brokerMap(metadata)[leader])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.close)
			// One after the other, all the way: brokers let few connections wait.
			if _, err := conn.metadata(); err != nil {
				t.Fatal(err)
			}
			writers = append(writers, &fewWriters{conn, some})
		}
	}
	return writers
}

// writeAll has every writer append a record of its own at the same time, until
// all were told what is wanted. Before that they may only be told to send again:
// not everything is learnt within the time that a batch is held.
func writeAll(t *testing.T, writers []*fewWriters, want told, record func(place) rawRecord) {
	t.Helper()
	began := time.Now()
	var wrote, again atomic.Int64
	var group sync.WaitGroup
	for _, w := range writers {
		group.Go(func() {
			for left := w.places; len(left) > 0; {
				answers, err := w.write(left, record)
				if err != nil {
					t.Errorf("%v: %v", left, err)
					return
				}
				var refused []place
				for i, got := range answers {
					switch {
					case got == want:
						wrote.Add(1)
					case got == heldTooLong && time.Since(began) < time.Minute:
						again.Add(1)
						refused = append(refused, left[i])
					default:
						t.Errorf("%v: got %+v, want %+v", left[i], got, want)
						return
					}
				}
				left = refused
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d were told %+v within %v, %d after sending again", wrote.Load(), want, time.Since(began).Round(time.Millisecond), again.Load())
}

// heldTooLong is what a writer is told whose place could not be learnt in time.
var heldTooLong = told{kerr.NotLeaderForPartition.Code, -1, "not appended, send again: hold expired"}

func (w *fewWriters) write(places []place, record func(place) rawRecord) ([]told, error) {
	if err := w.conn.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return nil, err
	}
	var requests []*kmsg.ProduceRequest
	first := w.conn.correlationID + 1
	for _, at := range places {
		request := produceRequest(at.topic, at.partition, encodeBatch(record(at)))
		requests = append(requests, request)
		if _, err := w.conn.Write(w.conn.frame(request)); err != nil {
			return nil, err
		}
	}
	var answers []told
	for i, request := range requests {
		frame, err := readFrame(w.conn)
		if err != nil {
			return nil, err
		}
		if got := int32(binary.BigEndian.Uint32(frame)); got != first+int32(i) {
			return nil, errWrongCorrelation
		}
		response, err := decodeAnswer(request, frame[4:])
		if err != nil {
			return nil, err
		}
		answers = append(answers, toldOf(response.(*kmsg.ProduceResponse).Topics[0].Partitions[0]))
	}
	return answers, nil
}
