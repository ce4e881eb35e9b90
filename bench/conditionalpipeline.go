package main

import (
	"context"
	"fmt"
	"time"
)

// pipeline is a writer that keeps batches in flight on one connection, for its
// partitions in turn. To those of conditional writers nobody else writes: each
// batch expects what lies behind the one before.
type pipeline struct {
	entrant // of which the partition does not count
	// on are the partitions; all are led by the broker at the target.
	on    []int32
	depth int // batches in flight
}

// pipelined is what a pipeline did.
type pipelined struct {
	took    time.Duration
	records int
}

// perSecond is how many records were acknowledged a second.
func (p pipelined) perSecond() float64 { return float64(p.records) / p.took.Seconds() }

// stream is what a pipeline sends to one partition.
type stream struct {
	frame     *appendFrame
	partition int32
	// next is the offset of the next batch, and told that of the next answer.
	next, told offset
}

// run appends for so long, and then waits for what is in flight.
func (p pipeline) run(ctx context.Context, lasts time.Duration) (pipelined, error) {
	conn, err := dialAppend(ctx, p.target)
	if err != nil {
		return pipelined{}, err
	}
	defer conn.close()
	p.shape.atEnd = p.habit == ending
	streams := make([]stream, len(p.on))
	for i, partition := range p.on {
		end, err := conn.end(newEndRequest(p.topic, partition))
		if err != nil {
			return pipelined{}, fmt.Errorf("ask for the end of the log: %w", err)
		}
		streams[i] = stream{newAppendFrame(p.topic, partition, p.shape), partition, end, end}
	}
	var did pipelined
	begun := time.Now()
	for sent, answered := 0, 0; ; {
		for ; sent-answered < p.depth && time.Since(begun) < lasts; sent++ {
			s := &streams[sent%len(streams)]
			s.frame.expect(s.next, mark{writer: 1, count: uint64(s.next)})
			if err := conn.send(s.frame); err != nil {
				return did, err
			}
			s.next += offset(p.shape.records)
		}
		if sent == answered {
			did.took = time.Since(begun)
			return did, nil
		}
		if err := p.acknowledged(conn, &streams[answered%len(streams)]); err != nil {
			return did, err
		}
		answered++
		did.records += p.shape.records
	}
}

// acknowledged reads the answer to the oldest batch in flight.
func (p pipeline) acknowledged(conn *appendConn, s *stream) error {
	answer, err := conn.acknowledgement()
	if err == nil {
		err = answer.err(s.told)
	}
	if err != nil {
		return fmt.Errorf("a batch for partition %d of %s at %s: %w", s.partition, p.topic, p.target.name, err)
	}
	if p.habit == conditional && answer.base != s.told {
		return fmt.Errorf("%w: partition %d of %s: asked for %d, got %d", errElsewhere, s.partition, p.topic, s.told, answer.base)
	}
	s.told += offset(p.shape.records)
	return nil
}
