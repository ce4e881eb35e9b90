package proxy

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// What the answers of the fuzz targets say of brokers. No other text or number
// of the answers' seeds is alike.
const (
	fuzzHost = "upstream.secret.example"
	fuzzPort = 23456
	fuzzNode = 7
)

// What the proxy says instead.
const (
	fuzzProxyHost = "proxy.example"
	fuzzFirstPort = 40000
	fuzzLastPort  = 40009
)

// fuzzProduceAnswers are seeds: plain ones, and with each way to name a broker.
func fuzzProduceAnswers() []*kmsg.ProduceResponse {
	var answers []*kmsg.ProduceResponse
	for _, change := range []func(*kmsg.ProduceResponse){
		func(*kmsg.ProduceResponse) {},
		func(r *kmsg.ProduceResponse) { r.Topics = nil },
		func(r *kmsg.ProduceResponse) {
			r.Brokers = []kmsg.ProduceResponseBroker{{NodeID: fuzzNode, Host: fuzzHost, Port: fuzzPort}}
		},
		func(r *kmsg.ProduceResponse) {
			r.Topics[0].Partitions[0].CurrentLeader.LeaderID = fuzzNode
			r.Topics[0].Partitions[0].CurrentLeader.LeaderEpoch = 3
		},
		func(r *kmsg.ProduceResponse) {
			text := "why"
			r.Topics[0].Partitions[0].ErrorMessage = &text
			r.Topics[0].Partitions[0].ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: &text}}
		},
		func(r *kmsg.ProduceResponse) { r.Topics[0].UnknownTags.Set(9, []byte("tag")) },
	} {
		r := kmsg.NewPtrProduceResponse()
		for _, name := range []string{"orders", "events"} {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = name, [16]byte{1: name[0]}
			for p := range int32(2) {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.BaseOffset = p, 41
				topic.Partitions = append(topic.Partitions, partition)
			}
			r.Topics = append(r.Topics, topic)
		}
		change(r)
		answers = append(answers, r)
	}
	return answers
}

// namesBrokers reports whether an answer holds what KIP-951 added.
func namesBrokers(r *kmsg.ProduceResponse) bool {
	nobody := kmsg.NewProduceResponseTopicPartitionCurrentLeader()
	for _, topic := range r.Topics {
		for _, partition := range topic.Partitions {
			if l := partition.CurrentLeader; l.LeaderID != nobody.LeaderID || l.LeaderEpoch != nobody.LeaderEpoch {
				return true
			}
		}
	}
	return len(r.Brokers) > 0
}

// FuzzMayBearEndpoints: what names a broker to kmsg is never passed as it is.
func FuzzMayBearEndpoints(f *testing.F) {
	for _, answer := range fuzzProduceAnswers() {
		for answer.Version = produceEndpoints; answer.Version <= 13; answer.Version++ {
			f.Add(answer.AppendTo(nil), answer.Version)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < produceEndpoints || version > 13 {
			return
		}
		answer := kmsg.NewPtrProduceResponse()
		answer.Version = version
		if err := answer.ReadFrom(body); err != nil {
			return
		}
		if namesBrokers(answer) && !mayBearEndpoints(body, version) {
			t.Errorf("Produce v%d passes unread: %+v", version, answer)
		}
	})
}

// TestPlainProduceAnswersPassUnread keeps the walk from being of no use, which
// its fuzz target would not tell.
func TestPlainProduceAnswersPassUnread(t *testing.T) {
	for i, answer := range fuzzProduceAnswers() {
		for answer.Version = produceEndpoints; answer.Version <= 13; answer.Version++ {
			got := mayBearEndpoints(answer.AppendTo(nil), answer.Version)
			if want := namesBrokers(answer) || i == 5; got != want { // the last has an unknown tag
				t.Errorf("answer %d, v%d: got %v, want %v", i, answer.Version, got, want)
			}
		}
	}
}

