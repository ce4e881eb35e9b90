package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

const (
	// firstProbePause is the pause after the first try on a topic that was just
	// made and is not led yet; later ones double, up to longestProbePause.
	firstProbePause   = 20 * time.Millisecond
	longestProbePause = time.Second
	// maxProbePartitions bounds the partitions that one try adds, each of which
	// another proxy may have been faster to add for another broker.
	maxProbePartitions = 8
)

// probeTopicConfigs are the probe topic's: nothing in it is worth keeping, and
// without CreateTime the mark of Apache Kafka cannot be seen.
var probeTopicConfigs = map[string]string{
	"message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "86400000",
}

// probe probes a broker. Unless the operator asserts its kind, it makes what is
// missing for that: the topic, and a partition of it that the broker leads.
func (b *kindBook) probe(ctx context.Context, node int32) (prober.Behaviour, prober.Session, error) {
	created, added, wait := false, 0, firstProbePause
	for {
		behaviour, session, err := b.prober.Probe(ctx, node, b.topic)
		if err == nil || b.asserted != AutoKind {
			return behaviour, session, err
		}
		var none *prober.NoProbePartitionError
		switch {
		case code(err) == kerr.UnknownTopicOrPartition.Code && !created:
			if err := b.createTopic(ctx); err != nil {
				return prober.Behaviour{}, 0, err
			}
			created = true
		case errors.As(err, &none) && !none.Replica && added < maxProbePartitions:
			if err := b.addPartition(ctx, node, none.Partitions); err != nil {
				return prober.Behaviour{}, 0, err
			}
			added++
		case !created && added == 0 || !passing(err):
			return prober.Behaviour{}, 0, err
		}
		// Brokers learn of what the controller has done one after the other.
		if !pause(ctx, wait) {
			return prober.Behaviour{}, 0, err
		}
		wait = min(2*wait, longestProbePause)
	}
}

// createTopic makes the topic, with a partition for each broker; another proxy
// may be faster.
func (b *kindBook) createTopic(ctx context.Context) error {
	nodes := b.sortedNodes()
	err := b.askController(nodes, func(node int32) error {
		return b.prober.CreateTopic(ctx, node, b.topic, nodes, probeTopicConfigs)
	})
	switch {
	case err == nil:
		b.logger.Info("probe topic created", "topic", b.topic, "partitions", len(nodes))
	case code(err) == kerr.TopicAlreadyExists.Code:
		return nil
	}
	return err
}

// addPartition gives the topic a partition that the broker leads; somebody may
// have added one meanwhile, which Kafka answers by 37, and kfake by 39.
func (b *kindBook) addPartition(ctx context.Context, node, count int32) error {
	err := b.askController(b.sortedNodes(), func(at int32) error {
		return b.prober.AddPartition(ctx, at, b.topic, count, node)
	})
	switch code(err) {
	case kerr.InvalidPartitions.Code, kerr.InvalidReplicaAssignment.Code:
		return nil
	}
	return err
}

// askController asks one broker after the other: before KRaft only the
// controller does what it is asked.
func (b *kindBook) askController(nodes []int32, ask func(node int32) error) error {
	err := errNoBroker
	for _, node := range nodes {
		err = ask(node)
		if code(err) != kerr.NotController.Code && !errors.Is(err, prober.ErrUnreachable) {
			return err
		}
	}
	return err
}

// code is the error code that a broker has answered with; 0: it has not.
func code(err error) int16 {
	var refused *prober.BrokerError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

// passing reports whether what keeps a broker from being probed may pass
// without anybody doing anything.
func passing(err error) bool {
	var none *prober.NoProbePartitionError
	if errors.As(err, &none) {
		return none.Replica
	}
	switch c := code(err); c {
	case 0:
		return !errors.Is(err, prober.ErrProbeTimestamps) && !lacksRight(err)
	case kerr.UnknownTopicOrPartition.Code: // as long as brokers have not heard of it
		return true
	default:
		return kerr.IsRetriable(kerr.ErrorForCode(c))
	}
}

// unprobable is the kind of a broker that cannot be probed. It is not final
// while that may pass, for some time: an unreachable broker cannot be fenced
// on either way.
func (b *kindBook) unprobable(node int32, err error, begun ps.Instant) (kind brokerKind, final bool) {
	if passing(err) {
		b.mu.Lock()
		failing := b.knownLocked(node).failing
		b.mu.Unlock()
		if code(err) == 0 && !isNoPartition(err) || failing == 0 || begun.Sub(failing) < kindPatience {
			return brokerKind{}, false
		}
	}
	kind = brokerKind{marking: fence.MarkNone, unknown: b.missing(node, err)}
	var lacks *prober.UnsupportedError
	if errors.As(err, &lacks) && lacks.Op != "CreateTopics" && lacks.Op != "CreatePartitions" {
		kind.refusal = "the brokers lack what it takes to fence a topic: Kafka 2.8 or later is needed"
	}
	return kind, true
}

func isNoPartition(err error) bool {
	var none *prober.NoProbePartitionError
	return errors.As(err, &none)
}

// missing says, for a person, what it takes to probe a broker.
func (b *kindBook) missing(node int32, err error) string {
	var refused *prober.BrokerError
	var none *prober.NoProbePartitionError
	layout := fmt.Sprintf("kafka-topics.sh --create --topic %s --replica-assignment <id>,<id>,… with the id of each broker, and message.timestamp.type=CreateTime", b.topic)
	denied := code(err) == kerr.TopicAuthorizationFailed.Code || code(err) == kerr.ClusterAuthorizationFailed.Code
	switch {
	case errors.Is(err, prober.ErrProbeTimestamps):
		return fmt.Sprintf("the topic %s has message.timestamp.type=LogAppendTime: set it to CreateTime", b.topic)
	case errors.As(err, &none):
		return fmt.Sprintf("the topic %s has no partition that broker %d leads: let it lead one, or add one that only it has", b.topic, node)
	case !errors.As(err, &refused):
		return err.Error()
	case refused.Op == "CreateTopics" && denied:
		return fmt.Sprintf("the topic %s does not exist and the proxy may not create it: grant its principal CREATE on the topic, or create it by %s", b.topic, layout)
	case refused.Op == "CreateTopics":
		return fmt.Sprintf("the topic %s does not exist and cannot be created (%v): create it by %s", b.topic, err, layout)
	case refused.Op == "CreatePartitions" && denied:
		return fmt.Sprintf("the topic %s has no partition that broker %d leads and the proxy may not add one: grant its principal ALTER on the topic, or add one that only this broker has", b.topic, node)
	case refused.Op == "CreatePartitions":
		return fmt.Sprintf("the topic %s has no partition that broker %d leads and none can be added (%v): add one that only this broker has", b.topic, node, err)
	case denied && refused.Op == "Produce":
		return fmt.Sprintf("the proxy may not write to the topic %s: grant its principal WRITE on it", b.topic)
	case denied && refused.Op == "DescribeProducers":
		return fmt.Sprintf("the proxy may not read the topic %s: grant its principal READ on it", b.topic)
	case denied:
		return fmt.Sprintf("the proxy may not see the topic %s: grant its principal DESCRIBE, READ and WRITE on it", b.topic)
	}
	return err.Error()
}
