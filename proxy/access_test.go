package proxy_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// startBounded runs a proxy whose second listener is bounded. The broker behind it
// counts what arrives, but for the proxy's own.
func startBounded(t *testing.T, access proxy.Access) (p *running, bounded string, arrived chan int16, creates chan bool) {
	t.Helper()
	arrived, creates = make(chan int16, 100), make(chan bool, 100)
	p = scripted(t, proxy.Config{Listeners: []proxy.Listener{{Name: "bounded", Listen: "127.0.0.1:0", Access: access}}},
		func(c *kafkatest.Conn, r kafkatest.Request) bool {
			arrived <- r.APIKey
			if r.APIKey == int16(kmsg.Metadata) {
				asked := kmsg.NewPtrMetadataRequest()
				asked.Version = r.APIVersion
				if err := asked.ReadFrom(r.Frame[r.BodyOffset:]); err != nil {
					t.Error(err)
				}
				creates <- asked.AllowAutoTopicCreation
			}
			if r.APIKey == int16(kmsg.ApiVersions) {
				answer := kmsg.NewPtrApiVersionsResponse()
				for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.Metadata, kmsg.CreateTopics, kmsg.InitProducerID, kmsg.ApiVersions} {
					answer.ApiKeys = append(answer.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(key), MaxVersion: 3})
				}
				c.Answer(r, answer)
				return true
			}
			echo(c, r)
			return true
		})
	return p, p.Serving()[1].Addr, arrived, creates
}

func TestReadOnlyListener(t *testing.T) {
	p, bounded, arrived, creates := startBounded(t, proxy.Access{ReadOnly: true})
	c := kafkatest.Dial(t, bounded)
	for i, acks := range []int16{1, -1} {
		// Long and short ones, beside what may be asked.
		request := kmsg.NewPtrProduceRequest()
		request.Version, request.Acks, request.TimeoutMillis = 9, acks, 1000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition, partition.Records = 7, bytes.Repeat([]byte("r"), 10+i*300_000)
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
		c.Send(int32(10*i), versioned(kmsg.NewPtrListGroupsRequest(), 0), request)
		if got := c.NextID(); got != int32(10*i) {
			t.Errorf("got an answer to %d, want %d", got, 10*i)
		}
		answer := kmsg.NewPtrProduceResponse()
		answer.Version = 9
		c.Expect(int32(10*i+1), answer)
		got := answer.Topics[0].Partitions[0]
		if got.ErrorCode != kerr.TopicAuthorizationFailed.Code || got.Partition != 7 || got.BaseOffset != -1 || got.ErrorMessage == nil {
			t.Errorf("acks %d: got %+v, want TOPIC_AUTHORIZATION_FAILED with a message", acks, got)
		}
		if key := <-arrived; key != int16(kmsg.ListGroups) {
			t.Errorf("API key %d has reached the broker", key)
		}
	}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 3
	c.Send(40, init)
	answer := kmsg.NewPtrInitProducerIDResponse()
	answer.Version = 3
	c.Expect(40, answer)
	if answer.ErrorCode != kerr.ClusterAuthorizationFailed.Code || answer.ProducerID != -1 {
		t.Errorf("InitProducerId: got %+v, want CLUSTER_AUTHORIZATION_FAILED", answer)
	}
	c.Send(50, versioned(kmsg.NewPtrApiVersionsRequest(), 0))
	versions := kmsg.NewPtrApiVersionsResponse()
	c.Expect(50, versions)
	var shown []int16
	for _, k := range versions.ApiKeys {
		shown = append(shown, k.ApiKey)
	}
	// Produce is among them for librdkafka's sake.
	if want := []int16{int16(kmsg.Produce), int16(kmsg.Fetch), int16(kmsg.Metadata), int16(kmsg.ApiVersions)}; !slices.Equal(shown, want) {
		t.Errorf("shown: got API keys %v, want %v", shown, want)
	}
	<-arrived
	c.Send(60, versioned(kmsg.NewPtrCreateTopicsRequest(), 0))
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("CreateTopics was answered %x", rest)
	}
	silent := kafkatest.Dial(t, bounded)
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks = 9, 0
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("r")}}}}
	silent.Send(1, request)
	if rest := silent.ExpectClosed(); len(rest) > 0 {
		t.Errorf("acks=0 was answered %x", rest)
	}
	select {
	case key := <-arrived:
		t.Errorf("API key %d has reached the broker", key)
	default:
	}
	if got := p.metric("offsetproxy.requests.denied", "Produce"); got != 3 {
		t.Errorf("denied: got %d Produce requests, want 3", got)
	}
	if p.log.count("request is not allowed here") != 1 {
		t.Error("the log does not say what was refused")
	}

	// Nothing is created by the way, and what names nothing holds up nobody.
	meta := kafkatest.Dial(t, bounded)
	for version := range int16(13) {
		request := kmsg.NewPtrMetadataRequest()
		request.Version, request.AllowAutoTopicCreation = version, true
		name := "new"
		request.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		if version < 4 {
			old := kafkatest.Dial(t, bounded)
			old.Send(1, request)
			if rest := old.ExpectClosed(); len(rest) > 0 {
				t.Errorf("Metadata v%d that creates topics was answered %x", version, rest)
			}
			continue
		}
		meta.Send(int32(version), request)
		if got := meta.NextID(); got != int32(version) {
			t.Errorf("got an answer to %d, want %d", got, version)
		}
		if key := <-arrived; key != int16(kmsg.Metadata) {
			t.Errorf("API key %d has reached the broker", key)
		}
		if <-creates {
			t.Errorf("Metadata v%d has reached the broker with leave to create topics", version)
		}
	}
	nothing := kafkatest.Dial(t, bounded)
	empty := kmsg.NewPtrProduceRequest()
	empty.Version, empty.Acks = 9, -1
	nothing.Send(1, empty)
	if rest := nothing.ExpectClosed(); len(rest) > 0 {
		t.Errorf("a Produce of nothing was answered %x", rest)
	}

	// At the other listener nothing is refused.
	free := kafkatest.Dial(t, p.Addr())
	free.Send(1, versioned(kmsg.NewPtrCreateTopicsRequest(), 0))
	free.Next()
	if key := <-arrived; key != int16(kmsg.CreateTopics) {
		t.Errorf("API key %d has reached the broker", key)
	}
}

