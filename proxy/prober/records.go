package prober

import (
	"context"
	"errors"
	"fmt"

	"github.com/offsetproxy/offsetproxy/wire"
)

// Records is what a read-back found.
type Records struct {
	// HighWatermark and LogEnd as last answered; the high watermark is −1 if
	// unknown. A LogStart above the offset asked for means that what stood
	// below it is deleted.
	HighWatermark, LogStart, LogEnd int64
	// Records are those stored at the offsets asked for and below the high
	// watermark, in offset order. Offsets may be missing (compaction), and
	// control records are among them.
	Records []wire.StoredRecord
	// NextOffset is the first offset that was not covered. Of the offsets
	// from the one asked for up to here, those that are not in Records are
	// not in the log.
	NextOffset int64
}

const (
	// firstReadBytes is the size of a read-back's first Fetch: most ask for a
	// few records, and the first batch comes whole in any case.
	firstReadBytes = 64 << 10
	// nextReadBytes is the size of those after it.
	nextReadBytes = 1 << 20
)

// ReadRecords reads back what is stored at the offsets from (inclusive) to
// upTo (exclusive), at the leader in the given epoch, uncommitted transactions
// included, and only below the high watermark. It ends when upTo is covered,
// at the high watermark, or at Config.ReadBytes or MaxRecords; a caller that
// needs more goes on from NextOffset. If NextOffset has not moved and from is
// below the high watermark, the broker gave nothing this time.
//
// If from is below the log start, LogStart says so, Records is empty and
// NextOffset is the smaller of LogStart and upTo. If from is beyond the log
// end, the error is a *BrokerError with OFFSET_OUT_OF_RANGE (1), and the
// offsets in Records are set nevertheless.
//
// Errors: those of ReadView, but nothing is asked again: a wrong epoch or
// leader is returned as the broker says it. Besides, errors of package wire
// for stored batches that cannot be read.
func (p *Pool) ReadRecords(ctx context.Context, node int32, t Topic, partition, leaderEpoch int32, from, upTo int64) (Records, error) {
	records, err := p.readRecords(ctx, node, t, partition, leaderEpoch, from, upTo)
	if err != nil {
		return records, fmt.Errorf("read back %s-%d at broker %d: %w", t.Name, partition, node, err)
	}
	return records, nil
}

func (p *Pool) readRecords(ctx context.Context, node int32, t Topic, partition, leaderEpoch int32, from, upTo int64) (Records, error) {
	c, err := p.connection(ctx, node)
	if err != nil {
		return Records{}, err
	}
	at := target{c, t, partition, leaderEpoch}
	r := Records{HighWatermark: -1, LogStart: -1, LogEnd: -1, NextOffset: from}
	end, err := at.epochEnd()
	if err != nil {
		return Records{}, err
	}
	size := firstReadBytes
	for spent := 0; ; size = nextReadBytes {
		fetch, err := at.fetch(r.NextOffset, min(size, p.cfg.ReadBytes-spent))
		if err != nil {
			return Records{}, err
		}
		// The log end comes after, so that it is not below what was fetched.
		answers, err := c.roundTrip(ctx, fetch, end)
		if err != nil {
			return Records{}, err
		}
		got, err := at.fetchAnswer(fetch, answers[0])
		if outOfRange(err) {
			return at.outsideLog(ctx, r, upTo, err)
		}
		if err != nil {
			return Records{}, err
		}
		if r.LogEnd, err = at.epochEndAnswer(end, answers[1]); err != nil {
			return Records{}, err
		}
		r.HighWatermark, r.LogStart = got.highWatermark, got.logStart
		before := r.NextOffset
		if err := p.take(&r, t.Name, got.batches, min(upTo, got.highWatermark)); err != nil {
			return Records{}, err
		}
		spent += len(got.batches)
		if r.NextOffset == before || r.NextOffset >= min(upTo, r.HighWatermark) ||
			spent >= p.cfg.ReadBytes || len(r.Records) >= p.cfg.MaxRecords {
			return r, nil
		}
	}
}

// take adds the records of a fetched set of a topic's that are at NextOffset or above and
// below limit, and moves NextOffset.
func (p *Pool) take(r *Records, topic string, batches []byte, limit int64) error {
	from, covered, size := r.NextOffset, r.NextOffset, 0
	for covered < limit && size < len(batches) {
		h, n, err := wire.ParseStoredBatch(batches[size:])
		if errors.Is(err, wire.ErrShort) {
			break
		}
		if err != nil {
			return fmt.Errorf("stored batch: %w", err)
		}
		if n <= 0 || h.LastOffsetDelta < 0 {
			return fmt.Errorf("stored batch: %w", wire.ErrCorrupt)
		}
		size += n
		covered = max(covered, min(afterBatch(h), limit))
	}
	err := wire.WalkStored(batches[:size], p.cfg.Names(topic), p.cfg.MaxDecompressed, func(s wire.StoredRecord) bool {
		switch {
		case s.Offset < from:
			return true
		case s.Offset >= limit:
			return false
		case len(r.Records) >= p.cfg.MaxRecords:
			covered = s.Offset
			return false
		}
		r.Records = append(r.Records, s)
		return true
	})
	if err != nil {
		return fmt.Errorf("stored records: %w", err)
	}
	r.NextOffset = covered
	return nil
}

// outsideLog tells on which side of the log NextOffset lies, after a Fetch
// was refused with cause.
func (t target) outsideLog(ctx context.Context, r Records, upTo int64, cause error) (Records, error) {
	start, err := t.offset(earliest)
	if err != nil {
		return Records{}, err
	}
	high, err := t.offset(latest)
	if err != nil {
		return Records{}, err
	}
	end, err := t.epochEnd()
	if err != nil {
		return Records{}, err
	}
	answers, err := t.conn.roundTrip(ctx, start, high, end)
	if err != nil {
		return Records{}, err
	}
	if r.LogStart, err = t.offsetAnswer(start, answers[0]); err != nil {
		return Records{}, err
	}
	if r.HighWatermark, err = t.offsetAnswer(high, answers[1]); err != nil {
		return Records{}, err
	}
	if r.LogEnd, err = t.epochEndAnswer(end, answers[2]); err != nil {
		return Records{}, err
	}
	switch {
	case r.NextOffset > r.LogEnd:
		return r, cause
	case r.NextOffset < r.LogStart:
		r.NextOffset = min(r.LogStart, upTo)
	} // else an append has brought it into the log since
	return r, nil
}
