package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Upstream addresses of the answers below: nothing of them may get through.
const (
	secretHost = "upstream.secret.example"
	secretPort = 23456
	// mapped is a node id within the port range, hidden one beyond it.
	mapped, hidden = 7, 7000
)

func ptr[T any](v T) *T { return &v }

// addressAnswers makes an answer that names the brokers mapped and hidden, for
// each API that can.
var addressAnswers = []struct {
	name     string
	versions [2]int16
	request  func() kmsg.Request
	answer   func(version int16) kmsg.Response
	// check looks at what the client got; host is the proxy's.
	check func(t *testing.T, answer kmsg.Response, host string, port int32)
}{
	{
		"Metadata", [2]int16{0, 13},
		func() kmsg.Request { return kmsg.NewPtrMetadataRequest() },
		func(int16) kmsg.Response {
			m := kafkatest.Metadata(kafkatest.Broker{Node: mapped, Host: secretHost, Port: secretPort},
				kafkatest.Broker{Node: hidden, Host: secretHost, Port: secretPort})
			m.ControllerID = hidden
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = ptr("t")
			for i, leader := range []int32{mapped, hidden} {
				partition := kmsg.NewMetadataResponseTopicPartition()
				partition.Partition, partition.Leader = int32(i), leader
				partition.Replicas = []int32{mapped, hidden}
				topic.Partitions = append(topic.Partitions, partition)
			}
			m.Topics = append(m.Topics, topic)
			return m
		},
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			m := answer.(*kmsg.MetadataResponse)
			if len(m.Brokers) != 1 || m.Brokers[0].NodeID != mapped || m.Brokers[0].Host != host || m.Brokers[0].Port != port {
				t.Errorf("got brokers %v, want node %d at %s:%d alone", m.Brokers, mapped, host, port)
			}
			if m.Version >= 1 && m.ControllerID != -1 {
				t.Errorf("controller: got %d, want -1", m.ControllerID)
			}
			partitions := m.Topics[0].Partitions
			if got := partitions[0]; got.Leader != mapped || got.ErrorCode != 0 {
				t.Errorf("partition of a mapped leader: got %+v", got)
			}
			want := kerr.ListenerNotFound.Code
			if m.Version < 6 {
				want = kerr.LeaderNotAvailable.Code
			}
			if got := partitions[1]; got.Leader != -1 || got.ErrorCode != want {
				t.Errorf("partition of a hidden leader: got leader %d, code %d, want -1, %d", got.Leader, got.ErrorCode, want)
			}
		},
	},
	{
		"FindCoordinator", [2]int16{0, 6},
		func() kmsg.Request { return kmsg.NewPtrFindCoordinatorRequest() },
		func(version int16) kmsg.Response {
			f := kmsg.NewPtrFindCoordinatorResponse()
			f.NodeID, f.Host, f.Port = mapped, secretHost, secretPort
			for _, node := range []int32{mapped, hidden, -1} {
				c := kmsg.NewFindCoordinatorResponseCoordinator()
				c.NodeID, c.Host, c.Port = node, secretHost, secretPort
				f.Coordinators = append(f.Coordinators, c)
			}
			f.Coordinators[2].ErrorCode = kerr.GroupAuthorizationFailed.Code
			return f
		},
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			f := answer.(*kmsg.FindCoordinatorResponse)
			if f.Version < 4 {
				if f.NodeID != mapped || f.Host != host || f.Port != port || f.ErrorCode != 0 {
					t.Errorf("got %d at %s:%d, code %d", f.NodeID, f.Host, f.Port, f.ErrorCode)
				}
				return
			}
			for i, want := range []struct {
				node int32
				code int16
			}{{mapped, 0}, {-1, kerr.CoordinatorNotAvailable.Code}, {-1, kerr.GroupAuthorizationFailed.Code}} {
				if got := f.Coordinators[i]; got.NodeID != want.node || got.ErrorCode != want.code {
					t.Errorf("coordinator %d: got node %d code %d, want %v", i, got.NodeID, got.ErrorCode, want)
				}
			}
			if got := f.Coordinators[0]; got.Host != host || got.Port != port {
				t.Errorf("got %s:%d, want %s:%d", got.Host, got.Port, host, port)
			}
		},
	},
	{
		"FindCoordinator of a hidden broker", [2]int16{0, 3},
		func() kmsg.Request { return kmsg.NewPtrFindCoordinatorRequest() },
		func(version int16) kmsg.Response {
			f := kmsg.NewPtrFindCoordinatorResponse()
			f.NodeID, f.Host, f.Port = hidden, secretHost, secretPort
			return f
		},
		func(t *testing.T, answer kmsg.Response, _ string, _ int32) {
			f := answer.(*kmsg.FindCoordinatorResponse)
			if f.NodeID != -1 || f.ErrorCode != kerr.CoordinatorNotAvailable.Code {
				t.Errorf("got node %d code %d, want -1 and COORDINATOR_NOT_AVAILABLE", f.NodeID, f.ErrorCode)
			}
		},
	},
	{
		"DescribeCluster", [2]int16{0, 2},
		func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
		func(int16) kmsg.Response { return describeCluster(1) },
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			d := answer.(*kmsg.DescribeClusterResponse)
			if len(d.Brokers) != 1 || d.Brokers[0].NodeID != mapped || d.Brokers[0].Host != host || d.Brokers[0].Port != port {
				t.Errorf("got brokers %v", d.Brokers)
			}
			if d.ControllerID != -1 {
				t.Errorf("controller: got %d, want -1", d.ControllerID)
			}
		},
	},
	{
		"DescribeCluster of controllers", [2]int16{1, 2},
		func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
		func(int16) kmsg.Response { return describeCluster(2) },
		func(t *testing.T, answer kmsg.Response, _ string, _ int32) {
			if got := answer.(*kmsg.DescribeClusterResponse).Brokers; len(got) != 0 {
				t.Errorf("got controllers %v, want none", got)
			}
		},
	},
	{
		"Produce", [2]int16{10, 13},
		func() kmsg.Request { return produceRequest(10, 1) },
		func(int16) kmsg.Response {
			r := kmsg.NewPtrProduceResponse()
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = "t"
			for i, leader := range []int32{mapped, hidden} {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = int32(i), kerr.NotLeaderForPartition.Code
				partition.CurrentLeader.LeaderID, partition.CurrentLeader.LeaderEpoch = leader, 5
				topic.Partitions = append(topic.Partitions, partition)
				b := kmsg.NewProduceResponseBroker()
				b.NodeID, b.Host, b.Port = leader, secretHost, secretPort
				r.Brokers = append(r.Brokers, b)
			}
			r.Topics = append(r.Topics, topic)
			return r
		},
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			r := answer.(*kmsg.ProduceResponse)
			if len(r.Brokers) != 1 || r.Brokers[0].Host != host || r.Brokers[0].Port != port {
				t.Errorf("got brokers %v", r.Brokers)
			}
			checkLeaders(t, r.Topics[0].Partitions[0].CurrentLeader.LeaderID, r.Topics[0].Partitions[1].CurrentLeader.LeaderID)
		},
	},
	{
		"ShareFetch", [2]int16{0, 2},
		func() kmsg.Request { return kmsg.NewPtrShareFetchRequest() },
		func(int16) kmsg.Response {
			r := kmsg.NewPtrShareFetchResponse()
			topic := kmsg.NewShareFetchResponseTopic()
			for _, leader := range []int32{mapped, hidden} {
				partition := kmsg.NewShareFetchResponseTopicPartition()
				partition.CurrentLeader.LeaderID = leader
				partition.Records = []byte("records")
				topic.Partitions = append(topic.Partitions, partition)
				b := kmsg.NewShareFetchResponseNodeEndpoint()
				b.NodeID, b.Host, b.Port = leader, secretHost, secretPort
				r.NodeEndpoints = append(r.NodeEndpoints, b)
			}
			r.Topics = append(r.Topics, topic)
			return r
		},
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			r := answer.(*kmsg.ShareFetchResponse)
			if len(r.NodeEndpoints) != 1 || r.NodeEndpoints[0].Host != host || r.NodeEndpoints[0].Port != port {
				t.Errorf("got endpoints %v", r.NodeEndpoints)
			}
			if got := r.Topics[0].Partitions[0].Records; string(got) != "records" {
				t.Errorf("records: got %q", got)
			}
			checkLeaders(t, r.Topics[0].Partitions[0].CurrentLeader.LeaderID, r.Topics[0].Partitions[1].CurrentLeader.LeaderID)
		},
	},
	{
		"ShareAcknowledge", [2]int16{0, 2},
		func() kmsg.Request { return kmsg.NewPtrShareAcknowledgeRequest() },
		func(int16) kmsg.Response {
			r := kmsg.NewPtrShareAcknowledgeResponse()
			topic := kmsg.NewShareAcknowledgeResponseTopic()
			for _, leader := range []int32{mapped, hidden} {
				partition := kmsg.NewShareAcknowledgeResponseTopicPartition()
				partition.CurrentLeader.LeaderID = leader
				topic.Partitions = append(topic.Partitions, partition)
				b := kmsg.NewShareAcknowledgeResponseNodeEndpoint()
				b.NodeID, b.Host, b.Port = leader, secretHost, secretPort
				r.NodeEndpoints = append(r.NodeEndpoints, b)
			}
			r.Topics = append(r.Topics, topic)
			return r
		},
		func(t *testing.T, answer kmsg.Response, host string, port int32) {
			r := answer.(*kmsg.ShareAcknowledgeResponse)
			if len(r.NodeEndpoints) != 1 || r.NodeEndpoints[0].Host != host || r.NodeEndpoints[0].Port != port {
				t.Errorf("got endpoints %v", r.NodeEndpoints)
			}
			checkLeaders(t, r.Topics[0].Partitions[0].CurrentLeader.LeaderID, r.Topics[0].Partitions[1].CurrentLeader.LeaderID)
		},
	},
}