func TestListsOfAPIs(t *testing.T) {
	for _, test := range []struct {
		access  proxy.Access
		ask     kmsg.Request
		allowed bool
	}{
		{proxy.Access{Allow: []int16{int16(kmsg.ListGroups)}}, versioned(kmsg.NewPtrListGroupsRequest(), 0), true},
		{proxy.Access{Allow: []int16{int16(kmsg.ListGroups)}}, versioned(kmsg.NewPtrHeartbeatRequest(), 0), false},
		{proxy.Access{Allow: []int16{int16(kmsg.ListGroups)}}, versioned(kmsg.NewPtrApiVersionsRequest(), 0), true},
		{proxy.Access{Deny: []int16{int16(kmsg.ListGroups)}}, versioned(kmsg.NewPtrListGroupsRequest(), 0), false},
		{proxy.Access{Deny: []int16{int16(kmsg.ListGroups)}}, versioned(kmsg.NewPtrHeartbeatRequest(), 0), true},
		{proxy.Access{ReadOnly: true, Allow: []int16{int16(kmsg.DeleteTopics)}}, versioned(kmsg.NewPtrDeleteTopicsRequest(), 0), false},
	} {
		_, bounded, arrived, _ := startBounded(t, test.access)
		c := kafkatest.Dial(t, bounded)
		c.Send(1, test.ask)
		if test.allowed {
			c.Next()
			<-arrived
			continue
		}
		if rest := c.ExpectClosed(); len(rest) > 0 || len(arrived) > 0 {
			t.Errorf("%+v, API key %d: answered %x", test.access, test.ask.Key(), rest)
		}
	}
}
