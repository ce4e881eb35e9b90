package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestConditionsInEveryVersionAndCodec appends a batch of two records after the
// other in each version of Produce and each codec, and asks for offset 0 again.
func TestConditionsInEveryVersionAndCodec(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "versions"
	oldest := int16(3)
	if brokers.kafka == nil {
		oldest = 5 // before, the embedded broker does not mark duplicates
	}
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	part := producePart{topic: topic, id: topicID(t, conn, topic)}
	var values []string
	newest := newestProduce(t, conn)
	t.Logf("versions %d to %d", oldest, newest)
	for version := oldest; version <= newest; version++ {
		for codec, codecName := range codecs {
			if codecName == "zstd" && version < 7 {
				continue // KIP-110
			}
			next := int64(len(values))
			name := fmt.Sprintf("v%d-%s", version, codecName)
			part.batch = compressedBatch(int16(codec), conditional(next, name+"-a"), conditional(next+1, name+"-b"))
			if got, want := tell(t, conn, version, part), wonAt(next); got != want {
				t.Fatalf("%s: got %+v, want %+v", name, got, want)
			}
			values = append(values, name+"-a", name+"-b")
			part.batch = compressedBatch(int16(codec), conditional(0, name+"-c"), conditional(1, name+"-d"))
			want := takenAt(0, next+2)
			if version < 8 {
				want.message = "" // KIP-467
			}
			if got := tell(t, conn, version, part); got != want {
				t.Errorf("%s, for offset 0: got %+v, want %+v", name, got, want)
			}
		}
	}
	mustHold(t, topic, values...)
}

// tell sends one part, acks=all.
func tell(t *testing.T, conn *rawConn, version int16, part producePart) told {
	t.Helper()
	answers, err := conn.produceParts(produceParts(version, -1, part))
	if err != nil {
		t.Fatal(err)
	}
	return toldOf(answers[0])
}

// newestProduce is what the proxy says the broker behind it speaks.
func newestProduce(t *testing.T, conn *rawConn) int16 {
	t.Helper()
	response, err := conn.roundTrip(kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range response.(*kmsg.ApiVersionsResponse).ApiKeys {
		if key.ApiKey == kmsg.Produce.Int16() {
			return key.MaxVersion
		}
	}
	t.Fatal("Produce is not offered")
	return 0
}

func topicID(t *testing.T, conn *rawConn, topic string) [16]byte {
	t.Helper()
	metadata, err := conn.metadata(topic)
	if err != nil {
		t.Fatal(err)
	}
	return metadata.Topics[0].TopicID
}

// TestBatchesOfSeveralRecords holds every record to its own condition.
func TestBatchesOfSeveralRecords(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "several"
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	conn.mustTell(t, topic, encodeBatch(conditional(0, "a"), conditional(1, "b"), conditional(2, "c")), wonAt(0))
	conn.mustTell(t, topic, encodeBatch(conditional(2, "x"), conditional(3, "y")), takenAt(2, 3))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "x")), takenAt(1, 3))
	conn.mustTell(t, topic, encodeBatch(conditional(4, "x"), conditional(5, "y")), notReachedAt(4, 3))
	for name, batch := range map[string][]byte{
		"a gap":            encodeBatch(conditional(3, "x"), conditional(5, "y")),
		"the same twice":   encodeBatch(conditional(3, "x"), conditional(3, "y")),
		"one without":      encodeBatch(conditional(3, "x"), rawRecord{value: "y"}),
		"none at all":      encodeBatch(rawRecord{value: "x"}),
		"append-id on one": encodeBatch(identified(conditional(3, "x"), "id"), conditional(4, "y")),
	} {
		answer, err := conn.produce(topic, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		if got := toldOf(answer); got.code != kerr.InvalidRecord.Code || got.offset != -1 || got.message == "" {
			t.Errorf("%s: got %+v, want INVALID_RECORD in words", name, got)
		}
	}
	conn.mustTell(t, topic, encodeBatch(conditional(3, "d"), conditional(4, "e")), wonAt(3))
	mustHold(t, topic, "a", "b", "c", "d", "e")
}

