package prober

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// View is what a broker knew about a partition at one instant: a batch of the
// fence that is to get offset LogEnd must carry the sequence after
// LastSequence.
//
// With FromTail the instant lies in the past: the one just after the append of
// the last fence batch below the high watermark, of which LogEnd, LastSequence
// and ProducerEpoch were true. Something may have been appended since. A
// broker that still has the fence's state refuses what is sent on such a
// view, one that has lost it does not, so the caller must judge LastTimestamp
// before using it.
type View struct {
	// LeaderEpoch is the epoch in which everything else was read; the broker
	// checked it in each answer that can.
	LeaderEpoch int32
	// LogEnd is the next offset the leader will give.
	LogEnd int64
	// HighWatermark was read after LogEnd, so it may exceed it; −1: unknown,
	// as just after an election (KIP-207).
	HighWatermark int64
	// HasState says whether the broker has state of the fence id here. If
	// not, LastSequence and ProducerEpoch are −1.
	HasState bool
	// LastSequence is the fence's last sequence; −1 with HasState means that
	// the next is 0.
	LastSequence int32
	// ProducerEpoch is the fence id's epoch at the broker.
	ProducerEpoch int16
	// LastTimestamp is the largest record timestamp of the fence's last
	// batch, in ms since 1970; −1: unknown.
	LastTimestamp int64
	// FromTail: see above.
	FromTail bool
	// ArmAtZero: the broker was probed, and lets a producer id without state
	// begin at sequence 0 only.
	ArmAtZero bool
}

const (
	// maxEpochRefreshes is how often one ReadView asks for the leader epoch
	// anew because the broker refused the one it had. Metadata may run ahead
	// of the partition or behind it for a moment; waiting is the caller's.
	maxEpochRefreshes = 3
	// readsBeforeTail is how many reads with unequal log ends make ReadView
	// look at the log's tail as well.
	readsBeforeTail = 3
	// firstPause is the pause after the last of these; later ones double, up to
	// longestPause. A log under such load is not still again at once.
	firstPause   = time.Millisecond
	longestPause = 50 * time.Millisecond
	// tailBytes is how much is fetched to find the last batch below the high
	// watermark: enough for some that were appended since it was read.
	tailBytes = 64 << 10
)

// ReadView reads a partition's view from its leader.
//
// Each round is one group of requests between two readings of the log end,
// with the epoch checked throughout. The leader appends and updates producer
// state under one lock, so if both log ends are equal, nothing was appended
// between them and the state belongs to them. Rounds are repeated until that
// is so; after the third, the last batch below the high watermark will do if
// it is the fence's (View.FromTail), and the rounds are paced. Under foreign
// load neither may ever come, and nothing but ctx bounds the call: give it a
// deadline.
//
// Errors: ErrNotProbed; *BrokerError, with NOT_LEADER_OR_FOLLOWER (6) if the broker does not
// lead the partition by its own account, and with FENCED_LEADER_EPOCH (74) or
// UNKNOWN_LEADER_EPOCH (75) if it kept refusing the epoch it named itself;
// *UnsupportedError; those wrapping ErrUnreachable; ErrBusy; ErrClosed; the
// context's cause.
func (p *Pool) ReadView(ctx context.Context, node int32, t Topic, partition int32) (View, error) {
	return p.ReadViewTelling(ctx, node, t, partition, func(int64) {})
}

// ReadViewTelling is ReadView, and calls told with the high watermark of each
// round after which it goes on because the log does not come to rest. It is true
// by itself, though it belongs to no view.
func (p *Pool) ReadViewTelling(ctx context.Context, node int32, t Topic, partition int32, told func(highWatermark int64)) (View, error) {
	v, err := p.readView(ctx, node, t, partition, told)
	if err != nil {
		return View{}, fmt.Errorf("read view of %s-%d at broker %d: %w", t.Name, partition, node, err)
	}
	return v, nil
}

