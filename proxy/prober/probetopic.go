package prober

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	// CreateTopics: v2 is as old as the rest, v5 is flexible (KIP-482).
	apiCreateTopics = api{int16(kmsg.CreateTopics), "CreateTopics", 2, 5}
	// CreatePartitions (KIP-195).
	apiCreatePartitions = api{int16(kmsg.CreatePartitions), "CreatePartitions", 0, 2}
)

// CreateTopic creates a topic with one partition for each of the nodes, who has
// it alone. Needs CREATE on the topic or the cluster. Errors: those of
// ReadTopic; *BrokerError with TOPIC_ALREADY_EXISTS (36), or, before KRaft,
// with NOT_CONTROLLER (41) unless node is the controller.
func (p *Pool) CreateTopic(ctx context.Context, node int32, name string, nodes []int32, configs map[string]string) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for i, replica := range nodes {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Partition, assignment.Replicas = int32(i), []int32{replica}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	}
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, kmsg.StringPtr(configs[key])
		topic.Configs = append(topic.Configs, config)
	}
	req, resp := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewPtrCreateTopicsResponse()
	req.TimeoutMillis = p.controllerTimeout()
	req.Topics = append(req.Topics, topic)
	if err := p.askController(ctx, node, apiCreateTopics, req, resp); err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != name {
		return fmt.Errorf("create topic %q: %w: %w: not the topic asked for", name, ErrUnreachable, errMalformed)
	}
	if err := refusal(apiCreateTopics, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	return nil
}

// AddPartition gives a topic that has count partitions one more, which node has
// alone. Needs ALTER on the topic. Errors: those of CreateTopic, without
// TOPIC_ALREADY_EXISTS; INVALID_PARTITIONS (37) if it has more than count.
func (p *Pool) AddPartition(ctx context.Context, node int32, name string, count, replica int32) error {
	assignment := kmsg.NewCreatePartitionsRequestTopicAssignment()
	assignment.Replicas = []int32{replica}
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = name, count+1
	topic.Assignment = append(topic.Assignment, assignment)
	req, resp := kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewPtrCreatePartitionsResponse()
	req.TimeoutMillis = p.controllerTimeout()
	req.Topics = append(req.Topics, topic)
	if err := p.askController(ctx, node, apiCreatePartitions, req, resp); err != nil {
		return fmt.Errorf("add a partition to topic %q: %w", name, err)
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != name {
		return fmt.Errorf("add a partition to topic %q: %w: %w: not the topic asked for", name, ErrUnreachable, errMalformed)
	}
	if err := refusal(apiCreatePartitions, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		return fmt.Errorf("add a partition to topic %q: %w", name, err)
	}
	return nil
}

// controllerTimeout leaves the broker time to answer before the connection is
// given up.
func (p *Pool) controllerTimeout() int32 {
	return int32(max(p.cfg.RequestTimeout/2, time.Millisecond).Milliseconds())
}

// askController has a broker pass a request on to the controller.
func (p *Pool) askController(ctx context.Context, node int32, a api, req kmsg.Request, resp kmsg.Response) error {
	c, err := p.connection(ctx, node)
	if err != nil {
		return err
	}
	if err := c.setVersion(a, req); err != nil {
		return err
	}
	answers, err := c.roundTrip(ctx, req)
	if err != nil {
		return err
	}
	return c.decode(req, answers[0], resp)
}

// refusal is the error that a code and its message stand for.
func refusal(a api, code int16, message *string) error {
	if code == codeNone {
		return nil
	}
	refused := &BrokerError{Code: code, Op: a.name}
	if message != nil {
		refused.Message = *message
	}
	return refused
}
