package fence

import (
	"fmt"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// EffectKind is the kind of an effect.
type EffectKind int

const (
	// Send: write Ticket's batch upstream, stamped with Epoch and
	// BaseSequence (or unstamped, if Unstamped), then report Answered or
	// Abandoned. Not to be delayed: the instant of the event that produced it
	// counts as the time of sending.
	Send EffectKind = iota + 1
	// Decide: Ticket is done, with Verdict.
	Decide
	// ReadView: read the view at Node and report ViewRead or ViewFailed.
	ReadView
	// ReadRecords: read the committed records From … UpTo−1 at the leader and
	// report RecordsRead or RecordsFailed with the Read id.
	ReadRecords
	// Abandon: the answer to Ticket's transmission is overdue. Close its
	// connection, so that a late answer is never taken for another's, and
	// report Abandoned.
	Abandon
	// RecheckTopic: a view says what it cannot say of this topic. Forget what
	// is known of the topic's id, so that it is asked anew: it may have been
	// deleted and created again.
	RecheckTopic
	// RaiseAlarm: something happened that cannot happen while the conditions of
	// the fence hold; see Alarm.
	RaiseAlarm
	// ForgotProducer: a client's virtual producer state was forgotten, before its
	// time, to make room for another's.
	ForgotProducer
)

// Alarm is a sign that a condition of the fence does not hold.
type Alarm int

const (
	// Misplaced: a record whose fate was unknown was found at another offset
	// than the one promised.
	Misplaced Alarm = iota + 1
	// Bypassed: another producer wrote where a stamped batch was sent.
	Bypassed
	// Undecidable: a view is refused that repeated readings confirm.
	Undecidable
)

var alarmNames = [...]string{"", "misplaced", "bypassed", "undecidable"}

// String names the alarm, for scripts, logs and metrics.
func (a Alarm) String() string { return alarmNames[a] }

// ReadID identifies one reading of records. Never 0.
type ReadID int64

// Effect is something that the caller must do. Which fields are set follows
// from its kind.
type Effect struct {
	Kind EffectKind
	// Ticket is the batch it is about (Send, Decide, Abandon, and RaiseAlarm
	// where the alarm is about one).
	Ticket *Ticket

	// Epoch and BaseSequence are the stamp (Send), unless Unstamped: then the
	// batch goes as its client made it.
	Epoch        ps.ProducerEpoch
	BaseSequence ps.Sequence
	Unstamped    bool

	// Verdict is what became of the batch (Decide).
	Verdict Verdict

	// Node is the broker to be asked, or AnyNode (ReadView, ReadRecords).
	Node ps.NodeID
	// Read identifies the reading of the records From … UpTo−1 (ReadRecords).
	Read       ReadID
	From, UpTo ps.Offset

	// Alarm is what is wrong, and Offset where it shows (RaiseAlarm).
	Alarm  Alarm
	Offset ps.Offset
}

// String is for scripts.
func (e Effect) String() string {
	switch e.Kind {
	case Send:
		if e.Unstamped {
			return "send unstamped"
		}
		return fmt.Sprintf("send epoch %d seq %d", e.Epoch, e.BaseSequence)
	case Decide:
		return e.Verdict.String()
	case ReadView:
		return fmt.Sprintf("read view at %d", e.Node)
	case ReadRecords:
		return fmt.Sprintf("read records %d..%d", e.From, e.UpTo)
	case Abandon:
		return "abandon"
	case RecheckTopic:
		return "recheck topic"
	case RaiseAlarm:
		return fmt.Sprintf("alarm: %v at %d", e.Alarm, e.Offset)
	case ForgotProducer:
		return "forgot producer"
	}
	return "none"
}