// TestARequestOfAllKinds mixes fenced, plain and unknown topics: each gets its
// own answer, in the request's order, whatever acks the plain ones have.
func TestARequestOfAllKinds(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const fenced, plain = "mixed-fenced", "mixed-plain"
	p := startProxy(t, "--require", "mixed-fenced*")
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, fenced, 1)
	// The embedded broker picks leaders at random: enough for each to lead one.
	createTopic(t, admin, plain, 10*brokerCount)
	conn := dialLeader(t, p, fenced)
	partition := ledAlike(t, conn, fenced, plain)
	var wantFenced, wantPlain []logRecord
	for round, acks := range []int16{-1, 1} {
		expect := int64(round)
		value := fmt.Sprintf("acks %d", acks)
		answers, err := conn.produceParts(produceParts(9, acks,
			producePart{topic: "mixed-nowhere", batch: encodeBatch(rawRecord{value: "x"})},
			producePart{topic: plain, partition: partition, batch: encodeBatch(rawRecord{value: value})},
			producePart{topic: "mixed-fenced-nowhere", batch: encodeBatch(conditional(0, "x"))},
			producePart{topic: fenced, batch: encodeBatch(conditional(expect, value))},
		))
		if err != nil {
			t.Fatal(err)
		}
		wantFenced, wantPlain = append(wantFenced, logRecord{expect, value}), append(wantPlain, logRecord{expect, value})
		for i, appended := range []bool{false, true, false, true} {
			got := toldOf(answers[i])
			if appended && got != wonAt(expect) || !appended && got.code != kerr.UnknownTopicOrPartition.Code {
				t.Errorf("acks %d, part %d: got %+v; appended should be %v", acks, i, got, appended)
			}
		}
	}
	answers, err := conn.produceParts(produceParts(9, -1,
		producePart{topic: fenced, batch: encodeBatch(conditional(0, "x"))},
		producePart{topic: plain, partition: partition, batch: encodeBatch(rawRecord{value: "beside"})},
	))
	if err != nil {
		t.Fatal(err)
	}
	wantPlain = append(wantPlain, logRecord{2, "beside"})
	got := []told{toldOf(answers[0]), toldOf(answers[1])}
	if want := []told{takenAt(0, 2), wonAt(2)}; !slices.Equal(got, want) {
		t.Errorf("a refusal beside an append: got %+v, want %+v", got, want)
	}
	if got := readLog(t, fenced, 0); !slices.Equal(got, wantFenced) {
		t.Errorf("the fenced log holds %v, want %v", got, wantFenced)
	}
	if got := readLog(t, plain, partition); !slices.Equal(got, wantPlain) {
		t.Errorf("the plain log holds %v, want %v", got, wantPlain)
	}
}

// ledAlike finds a partition of other whose leader also leads partition 0 of
// topic, so that one request can name both.
func ledAlike(t *testing.T, conn *rawConn, topic, other string) int32 {
	t.Helper()
	metadata, err := conn.metadata(topic, other)
	if err != nil {
		t.Fatal(err)
	}
	for _, partition := range metadata.Topics[1].Partitions {
		if partition.Leader == metadata.Topics[0].Partitions[0].Leader {
			return partition.Partition
		}
	}
	t.Fatalf("no partition of %s is led by the leader of %s", other, topic)
	return 0
}

// TestAppendsWithoutAnswer is acks=0: what may be appended is, in the order of
// the connection, and a refusal closes the connection.
func TestAppendsWithoutAnswer(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "no-answer"
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	send := func(batch []byte) {
		t.Helper()
		if err := conn.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(conn.frame(produceParts(9, 0, producePart{topic: topic, batch: batch}))); err != nil {
			t.Fatal(err)
		}
	}
	send(encodeBatch(conditional(0, "a")))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "b")), wonAt(1)) // and the connection lives
	send(encodeBatch(conditional(2, "c")))
	conn.mustTell(t, topic, encodeBatch(conditional(3, "d")), wonAt(3))
	send(encodeBatch(conditional(0, "x")))
	if answer, err := readFrame(conn); err == nil || !isClosed(err) {
		t.Errorf("after a refusal without answer: got %x, %v; want a closed connection", answer, err)
	}
	mustHold(t, topic, "a", "b", "c", "d")
}

// TestOldRecordsAreRefused: the broker would let the fence expire with them.
func TestOldRecordsAreRefused(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "old"
	p := startProxy(t, "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	const hour = int64(time.Hour / time.Millisecond)
	now := time.Now().UnixMilli()
	for name, at := range map[string]int64{"no timestamp": -1, "13 hours old": now - 13*hour, "1970": 0} {
		answer, err := conn.produce(topic, 0, setTimestamp(encodeBatch(conditional(0, "x")), at))
		if err != nil {
			t.Fatal(err)
		}
		if got := toldOf(answer); got.code != kerr.InvalidTimestamp.Code || got.offset != -1 || !strings.Contains(got.message, "timestamp") {
			t.Errorf("%s: got %+v, want INVALID_TIMESTAMP in words", name, got)
		}
	}
	conn.mustTell(t, topic, setTimestamp(encodeBatch(conditional(0, "11 hours old")), now-11*hour), wonAt(0))
	mustHold(t, topic, "11 hours old")
}
