package prober

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadBrokerConfigs asks a broker for its own effective configuration. Names
// that the broker does not know, or whose values it hides, are not in the
// map. Needs DESCRIBE_CONFIGS on the cluster.
func (p *Pool) ReadBrokerConfigs(ctx context.Context, node int32, names ...string) (map[string]string, error) {
	configs, err := p.readConfigs(ctx, node, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(node)), names)
	if err != nil {
		return nil, fmt.Errorf("read configs of broker %d: %w", node, err)
	}
	return configs, nil
}

// ReadTopicConfigs asks a broker for a topic's effective configuration, the
// brokers' defaults included. Names that the broker does not know are not in
// the map. Needs DESCRIBE_CONFIGS on the topic.
func (p *Pool) ReadTopicConfigs(ctx context.Context, node int32, topic string, names ...string) (map[string]string, error) {
	configs, err := p.readConfigs(ctx, node, kmsg.ConfigResourceTypeTopic, topic, names)
	if err != nil {
		return nil, fmt.Errorf("read configs of topic %q: %w", topic, err)
	}
	return configs, nil
}

func (p *Pool) readConfigs(ctx context.Context, node int32, kind kmsg.ConfigResourceType, name string, names []string) (map[string]string, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return nil, err
	}
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.ConfigNames = kind, name, names
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, resource)
	if err := c.setVersion(apiDescribeConfigs, req); err != nil {
		return nil, err
	}
	answers, err := c.roundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	if err := c.decode(req, answers[0], resp); err != nil {
		return nil, err
	}
	if len(resp.Resources) != 1 || resp.Resources[0].ResourceType != kind || resp.Resources[0].ResourceName != name {
		return nil, c.malformed(apiDescribeConfigs.name, "not the resource asked for")
	}
	got := resp.Resources[0]
	if got.ErrorCode != codeNone {
		return nil, &BrokerError{Code: got.ErrorCode, Op: apiDescribeConfigs.name}
	}
	configs := make(map[string]string, len(got.Configs))
	for _, kv := range got.Configs {
		if kv.Value != nil {
			configs[kv.Name] = *kv.Value
		}
	}
	return configs, nil
}
