package proxy

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// Some libraries take an orderly end before the first answer for a broker that
// wants TLS, and give up for good; a reset they try again.
func TestClientOfADeadBrokerIsReset(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	address := r.BrokerAddrs()[0]
	l.server.Close()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	formatter := kmsg.NewRequestFormatter()
	if _, err := conn.Write(formatter.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(seamPatience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

// A client that names partitions which do not exist must not have the topic
// looked up for each, nor views read.
func TestPartitionsThatDoNotExistCostNoReadings(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	metadata, views := l.count(kmsg.Metadata), l.count(kmsg.OffsetForLeaderEpoch)
	var parts []part
	for p := int32(100); p < 600; p++ {
		parts = append(parts, part{topic: "fenced", partition: p, records: conditional(0, "x")})
	}
	for _, got := range resultsOf(c.produce(9, -1, parts...)) {
		if got.Code != 3 {
			t.Fatalf("partition %d: got code %d, want 3", got.Partition, got.Code)
		}
	}
	if got := l.count(kmsg.Metadata) - metadata; got > 2 {
		t.Errorf("topic was looked up %d times", got)
	}
	if got := l.count(kmsg.OffsetForLeaderEpoch) - views; got > 0 {
		t.Errorf("%d log ends were read", got)
	}
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
}

// Batches that take long to decompress must not hold up small ones.
func TestSmallBatchesDoNotWaitForInspectors(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	for range cap(r.fencing.inspecting) {
		r.fencing.inspecting <- struct{}{}
	}
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
	for range cap(r.fencing.inspecting) {
		<-r.fencing.inspecting
	}
}

// What is known of a topic turns out to be void while a request's first partition is
// being read: the second is judged by what is true now.
func TestATopicForgottenWithinARequestIsLookedUpAgain(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	turns := make(chan struct{}) // without room: taken and given back with the test
	r.fencing.inspecting = turns
	long := gzipped(identified(1, strings.Repeat("b", 2*keptInspectorBytes)))
	id := c.send(produceOf(9, -1, part{topic: "fenced", partition: 0, records: long}, part{topic: "fenced", partition: 1, records: conditional(0, "c")}))
	<-turns
	l.change(func() { l.topics["fenced"].appendTime = true })
	r.fencing.topics.forget("fenced")
	turns <- struct{}{}
	got := resultsOf(c.expect(id, 9))
	wantResult(t, got[0], 0, 1, "")
	wantResult(t, got[1], 87, -1, "the topic has LogAppendTime, where equal records cannot be told apart: give every record an append-id header")
}

// gzipped compresses the records of a batch.
func gzipped(batch []byte) []byte {
	var out bytes.Buffer
	out.Write(batch[:61])
	w := gzip.NewWriter(&out)
	_, _ = w.Write(batch[61:])
	_ = w.Close()
	batch = out.Bytes()
	batch[22] |= byte(wire.CodecGzip)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	wire.Seal(batch)
	return batch
}

// Brokers that are taken for kfake and are not would make a success of every
// duplicate, and no word would be said of it.
func TestKafkaTakenForKfakeIsNotServed(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{BrokerKind: EmbeddedKfake}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), 44, -1,
		"topic is not served: the brokers' kind is set to kfake and they are not kfake: set it to auto")
}
