package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestClientThatLeavesWhileItWaits: what it sent and the proxy held is never
// written, though it would have won. That of one that stays is.
func TestClientThatLeavesWhileItWaits(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "left-while-waiting"
	p := startProxy(t, "--require", topic)
	admin := adminAt(t, brokers.addresses()...)
	createTopic(t, admin, topic, 1)
	conns := []*rawConn{dialLeader(t, p, topic), dialLeader(t, p, topic), dialLeader(t, p, topic)}
	// Without a follower the first append is not acknowledged, and before that
	// nothing is known by which another may be sent.
	leader, frozen := leaderAndFollower(t, admin, topic)
	thaw := freeze(t, cluster, frozen)
	first := send(t, conns[0], topic, conditional(0, "first"))
	awaitLogEnd(t, cluster.Address(leader), topic, 1)
	leaves := send(t, conns[1], topic, conditional(1, "leaves"))
	stays := send(t, conns[2], topic, conditional(1, "stays"))
	leaves.conn.close()
	thaw()
	first.mustBeTold(t, wonAt(0))
	stays.mustBeTold(t, wonAt(1))
	awaitInSync(t, admin, topic, 3)
	dialLeader(t, p, topic).mustTell(t, topic, encodeBatch(conditional(2, "last")), wonAt(2))
	mustHold(t, topic, "first", "stays", "last")
}

// sentBatch is a batch whose answer is still to be read.
type sentBatch struct {
	conn    *rawConn
	request *kmsg.ProduceRequest
}

// send sends one record to partition 0, acks=all, and does not wait for more than
// that the proxy has it: the answer to another request in the same write.
func send(t *testing.T, conn *rawConn, topic string, record rawRecord) sentBatch {
	t.Helper()
	return sendWith(t, -1, conn, topic, record)
}

// sendWith is send with other acks.
func sendWith(t *testing.T, acks int16, conn *rawConn, topic string, record rawRecord) sentBatch {
	t.Helper()
	s := sentBatch{conn, produceParts(9, acks, producePart{topic: topic, batch: encodeBatch(record)})}
	if err := conn.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(conn.frame(kmsg.NewPtrApiVersionsRequest()), conn.frame(s.request)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(conn); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s sentBatch) mustBeTold(t *testing.T, want told) {
	t.Helper()
	body, err := s.conn.answer()
	if err != nil {
		t.Fatal(err)
	}
	response, err := decodeAnswer(s.request, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := toldOf(response.(*kmsg.ProduceResponse).Topics[0].Partitions[0]); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// awaitLogEnd waits until the log of partition 0 ends at an offset, committed or
// not, at the leader, which is asked at its own address.
func awaitLogEnd(t *testing.T, leader, topic string, want int64) {
	t.Helper()
	conn, err := dialRaw(leader)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	metadata, err := conn.metadata(topic)
	if err != nil {
		t.Fatal(err)
	}
	partition := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	partition.CurrentLeaderEpoch, partition.LeaderEpoch = -1, metadata.Topics[0].Partitions[0].LeaderEpoch
	asked := kmsg.NewOffsetForLeaderEpochRequestTopic()
	asked.Topic, asked.Partitions = topic, append(asked.Partitions, partition)
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.Version, request.ReplicaID, request.Topics = 4, -1, append(request.Topics, asked)
	waitFor(t, fmt.Sprintf("the log of %s ends at %d", topic, want), 10*time.Second, func() error {
		response, err := conn.roundTrip(request)
		if err != nil {
			return err
		}
		if got := response.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]; got.EndOffset != want {
			return fmt.Errorf("it ends at %d, code %d", got.EndOffset, got.ErrorCode)
		}
		return nil
	})
}
