package partitionstate

import "fmt"

// View is what the leader said of a partition at one instant: where its log
// ends and which base sequence the fence's producer id must use there.
type View struct {
	// Leader answered, and believed itself leader, in LeaderEpoch.
	Leader      NodeID
	LeaderEpoch LeaderEpoch
	// Next is the leader's log end offset: the offset of the next append.
	Next Offset
	// HasState: the leader knows the fence's producer id here. Sequence and
	// Epoch are the ones it will accept next; without state they are unset
	// and a batch arms the fence instead.
	HasState bool
	Sequence Sequence
	Epoch    ProducerEpoch
	// StateTimestamp is the max timestamp of the fence's last batch, from
	// which the broker counts expiry; −1 unknown.
	StateTimestamp Timestamp
	// HighWatermark is the committed end seen with the view; NoOffset when
	// the leader did not know it yet. It may be behind Next.
	HighWatermark Offset
	// FromTail: the pair was taken from the last committed batch's header,
	// and so describes the instant of that append, not of the reading.
	FromTail bool
	// ArmAtZero: the leader lets a producer id that it knows nothing of begin only
	// with sequence 0, so that the fence is armed with it and not with the offset.
	ArmAtZero bool
	// At is when the reading (or the append that confirmed it) was begun.
	At Instant
}

// Stamp is the producer epoch and base sequence for a batch that expects
// Next.
func (v View) Stamp() (ProducerEpoch, Sequence) {
	if !v.HasState {
		return 0, v.arming()
	}
	return v.Epoch, v.Sequence
}

func (v View) arming() Sequence {
	if v.ArmAtZero {
		return 0
	}
	return ArmingSequence(v.Next)
}

// Aligned reports whether the sequence due at Next is the one that arming
// there would use. Without drift (no foreign append since the fence was
// armed) it always is, unless the fence was armed with 0. Sequence 0 in a raised
// epoch never is: should the state expire and the fence be armed anew, the leader
// would take it for the beginning of that epoch, wherever its log ends then.
func (v View) Aligned() bool {
	epoch, s := v.Stamp()
	return s == v.arming() && (epoch == 0 || s != 0)
}

// SamePair reports whether both views would stamp a batch at the same offset
// in the same way.
func (v View) SamePair(o View) bool {
	ve, vs := v.Stamp()
	oe, os := o.Stamp()
	return v.Next == o.Next && v.HasState == o.HasState && ve == oe && vs == os
}

// String is for scripts and logs.
func (v View) String() string {
	state := "no state"
	if v.HasState {
		state = fmt.Sprintf("epoch %d seq %d", v.Epoch, v.Sequence)
	}
	return fmt.Sprintf("next %d hw %d %s leader %d/%d", v.Next, v.HighWatermark, state, v.Leader, v.LeaderEpoch)
}