// FuzzSkipHeaderTags: what is skipped reads as tagged fields, and nothing else
// is.
func FuzzSkipHeaderTags(f *testing.F) {
	f.Add([]byte{0, 'b', 'o', 'd', 'y'}, true)
	f.Add([]byte{2, 0, 1, 'x', 9, 0, 'b'}, true)
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}, true)
	f.Add([]byte{1, 0, 9, 'x'}, true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, true)
	f.Add([]byte("body"), false)
	f.Fuzz(func(t *testing.T, body []byte, flexible bool) {
		rest, err := skipHeaderTags(body, flexible)
		switch {
		case err != nil && !flexible:
			t.Fatalf("nothing to skip: %v", err)
		case err != nil:
			return
		case !bytes.HasSuffix(body, rest):
			t.Fatalf("%x is not the end of %x", rest, body)
		case !flexible && len(rest) != len(body):
			t.Fatalf("skipped %d bytes of an inflexible header", len(body)-len(rest))
		case !flexible:
			return
		}
		// The same fields, written anew, are skipped again and leave the same.
		skipped := body[:len(body)-len(rest)]
		again, err := skipHeaderTags(append(bytes.Clone(skipped), "body"...), true)
		if err != nil || string(again) != "body" {
			t.Errorf("%x before another body: got %q, %v", skipped, again, err)
		}
		// Each field has a tag and a length at least.
		if n, size := binary.Uvarint(skipped); size <= 0 || n > uint64(len(skipped)-size)/2 {
			t.Errorf("%d fields in %x", n, skipped)
		}
	})
}

// fuzzProxy has ports for the nodes 0 to 9, and serves none.
func fuzzProxy(f testing.TB) *Proxy {
	cfg := Config{
		Bootstrap: []string{"127.0.0.1:1"}, Listen: "127.0.0.1:39999", AdvertisedHost: fuzzProxyHost,
		BrokerPorts: PortRange{First: fuzzFirstPort, Last: fuzzLastPort},
		ListenFunc:  func(string, string) (net.Listener, error) { return fuzzListener{}, nil },
		Logger:      slog.New(slog.DiscardHandler),
	}
	p, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	p.topology.serve = func(net.Listener, *entrance, int32) {}
	return p
}

// Brokers that name others without end do not fill memory or log.
func TestBrokersWithoutAPortAreRememberedWithinBounds(t *testing.T) {
	p := fuzzProxy(t)
	for node := range int32(4 * maxHidden) {
		if _, ok := p.topology.learn(1000+node, fuzzHost, fuzzPort); ok {
			t.Fatalf("broker %d has a port", 1000+node)
		}
	}
	if got := len(p.topology.hidden); got != maxHidden {
		t.Errorf("got %d brokers remembered, want %d", got, maxHidden)
	}
}

// fuzzListener accepts nothing.
type fuzzListener struct{ net.Listener }

// FuzzRewriteAnswer: no bytes of a broker make it panic, and no address of a
// broker is left in what it lets pass.
func FuzzRewriteAnswer(f *testing.F) {
	for _, key := range []kmsg.Key{
		kmsg.ApiVersions, kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster,
		kmsg.Produce, kmsg.ShareFetch, kmsg.ShareAcknowledge,
	} {
		for version := int16(0); version <= kmsg.ResponseForKey(key.Int16()).MaxVersion(); version++ {
			f.Add(fuzzAnswerFrame(kmsg.ResponseForKey(key.Int16()), key, version), key.Int16(), version)
		}
	}
	p := fuzzProxy(f)
	f.Fuzz(func(t *testing.T, frame []byte, key, version int16) {
		if len(frame) < 8 || version < 0 || kmsg.ResponseForKey(key) == nil ||
			version > kmsg.ResponseForKey(key).MaxVersion() || !bearsAddresses(key, version) || checkVersion(key, version) != nil {
			return // not asked
		}
		rewritten, err := p.rewriteAnswer(p.topology.entrances[0], key, version, bytes.Clone(frame))
		if err != nil {
			return // does not pass
		}
		if rewritten == nil {
			rewritten = frame
		}
		answer, ok := fuzzDecode(key, version, rewritten)
		if !ok {
			if before, was := fuzzDecode(key, version, frame); was {
				t.Fatalf("api key %d v%d: %+v became %x", key, version, before, rewritten)
			}
			return
		}
		for _, told := range addressesIn(answer) {
			if told.host == "" && told.port <= 0 {
				continue // says that there is none
			}
			if told.host != fuzzProxyHost || told.port < fuzzFirstPort || told.port > fuzzLastPort {
				t.Errorf("api key %d v%d leaves %s:%d", key, version, told.host, told.port)
			}
		}
	})
}

