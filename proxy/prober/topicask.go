package prober

import (
	"context"
	"time"
)

// A topic of many partitions has a long Metadata answer, which each of them
// needs at the same time: when a proxy starts, after an election, and whenever
// leader epochs have grown too old. So all who ask about a topic at the same
// time share one request.

// topicAsk is one request for a topic.
type topicAsk struct {
	done chan struct{} // closed by runTopicAsks, after the rest is set
	at   time.Duration // on the Pool's clock, before it was written
	info TopicInfo
	err  error
}

// topicAskKey is whom and what is asked. The topic has a name or an id.
type topicAskKey struct {
	node  int32
	topic Topic
}

// topicAsks are the requests for one topic: one is on its way, and next, if
// not nil, will be made as soon as it has ended.
type topicAsks struct{ next *topicAsk }

// askTopic asks for a topic. An answer is shared only if it was asked for after
// each of those who share it had called, so that it is as fresh as one's own.
func (p *Pool) askTopic(ctx context.Context, node int32, t Topic) (TopicInfo, time.Duration, error) {
	if ctx.Err() != nil {
		return TopicInfo{}, 0, context.Cause(ctx)
	}
	key := topicAskKey{node, t}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return TopicInfo{}, 0, ErrClosed
	}
	asks := p.asks[key]
	if asks == nil {
		asks = new(topicAsks)
		p.asks[key] = asks
		p.wg.Go(func() { p.runTopicAsks(key, asks) })
	}
	if asks.next == nil {
		asks.next = &topicAsk{done: make(chan struct{})}
	}
	ask := asks.next
	p.mu.Unlock()
	select {
	case <-ask.done:
		return ask.info, ask.at, ask.err
	case <-ctx.Done():
		return TopicInfo{}, 0, context.Cause(ctx)
	}
}

// runTopicAsks makes requests, one after the other, as long as any is wanted.
func (p *Pool) runTopicAsks(key topicAskKey, asks *topicAsks) {
	for {
		p.mu.Lock()
		ask := asks.next
		if asks.next = nil; ask == nil {
			delete(p.asks, key)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.makeTopicAsk(key, ask)
		close(ask.done)
	}
}

func (p *Pool) makeTopicAsk(key topicAskKey, ask *topicAsk) {
	c, err := p.connection(p.ctx, key.node)
	if err != nil {
		ask.err = p.ended(err)
		return
	}
	ask.at = p.cfg.Clock()
	if ask.info, ask.err = c.readTopic(p.ctx, key.topic); ask.err != nil {
		ask.err = p.ended(ask.err)
		return
	}
	p.rememberEpochs(key.node, ask)
}

// ended is err, or ErrClosed if it came of the Pool's end.
func (p *Pool) ended(err error) error {
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}