func describeCluster(endpoints int8) kmsg.Response {
	d := kmsg.NewPtrDescribeClusterResponse()
	d.EndpointType, d.ClusterID, d.ControllerID = endpoints, "c", hidden
	for _, node := range []int32{mapped, hidden} {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = node, secretHost, secretPort
		d.Brokers = append(d.Brokers, b)
	}
	return d
}

func checkLeaders(t *testing.T, first, second int32) {
	t.Helper()
	if first != mapped || second != -1 {
		t.Errorf("current leaders: got %d and %d, want %d and -1", first, second, mapped)
	}
}

// freePorts finds a bootstrap port with n free ports behind it, below those that
// systems use for outgoing connections, of which a busy machine has many, and below
// where clusters of tests look for theirs.
func freePorts(t *testing.T, n int) (listen string, brokers proxy.PortRange) {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		var taken []net.Listener
		for i := range n + 1 {
			next, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+i))
			if err != nil {
				break
			}
			taken = append(taken, next)
		}
		for _, l := range taken {
			_ = l.Close()
		}
		if len(taken) == n+1 {
			return fmt.Sprint("127.0.0.1:", port), proxy.PortRange{First: port + 1, Last: port + n}
		}
	}
	t.Fatal("no free ports")
	return "", proxy.PortRange{}
}

