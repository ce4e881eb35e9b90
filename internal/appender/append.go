package appender

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// NewAppendID makes an append-id: 16 random bytes.
func NewAppendID() []byte {
	id := make([]byte, 16)
	rand.Read(id)
	return id
}

// Append transmits a record once and gives the offset it was acknowledged at,
// which the caller compares with the expected one: without a rule on the
// topic, or without a proxy, nothing checks the condition.
//
// Errors: *RefusedError and *BrokerError (certainly not appended by this
// transmission), *UnknownError (may be in the log), ErrBadRecord and those of
// Leader (nothing was sent).
func (c *Client) Append(ctx context.Context, r Record) (Offset, error) {
	if err := r.validate(); err != nil {
		return NoOffset, err
	}
	if r.AtEnd {
		r.Expected = NoOffset
	}
	addr, err := c.Leader(ctx, r.Topic, r.Partition)
	if err != nil {
		return NoOffset, err
	}
	resp, err := c.exchange(ctx, addr, produceRequest(ctx, &r))
	if err != nil {
		c.Forget(r.Topic, r.Partition)
		var broken *ExchangeError
		if errors.As(err, &broken) && broken.Sent {
			return NoOffset, &UnknownError{Expected: r.Expected, Cause: err}
		}
		if errors.As(err, &broken) {
			return NoOffset, &ConnectError{Addrs: []string{addr}, Err: broken.Err}
		}
		return NoOffset, err
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if t.Topic != r.Topic || Partition(p.Partition) != r.Partition {
				continue
			}
			message := ""
			if p.ErrorMessage != nil {
				message = *p.ErrorMessage
			}
			code := Code(p.ErrorCode)
			if code.passing() {
				c.Forget(r.Topic, r.Partition)
			}
			if err := Verdict(r.Expected, code, Offset(p.BaseOffset), message); err != nil {
				return NoOffset, err
			}
			return Offset(p.BaseOffset), nil
		}
	}
	return NoOffset, &UnknownError{
		Expected: r.Expected,
		Cause:    fmt.Errorf("%w: produce answer without topic %q partition %d", ErrMalformed, r.Topic, r.Partition),
	}
}

// produceRequest asks for acks from all in-sync replicas, within what is left
// of ctx or 30 s.
func produceRequest(ctx context.Context, r *Record) *kmsg.ProduceRequest {
	timeout := 30 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(produceVersion)
	req.Acks = -1
	req.TimeoutMillis = int32(min(timeout, time.Hour).Milliseconds())
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = r.Topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition = int32(r.Partition)
	rp.Records = r.appendBatch(nil)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// AppendPatiently is Append, repeated until ctx ends while it is certain that
// nothing was appended and the reason may pass: a leader that moved, too few
// replicas, a broker that cannot be reached. An unreachable bootstrap address
// is reported at once. When ctx ends it gives the last such reason.
func (c *Client) AppendPatiently(ctx context.Context, r Record) (Offset, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		offset, err := c.Append(ctx, r)
		if err == nil || !c.worthRepeating(err) {
			return offset, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return NoOffset, err
		}
	}
}

func (c *Client) worthRepeating(err error) bool {
	var answered *BrokerError
	if errors.As(err, &answered) {
		return answered.MayPass()
	}
	var leaderless *NoLeaderError
	if errors.As(err, &leaderless) {
		return true
	}
	var unreachable *ConnectError
	return errors.As(err, &unreachable) && !unreachable.Bootstrap
}
