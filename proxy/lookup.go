package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
	"github.com/offsetproxy/offsetproxy/wire"
)

// errUnnamed says that a topic id's name is not known and is not asked for.
var errUnnamed = errors.New("the name of the topic id is not known")

// rulesOf finds each partition's rule, and the largest mode among them. A topic
// id that cannot be resolved now may be that of a fenced topic, so it counts as
// one, and is refused later.
func (f *fencing) rulesOf(c *conn, book *ruleBook, view *wire.Produce) (rules []*rule, most Mode) {
	rules = c.rules[:0]
	c.lookupUntil = time.Time{}
	for i := range view.Partitions {
		if f.retake != nil {
			book = f.retake(book)
		} else if i > 0 && view.Partitions[i].TopicIndex == view.Partitions[i-1].TopicIndex {
			view.Partitions[i].Topic = view.Partitions[i-1].Topic
			rules = append(rules, rules[i-1])
			continue
		}
		r := f.ruleOf(c, book, view, &view.Partitions[i])
		most = max(most, r.mode)
		rules = append(rules, r)
	}
	c.rules = rules
	return rules, most
}

// ruleOf finds a partition's rule; where the request names topics by id, the
// partition gets the topic's name.
func (f *fencing) ruleOf(c *conn, book *ruleBook, view *wire.Produce, p *wire.ProducePartition) *rule {
	if view.Version >= 13 && p.Topic == nil {
		name, err := f.topicName(c, book, p.TopicID)
		switch {
		case err != nil && !book.fences():
			return unseenTopic
		case isUnknownTopic(err):
			return unknownTopic
		case err != nil:
			return unnamedTopic
		}
		p.Topic = []byte(name)
	}
	return book.rule(p.Topic)
}

// topicName finds the name of a topic id. Where no topic can be fenced, nobody
// is kept waiting for it.
func (f *fencing) topicName(c *conn, book *ruleBook, id [16]byte) (string, error) {
	return f.topics.name(id, func() (string, error) {
		if !book.fences() {
			return "", errUnnamed
		}
		ctx, cancel, err := c.lookup()
		if err != nil {
			return "", err
		}
		defer cancel()
		info, err := f.pool.ReadTopicByID(ctx, c.node, id)
		return info.Topic.Name, err
	})
}

// lookup gives the context of a reading that the request at hand waits for.
// What is queued upstream does not wait with it.
func (c *conn) lookup() (context.Context, context.CancelFunc, error) {
	c.waited = true
	if err := c.flushUpstream(); err != nil {
		return nil, nil, err
	}
	if c.lookupUntil.IsZero() {
		c.lookupUntil = time.Now().Add(c.p.cfg.LookupTimeout)
	}
	ctx, cancel := context.WithDeadline(c.ctx, c.lookupUntil)
	return ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.p.metrics.limit(limitLookup, "remote", c.remote())
		}
		cancel()
	}, nil
}

func isUnknownTopic(err error) bool {
	var refused *prober.BrokerError
	return errors.As(err, &refused) &&
		(refused.Code == kerr.UnknownTopicID.Code || refused.Code == kerr.UnknownTopicOrPartition.Code)
}

// topic gives what must be known of a topic.
func (f *fencing) topic(c *conn, name string) (fencedTopic, error) {
	if t, ok := f.topics.peek(name); ok {
		return t, nil
	}
	ctx, cancel, err := c.lookup()
	if err != nil {
		return fencedTopic{}, err
	}
	defer cancel()
	return f.topics.get(ctx, c.node, name)
}

// messageUnmarked refuses conditional batches without append-id on a broker that
// cannot be probed.
const messageUnmarked = "how the broker marks duplicates is not known, so equal records cannot be told apart: " +
	"give every record an append-id header, or have the operator let the proxy probe the broker (the proxy's log says what is missing)"

// examineBroker finds out how the broker marks duplicates, or says how a batch
// is refused for what the broker is.
func (f *fencing) examineBroker(c *conn, view *wire.Produce) (fence.Marking, int16, string) {
	kind, err := f.kindOf(c)
	if err != nil {
		return 0, kerr.NotLeaderForPartition.Code, "the broker cannot be probed now; send again"
	}
	code, message := kind.refuses(view.Version)
	return kind.marking, code, message
}

// refuses says how a Produce of a version is refused for what the broker is.
func (k brokerKind) refuses(version int16) (int16, string) {
	switch {
	case k.refusal != "":
		return kerr.PolicyViolation.Code, "topic is not served: " + k.refusal
	case k.marking == fence.MarkLogStartOffset && version < 5:
		return kerr.UnsupportedVersion.Code, "the embedded broker marks duplicates from Produce version 5 on"
	}
	return 0, ""
}

// kindOf gives the kind of the broker that a connection leads to.
func (f *fencing) kindOf(c *conn) (brokerKind, error) {
	if kind, ok := f.kinds.peek(c.node, c.openedAt); ok {
		return kind, nil
	}
	ctx, cancel, err := c.lookup()
	if err != nil {
		return brokerKind{}, err
	}
	defer cancel()
	return f.kinds.of(ctx, c.node, c.openedAt)
}

// topicOf is topic for a partition of it. One that the topic did not have when
// it was looked up may be new; a view of one that does not exist is not asked for.
func (f *fencing) topicOf(c *conn, name string, partition int32) (fencedTopic, error) {
	t, err := f.topic(c, name)
	if err == nil && t.refusal == "" && !t.has(partition) {
		f.topics.suspect(name)
		return f.topic(c, name)
	}
	return t, err
}