func (p *Pool) readView(ctx context.Context, node int32, t Topic, partition int32, told func(int64)) (View, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return View{}, err
	}
	assumed := c.assumed.Load()
	if assumed == nil {
		return View{}, ErrNotProbed
	}
	read := p.readDescribed
	switch assumed.source {
	case TailBatch:
		read = p.readWithTail
	case DescribeOrTail:
		read = p.readEither
	}
	refreshes := 0
	for round := 1; ; round++ {
		epoch, err := p.leaderEpoch(ctx, node, t, partition)
		if err != nil {
			return View{}, err
		}
		at := target{c, t, partition, epoch}
		v, steady, err := read(ctx, at)
		if err == nil && !steady && round >= readsBeforeTail {
			v, steady, err = p.viewFromTail(ctx, at, v)
		}
		if err == nil && steady {
			v.ArmAtZero = assumed.armAtZero
			return v, nil
		}
		if err == nil {
			if round >= readsBeforeTail {
				if v.HighWatermark >= 0 {
					told(v.HighWatermark)
				}
				if err := pause(ctx, min(firstPause<<min(round-readsBeforeTail, 10), longestPause)); err != nil {
					return View{}, err
				}
			}
			continue
		}
		var refused *BrokerError
		if errors.As(err, &refused) {
			// Whatever it was, the epoch may be why.
			p.forgetEpoch(t, partition, epoch)
			stale := refused.Code == codeFencedLeaderEpoch || refused.Code == codeUnknownLeaderEpoch
			if stale && refreshes < maxEpochRefreshes {
				refreshes++
				continue
			}
		}
		return View{}, err
	}
}

// pause waits, or returns the cause for which ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readDescribed does one round with DescribeProducers. It reports whether the
// log ends were equal.
func (p *Pool) readDescribed(ctx context.Context, at target) (View, bool, error) {
	end, high, err := at.ends()
	if err != nil {
		return View{}, false, err
	}
	producers, err := at.producers()
	if err != nil {
		return View{}, false, err
	}
	answers, err := at.conn.roundTrip(ctx, end, producers, end, high)
	if err != nil {
		return View{}, false, err
	}
	before, err := at.epochEndAnswer(end, answers[0])
	if err != nil {
		return View{}, false, err
	}
	state, err := at.producersAnswer(producers, answers[1], p.cfg.FenceID)
	if err != nil {
		return View{}, false, err
	}
	return at.viewAnswer(before, state, end, high, answers[2:])
}

// readWithTail does one round with the tail batch, which cannot be asked for
// before the log end is known.
func (p *Pool) readWithTail(ctx context.Context, at target) (View, bool, error) {
	end, high, err := at.ends()
	if err != nil {
		return View{}, false, err
	}
	answers, err := at.conn.roundTrip(ctx, end)
	if err != nil {
		return View{}, false, err
	}
	before, err := at.epochEndAnswer(end, answers[0])
	if err != nil {
		return View{}, false, err
	}
	tail, err := at.fetch(max(before-1, 0), 1)
	if err != nil {
		return View{}, false, err
	}
	answers, err = at.conn.roundTrip(ctx, tail, end, high)
	if err != nil {
		return View{}, false, err
	}
	state, err := at.tailAnswer(tail, answers[0], p.cfg.FenceID, before)
	if err != nil {
		return View{}, false, err
	}
	return at.viewAnswer(before, state, end, high, answers[1:])
}

// youngState is the age up to which the state that a batch left is there, if its
// timestamp says how old it is: brokers that forget sooner are not served.
const youngState = time.Minute

// readEither does one round with DescribeProducers and, if that shows no state,
// one with the tail batch, which refutes it if there must be some.
func (p *Pool) readEither(ctx context.Context, at target) (View, bool, error) {
	v, steady, err := p.readDescribed(ctx, at)
	if err != nil || !steady || v.HasState || v.LogEnd == 0 {
		return v, steady, err
	}
	tail, steady, err := p.readWithTail(ctx, at)
	if err != nil || !steady || tail.HasState && tail.LastTimestamp > p.cfg.WallClock().Add(-youngState).UnixMilli() {
		return tail, steady, err
	}
	return v, true, nil
}

// ends makes the requests that end a round: for the log end, which begins it
// too, and for the high watermark.
func (t target) ends() (end, high kmsg.Request, err error) {
	if end, err = t.epochEnd(); err != nil {
		return nil, nil, err
	}
	high, err = t.offset(latest)
	return end, high, err
}

// viewAnswer makes a view of the state read after the log ended at before, and
// of the answers that end the round. It reports whether the log ends were equal.
func (t target) viewAnswer(before int64, state fenceState, end, high kmsg.Request, answers [][]byte) (View, bool, error) {
	v := View{LeaderEpoch: t.epoch}
	var err error
	if v.LogEnd, err = t.epochEndAnswer(end, answers[0]); err != nil {
		return View{}, false, err
	}
	if v.HighWatermark, err = t.offsetAnswer(high, answers[1]); err != nil {
		return View{}, false, err
	}
	v.setState(state)
	return v, v.LogEnd == before, nil
}

// setState puts the fence's state into the view.
func (v *View) setState(s fenceState) {
	v.HasState, v.LastSequence, v.ProducerEpoch, v.LastTimestamp = s.has, s.lastSequence, s.epoch, s.lastTimestamp
}
