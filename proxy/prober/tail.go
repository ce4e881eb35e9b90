package prober

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// viewFromTail tries to make a view of the last batch below the high
// watermark, which an unsteady round has found. It reports false, and returns
// the view it was given, if that batch is not the fence's.
//
// The pair is true of one instant even so: the append of the batch at offsets
// b to b+n−1 with sequences s to s+n−1 left the log end at b+n and the fence's
// last sequence at s+n−1, under one lock.
func (p *Pool) viewFromTail(ctx context.Context, at target, v View) (View, bool, error) {
	if v.HighWatermark <= 0 {
		return v, false, nil
	}
	tail, err := at.fetch(v.HighWatermark-1, tailBytes)
	if err != nil {
		return v, false, err
	}
	answers, err := at.conn.roundTrip(ctx, tail)
	if err != nil {
		return v, false, err
	}
	got, err := at.fetchAnswer(tail, answers[0])
	if outOfRange(err) {
		return v, false, nil // deleted meanwhile
	}
	if err != nil {
		return v, false, err
	}
	last, found, err := lastBatchBelow(got.batches, got.highWatermark)
	if err != nil {
		return v, false, err
	}
	if !found || !isFence(last, p.cfg.FenceID) {
		return v, false, nil
	}
	v = View{
		LeaderEpoch:   at.epoch,
		LogEnd:        afterBatch(last),
		HighWatermark: got.highWatermark,
		FromTail:      true,
	}
	v.setState(stateAfter(last))
	return v, true, nil
}

// tailAnswer returns the fence's state by the batch that ends at logEnd, if it
// is the fence's.
func (t target) tailAnswer(req kmsg.Request, answer []byte, fence, logEnd int64) (fenceState, error) {
	got, err := t.fetchAnswer(req, answer)
	if outOfRange(err) {
		return noState, nil // the log is empty
	}
	if err != nil {
		return noState, err
	}
	last, found, err := lastBatchBelow(got.batches, logEnd)
	if err != nil {
		return noState, err
	}
	if !found || afterBatch(last) != logEnd || !isFence(last, fence) {
		return noState, nil
	}
	return stateAfter(last), nil
}

// lastBatchBelow returns the last whole batch that ends at or below limit.
func lastBatchBelow(batches []byte, limit int64) (last wire.BatchHeader, found bool, err error) {
	for len(batches) > 0 {
		h, size, err := wire.ParseStoredBatch(batches)
		if errors.Is(err, wire.ErrShort) {
			break
		}
		if err != nil {
			return wire.BatchHeader{}, false, fmt.Errorf("stored batch: %w", err)
		}
		if size <= 0 || afterBatch(h) > limit {
			break
		}
		last, found = h, true
		batches = batches[size:]
	}
	return last, found, nil
}

// afterBatch is the offset after a batch's last.
func afterBatch(h wire.BatchHeader) int64 {
	return h.BaseOffset + int64(h.LastOffsetDelta) + 1
}

// isFence reports whether a stored batch is one that a proxy stamped.
func isFence(h wire.BatchHeader, fence int64) bool {
	return h.ProducerID == fence && h.BaseSequence >= 0 && h.ProducerEpoch >= 0 && h.LastOffsetDelta >= 0
}

// stateAfter is the producer state that the append of a fence batch left.
// After 2³¹−1 sequences go on at 0.
func stateAfter(h wire.BatchHeader) fenceState {
	return fenceState{
		has:           true,
		lastSequence:  int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & (1<<31 - 1)),
		epoch:         h.ProducerEpoch,
		lastTimestamp: max(h.MaxTimestamp, -1),
	}
}

// outOfRange reports a broker's OFFSET_OUT_OF_RANGE.
func outOfRange(err error) bool {
	var refused *BrokerError
	return errors.As(err, &refused) && refused.Code == codeOffsetOutOfRange
}
