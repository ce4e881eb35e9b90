package prober

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
	// LogStart is the first offset not deleted; −1: unknown.
	LogStart int64
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
}