func TestAddressesAreReplacedInEveryAnswerAndVersion(t *testing.T) {
	for _, test := range addressAnswers {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			listen, ports := freePorts(t, 9)
			cfg := proxy.Config{Listen: listen, BrokerPorts: ports, AdvertisedHost: "proxy.example"}
			p := scripted(t, cfg, func(c *kafkatest.Conn, r kafkatest.Request) bool {
				c.Answer(r, test.answer(r.APIVersion))
				return true
			})
			for version := test.versions[0]; version <= test.versions[1]; version++ {
				c := kafkatest.Dial(t, p.Addr())
				request := test.request()
				request.SetVersion(version)
				c.Send(1, request)
				frame := c.Next()
				if bytes.Contains(frame, []byte(secretHost)) {
					t.Errorf("v%d: the upstream host gets through", version)
				}
				if bytes.Contains(frame, binary.BigEndian.AppendUint32(nil, secretPort)) {
					t.Errorf("v%d: the upstream port gets through", version)
				}
				c.Send(2, request)
				answer := request.ResponseKind()
				answer.SetVersion(version)
				c.Expect(2, answer)
				test.check(t, answer, "proxy.example", int32(ports.First+mapped))
			}
			if got := p.log.count("broker has no port here"); got > 1 {
				t.Errorf("the hidden broker was logged %d times, want at most once", got)
			}
		})
	}
}

func TestAnswerThatCannotBeReadClosesTheConnection(t *testing.T) {
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		_, err := c.Write(kafkatest.AnswerFrame(r, []byte(secretHost)))
		return err == nil
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 9))
	if got := c.ExpectClosed(); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	p.awaitLog("upstream answer not understood")
}

func TestAnswerAboveMaxRewrittenBytesClosesTheConnection(t *testing.T) {
	p := scripted(t, proxy.Config{MaxRewrittenBytes: 1 << 10}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		_, err := c.Write(kafkatest.Length(1 << 20))
		_, _ = c.Write(binary.BigEndian.AppendUint32(nil, uint32(r.CorrelationID)))
		return err == nil
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 9))
	if got := c.ExpectClosed(); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	p.awaitLog("above the limit for rewriting")
}

func TestProduceAnswerWithoutEndpointsIsNotDecoded(t *testing.T) {
	for version := int16(10); version <= 13; version++ {
		p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
			answer := kmsg.NewPtrProduceResponse()
			answer.Version = version
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = "topic", [16]byte{2}
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.BaseOffset, partition.ErrorMessage = 41, ptr("message")
			record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			record.ErrorMessage = ptr("record")
			partition.ErrorRecords = append(partition.ErrorRecords, record)
			topic.Partitions = append(topic.Partitions, partition)
			answer.Topics = append(answer.Topics, topic)
			c.Answer(r, answer)
			return true
		})
		c := kafkatest.Dial(t, p.Addr())
		c.Send(1, produceRequest(version, 1))
		answer := kmsg.NewPtrProduceResponse()
		answer.Version = version
		c.Expect(1, answer)
		if got := answer.Topics[0].Partitions[0].BaseOffset; got != 41 {
			t.Errorf("v%d: base offset: got %d, want 41", version, got)
		}
		if got := p.rewritten("Produce"); got != 0 {
			t.Errorf("v%d: %d answers were rewritten, want none", version, got)
		}
	}
}