// nameBrokers has an answer name a broker with a port and one without.
func nameBrokers(answer kmsg.Response) {
	for _, node := range []int32{fuzzNode, 7000} {
		switch r := answer.(type) {
		case *kmsg.MetadataResponse:
			r.Brokers = append(r.Brokers, kmsg.MetadataResponseBroker{NodeID: node, Host: fuzzHost, Port: fuzzPort})
			partition := kmsg.NewMetadataResponseTopicPartition()
			partition.Leader = node
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.Partitions = kmsg.StringPtr("orders"), append(topic.Partitions, partition)
			r.Topics = append(r.Topics, topic)
		case *kmsg.FindCoordinatorResponse:
			r.NodeID, r.Host, r.Port = node, fuzzHost, fuzzPort
			r.Coordinators = append(r.Coordinators, kmsg.FindCoordinatorResponseCoordinator{NodeID: node, Host: fuzzHost, Port: fuzzPort})
		case *kmsg.DescribeClusterResponse:
			r.Brokers = append(r.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: node, Host: fuzzHost, Port: fuzzPort})
		case *kmsg.ProduceResponse:
			*r = *fuzzProduceAnswers()[3]
			r.Brokers = append(r.Brokers, kmsg.ProduceResponseBroker{NodeID: node, Host: fuzzHost, Port: fuzzPort})
		case *kmsg.ShareFetchResponse:
			r.NodeEndpoints = append(r.NodeEndpoints, kmsg.ShareFetchResponseNodeEndpoint{NodeID: node, Host: fuzzHost, Port: fuzzPort})
		case *kmsg.ShareAcknowledgeResponse:
			r.NodeEndpoints = append(r.NodeEndpoints, kmsg.ShareAcknowledgeResponseNodeEndpoint{NodeID: node, Host: fuzzHost, Port: fuzzPort})
		}
	}
}

// fuzzAnswerFrame is an answer that names a broker with a port and one without.
func fuzzAnswerFrame(answer kmsg.Response, key kmsg.Key, version int16) []byte {
	nameBrokers(answer)
	answer.SetVersion(version)
	frame := make([]byte, 8) // length and correlation id
	if answer.IsFlexible() && key != kmsg.ApiVersions {
		frame = append(frame, 0)
	}
	return answer.AppendTo(frame)
}

// fuzzDecode reads a whole answer frame; false if kmsg cannot.
func fuzzDecode(key, version int16, frame []byte) (kmsg.Response, bool) {
	offset, err := wire.AnswerBodyOffset(frame[4:], key, version)
	if err != nil {
		return nil, false
	}
	answer := kmsg.ResponseForKey(key)
	answer.SetVersion(version)
	return answer, answer.ReadFrom(frame[4+offset:]) == nil
}

type fuzzAddress struct {
	host string
	port int32
}

// addressesIn lists what an answer says of where brokers are.
func addressesIn(answer kmsg.Response) (told []fuzzAddress) {
	switch r := answer.(type) {
	case *kmsg.MetadataResponse:
		for _, b := range r.Brokers {
			told = append(told, fuzzAddress{b.Host, b.Port})
		}
	case *kmsg.FindCoordinatorResponse:
		if r.Version < 4 {
			return []fuzzAddress{{r.Host, r.Port}}
		}
		for _, c := range r.Coordinators {
			told = append(told, fuzzAddress{c.Host, c.Port})
		}
	case *kmsg.DescribeClusterResponse:
		for _, b := range r.Brokers {
			told = append(told, fuzzAddress{b.Host, b.Port})
		}
	case *kmsg.ProduceResponse:
		for _, b := range r.Brokers {
			told = append(told, fuzzAddress{b.Host, b.Port})
		}
	case *kmsg.ShareFetchResponse:
		for _, b := range r.NodeEndpoints {
			told = append(told, fuzzAddress{b.Host, b.Port})
		}
	case *kmsg.ShareAcknowledgeResponse:
		for _, b := range r.NodeEndpoints {
			told = append(told, fuzzAddress{b.Host, b.Port})
		}
	}
	return told
}
