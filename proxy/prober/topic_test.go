package prober

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestReadTopic(t *testing.T) {
	id := [16]byte{7}
	l := leader{epoch: 5, id: id, named: 3, replicas: []int32{3, 4}}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		for _, read := range []func() (TopicInfo, error){
			func() (TopicInfo, error) { return p.ReadTopic(ctx, testNode, testTopic.Name) },
			func() (TopicInfo, error) { return p.ReadTopicByID(ctx, testNode, id) },
		} {
			got, err := read()
			if err != nil {
				t.Fatal(err)
			}
			if want := (Topic{testTopic.Name, id}); got.Topic != want {
				t.Errorf("got topic %+v, want %+v", got.Topic, want)
			}
			if len(got.Partitions) != 4 {
				t.Fatalf("got %d partitions, want 4", len(got.Partitions))
			}
			if got, want := got.Partitions[2], (PartitionInfo{Partition: 2, Leader: 3, LeaderEpoch: 5, Replicas: []int32{3, 4}}); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		if _, err := p.ReadTopicByID(ctx, testNode, [16]byte{8}); !errors.Is(err, ErrUnreachable) {
			t.Errorf("an answer about another topic: got %v, want ErrUnreachable", err)
		}
	})
	missing := leader{codes: map[kmsg.Key]int16{kmsg.Metadata: codeUnknownTopic}}
	b = &scriptedBroker{handle: missing.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		_, err := p.ReadTopic(ctx, testNode, "nowhere")
		wantCode(t, err, codeUnknownTopic)
	})
}

func TestReadConfigs(t *testing.T) {
	var code int16
	handle := func(r kmsg.Request) reply {
		asked := r.(*kmsg.DescribeConfigsRequest).Resources[0]
		got := kmsg.NewDescribeConfigsResponseResource()
		got.ResourceType, got.ResourceName, got.ErrorCode = asked.ResourceType, asked.ResourceName, code
		for i, name := range asked.ConfigNames {
			kv := kmsg.NewDescribeConfigsResponseResourceConfig()
			kv.Name = name
			if i > 0 { // the first is sensitive: no value
				kv.Value = kmsg.StringPtr("value of " + name + " at " + asked.ResourceName)
			}
			got.Configs = append(got.Configs, kv)
		}
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Resources = append(resp.Resources, got)
		return reply{resp: resp}
	}
	b := &scriptedBroker{handle: handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		got, err := p.ReadBrokerConfigs(ctx, testNode, "hidden", "producer.id.expiration.ms")
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"producer.id.expiration.ms": "value of producer.id.expiration.ms at 2"}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		got, err = p.ReadTopicConfigs(ctx, testNode, "orders", "hidden", "min.insync.replicas")
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"min.insync.replicas": "value of min.insync.replicas at orders"}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		b.change(func() { code = 29 })
		_, err = p.ReadTopicConfigs(ctx, testNode, "orders")
		wantCode(t, err, 29)
	})
}
