package partitionstate

import (
	"math"
	"time"
)

// Offset is a position in a partition's log, in records. −1 where Kafka has
// no offset to give.
type Offset int64

// NoOffset is the absence of an offset.
const NoOffset Offset = -1

// Sequence is an idempotent producer's record sequence number (KIP-98):
// 0 … 2³¹−1, followed by 0 again.
type Sequence int32

// sequenceMask keeps the 31 bits in which sequences count.
const sequenceMask = 1<<31 - 1

// Plus is the sequence n records later, or earlier where n is negative.
func (s Sequence) Plus(n int) Sequence {
	return Sequence((int64(s) + int64(n)) & sequenceMask)
}

// Before reports whether s is passed before o. Sequences go round, so of two the
// one is before the other from which it is reached in less than half of the round.
func (s Sequence) Before(o Sequence) bool {
	ahead := (int64(o) - int64(s)) & sequenceMask
	return 0 < ahead && ahead < 1<<30
}

// SequenceAfter is the sequence that follows the last one a broker told of. It
// tells −1 of a producer id that has an epoch and no batch yet; 0 is next then.
func SequenceAfter(last int32) Sequence { return Sequence(last).Plus(1) }

// ArmingSequence is the base sequence of the first stamped batch in a
// partition whose leader knows nothing of the fence's producer id. It is a
// function of the offset alone, so that all proxies pick the same one.
func ArmingSequence(expected Offset) Sequence {
	return Sequence(int64(expected) & sequenceMask)
}

// ProducerEpoch is an idempotent producer's epoch (KIP-98).
type ProducerEpoch int16

// LeaderEpoch counts the leaders of a partition (KIP-101). −1: unknown.
type LeaderEpoch int32

// NodeID is a broker's node id. AnyNode stands for the partition's leader,
// whichever broker that is.
type NodeID int32

// AnyNode asks for the partition's leader instead of a certain broker.
const AnyNode NodeID = -1

// Instant is a point on a clock that never jumps and runs on while the
// machine is suspended, in nanoseconds from an arbitrary start.
type Instant int64

// Add is the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub is the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Timestamp is wall-clock time as records carry it, in milliseconds since
// 1970. −1: none.
type Timestamp int64

// Sub is the time from u to t; where that is more than a Duration can hold (292
// years), the largest or smallest one. Timestamps come from clients' records.
func (t Timestamp) Sub(u Timestamp) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	d := int64(t) - int64(u)
	switch {
	case t > u && (d < 0 || d > most):
		return math.MaxInt64
	case t < u && (d > 0 || d < -most):
		return math.MinInt64
	}
	return time.Duration(d) * time.Millisecond
}

// Now is one reading of both clocks.
type Now struct {
	Instant Instant
	Wall    Timestamp
}

// Record is what identifies one record.
type Record struct {
	// Digest is of its key, value and headers. Equal digests mean equal records.
	Digest uint64
	// AppendID: an append-id is among the headers and, in a batch that a client
	// sends, among those of each other record. Where a batch has no condition
	// some may have one, so that a stored record can have it and the same record
	// of its batch not: whether the log holds a record, its digest tells.
	AppendID bool
}
