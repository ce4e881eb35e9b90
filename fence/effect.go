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
	// Alarm: something happened that cannot happen while the conditions of
	// the fence hold; see Alarm.
	RaiseAlarm
)

// Alarm is a sign that a condition of the fence does not hold.
type Alarm int

const (
	// Misplaced: a record whose fate was unknown was found at another offset
	// than the one promised.
	Misplaced Alarm = iota + 1
	// Bypassed: another producer wrote where a stamped batch was sent.
	Bypassed
	// Undecidable: a view that repeated readings confirm is refused.
	Undecidable
)

var alarmNames = [...]string{"", "misplaced", "bypassed", "undecidable"}

func (a Alarm) String() string { return alarmNames[a] }

// ReadID identifies one reading of records. Never 0.
type ReadID int64

// Effect is something that the caller must do.
type Effect struct {
	Kind   EffectKind
	Ticket *Ticket

	Epoch        ps.ProducerEpoch
	BaseSequence ps.Sequence
	Unstamped    bool

	Verdict Verdict

	Node       ps.NodeID
	Read       ReadID
	From, UpTo ps.Offset

	Alarm  Alarm
	Offset ps.Offset // of the alarm
}

// Detached reports whether nobody waits for the ticket's verdict any more.
func (e *Effect) Detached() bool { return e.Ticket != nil && e.Ticket.detached }

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
	case RaiseAlarm:
		return fmt.Sprintf("alarm: %v at %d", e.Alarm, e.Offset)
	}
	return "none"
}
