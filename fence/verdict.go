package fence

import (
	"fmt"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Kind is the kind of a verdict.
type Kind int

const (
	// Won: the batch is in the log at the offset it expected.
	Won Kind = iota + 1
	// Taken: another record has the expected offset; none of the batch's
	// records lies below Next.
	Taken
	// NotReached: the log ended before the expected offset. Weak: a copy of
	// the batch that waits elsewhere may still be appended.
	NotReached
	// Unknown: the batch is in the log at the expected offset, or will be, or
	// never will.
	Unknown
	// Violation: the batch is in the log at another offset than it expected.
	// A condition of the fence does not hold.
	Violation
	// BrokerError: the broker refused the batch with Code, appending nothing.
	BrokerError
	// Retry: nothing of the batch was appended, and the proxy could not
	// decide; see Reason. The client should send it again.
	Retry
	// Failed: nothing of the batch was sent, because its partition's view or
	// records cannot be read; Code says why.
	Failed
	// PredecessorRefused: the batch was not sent, because one that its client sent
	// before it was refused. None of its records lies below Next.
	PredecessorRefused
)

var kindNames = [...]string{"", "won", "taken", "not reached", "unknown", "violation", "broker error", "retry", "failed", "predecessor refused"}

// String is the kind in words, for scripts and logs.
func (k Kind) String() string { return kindNames[k] }

// Reason says why a batch is given back with Retry.
type Reason int

const (
	// HoldExpired: no decision within the time a batch may be held.
	HoldExpired Reason = iota + 1
	// NotLeader: the broker the client sent to does not lead the partition.
	NotLeader
	// StateNearExpiry: the fence's producer state has drifted from the offset
	// and may expire while a view of it is in use.
	StateNearExpiry
	// SameViewRefused: the broker keeps refusing what a fresh view says it
	// must accept: an assumption is broken.
	SameViewRefused
	// Unreachable: the leader could not be asked for the view, or the batch not
	// be sent to it.
	Unreachable
	// ViewChanged: the partition's state changed while the batch was sent, and
	// its bytes are gone, so that only the client can send it again.
	ViewChanged
	// TooManyUnknown: too many transmissions of the partition are of unknown
	// fate.
	TooManyUnknown
	// LeaderBehind: the leader's log ends before what is known to be committed:
	// it was deposed, or the topic was deleted and created anew.
	LeaderBehind
	// Overtook: what its client sent before it was given back, or is unknown, and
	// has not come again.
	Overtook
)

var reasonNames = [...]string{"", "hold expired", "not leader", "state near expiry", "same view refused", "unreachable",
	"view changed", "too many unknown", "leader behind", "overtook"}

// String is the reason in words, as clients are told it.
func (r Reason) String() string { return reasonNames[r] }

// Reasons lists all of them.
func Reasons() []Reason {
	var all []Reason
	for r := range reasonNames[1:] {
		all = append(all, Reason(r+1))
	}
	return all
}

// Verdict is what becomes of a batch.
type Verdict struct {
	Kind Kind
	// Offset: where the batch's first record lies (Won, Violation).
	Offset ps.Offset
	// Next is a lower bound of the committed end (Taken, NotReached, Unknown,
	// PredecessorRefused).
	Next ps.Offset
	// LogStart is set (not NoOffset) on Taken when nothing is stored any more at
	// the batch's offsets: they lie before the log's start, which it is, or were
	// compacted away.
	LogStart ps.Offset
	// Replayed: Won, but recognised in the log rather than appended now; Violation,
	// but told again.
	Replayed bool
	// Code is the Kafka error code (BrokerError, Failed).
	Code int16
	// Reason says why (Retry).
	Reason Reason
}

// String is for scripts and logs.
func (v Verdict) String() string {
	switch v.Kind {
	case Won:
		if v.Replayed {
			return fmt.Sprintf("won %d replayed", v.Offset)
		}
		return fmt.Sprintf("won %d", v.Offset)
	case Taken:
		if v.LogStart != ps.NoOffset {
			return fmt.Sprintf("taken next %d log_start %d", v.Next, v.LogStart)
		}
		return fmt.Sprintf("taken next %d", v.Next)
	case NotReached, Unknown, PredecessorRefused:
		return fmt.Sprintf("%v next %d", v.Kind, v.Next)
	case Violation:
		return fmt.Sprintf("violation at %d", v.Offset)
	case BrokerError, Failed:
		return fmt.Sprintf("%v %d", v.Kind, v.Code)
	case Retry:
		return fmt.Sprintf("retry: %v", v.Reason)
	}
	return "none"
}
