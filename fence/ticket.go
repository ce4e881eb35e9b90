package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Replay says when records in the log that equal a conditional batch's pass for
// the batch itself, so that its sender is told of a success.
type Replay int

const (
	// ReplayID: when each carries the same append-id.
	ReplayID Replay = iota
	// ReplayContent: always; for senders whose records are unique.
	ReplayContent
	// ReplayOff: never. A success is only ever said of an append that a broker
	// acknowledged, except where no answer of a broker says so much (MarkNone,
	// and topics with LogAppendTime).
	ReplayOff
)

// Batch is what the fence needs to know of a batch.
type Batch struct {
	// Expected is the offset that the first record must get; the others get
	// those after it. See AtEnd.
	Expected ps.Offset
	// AtEnd: the batch goes wherever the log ends. Expected is then where it was
	// tried last, if its fate is unknown, or NoOffset; the fence sets it.
	AtEnd bool
	// Replay; zero: ReplayID. It does not matter to AtEnd batches.
	Replay Replay
	// Marking is how the broker Node marks a duplicate; zero: MarkLogAppendTime.
	Marking Marking
	// Producer is where the batch stands among its client's, and nil if its client
	// is not idempotent.
	Producer *ClientBatch
	// Records identifies each record; not empty. The fence keeps the slice until it
	// has given its verdict.
	Records []ps.Record
	// Connection brought the batch; 0: not known. Where some lose one race after
	// the other, theirs is waited for.
	Connection ps.ConnectionID
	// MaxTimestamp is the largest record timestamp.
	MaxTimestamp ps.Timestamp
	// FirstTimestamp is that of the first record.
	FirstTimestamp ps.Timestamp
	// Node is the broker that the batch's upstream connection goes to, and
	// ConnOpened an instant at which that connection was open already: a view
	// begun before it may be of before a restart.
	Node       ps.NodeID
	ConnOpened ps.Instant
	// HoldUntil is when the proxy must have answered if it can.
	HoldUntil ps.Instant
	// AnswerWithin is how long after its sending the broker's answer is waited
	// for.
	AnswerWithin time.Duration
}

// end is the offset behind the batch's last record.
func (b *Batch) end() ps.Offset { return b.Expected + ps.Offset(len(b.Records)) }

// phase is where a ticket is on its way.
//
//	waiting ──send──▶ sent ──answer──▶ done
//	   ▲               │ ├──not appended by this transmission──▶ waiting
//	   └───────────────┘ ├──duplicate or LogAppendTime topic───▶ typing
//	                     └──unknown, abandoned─────────────────▶ unsettled
type phase int

const (
	// waiting: nothing of it can be in the log by this ticket's doing.
	waiting phase = iota
	// sent: one transmission is upstream and not answered yet.
	sent
	// typing: answered with an append time; whether that marks a duplicate
	// depends on the stored batch, which is being read.
	typing
	// unsettled: its fate is unknown; the log is being read for it.
	unsettled
	// done: the verdict was given.
	done
)

// Ticket is one batch on its way through a Partition. The caller allocates
// it, sets Batch and Owner, and hands it to Admit; afterwards Batch is the
// fence's to read and Owner the caller's.
type Ticket struct {
	Batch
	// Owner is for the caller; the fence never looks at it.
	Owner any

	phase      phase
	admittedAt ps.Instant
	// detached: nobody waits for the verdict any more.
	detached bool
	// racing: see racers. trip is about how long its connection needs from a verdict
	// to its next batch; 0: not known.
	racing bool
	trip   time.Duration
	// tied: a copy of this AtEnd batch was tried at Expected, and what became of
	// it decides. Without it, equal records there are another batch's.
	tied bool

	// Of an idempotent client's batch.
	place

	// Of the transmission under way or answered last.
	sentAt       ps.Instant
	used         ps.View // the view it was stamped from
	epoch        ps.ProducerEpoch
	baseSequence ps.Sequence
	// again: an earlier transmission of some of its records was unknown when
	// it was sent, so that only an append now settles it.
	again bool
	// beaten: another batch lies where it was sent, so that it does not, whatever
	// the answer.
	beaten bool
	// open is the memory of its transmission whose fate is unknown.
	open *ps.Unsettled
	// base is the offset answered, while typing.
	base ps.Offset

	// needAfter: a view that was begun before this is too old for it.
	needAfter ps.Instant
	// looking: a view is being read for it. looks counts those that were read
	// in vain, nextLook paces them.
	looking  bool
	resting  bool // it is another's turn, and the view is read at leisure
	looks    int
	nextLook ps.Instant
	// read is the outstanding reading of records it waits for; 0 none.
	read ReadID
}

// isUpstream: a transmission is on its way, or was answered by something that
// may be an append.
func (t *Ticket) isUpstream() bool { return t.phase == sent || t.phase == typing }

// predicted is the view that an acknowledgement would bring.
func (t *Ticket) predicted() ps.View {
	v := t.used
	v.Next, v.HasState, v.Epoch, v.Sequence = t.end(), true, t.epoch, t.baseSequence.Plus(len(t.Records))
	return v
}

// free reports whether the ticket may get any offset.
func (t *Ticket) free() bool { return t.AtEnd && t.Expected == ps.NoOffset }

// concerned reports whether open transmissions of equal records at the ticket's
// offsets are copies of its batch.
func (t *Ticket) concerned() bool { return !t.AtEnd || t.tied }

// overlaps reports whether both tickets have a record in common: then they
// are copies of one batch, however a client cut it.
func (t *Ticket) overlaps(o *Ticket) bool {
	if t.free() || o.free() {
		return false
	}
	for i, r := range t.Records {
		j := t.Expected + ps.Offset(i) - o.Expected
		if j >= 0 && j < ps.Offset(len(o.Records)) && o.Records[j] == r {
			return true
		}
	}
	return false
}

// lookedInVain has the ticket wait before it asks again.
func (t *Ticket) lookedInVain(now ps.Now, atLeast time.Duration) {
	t.looking, t.resting = false, false
	t.looks++
	t.nextLook = now.Instant.Add(max(lookPause(t.looks), atLeast))
}

// failurePause is the least time between readings that fail.
const failurePause = 10 * time.Millisecond

// lookPause paces repeated readings of the view for one ticket: at once, at
// once again (the first may have been begun too early), then ever slower.
func lookPause(looks int) time.Duration {
	switch {
	case looks < 2:
		return 0
	case looks < 9:
		return 2 * time.Millisecond << (looks - 2)
	}
	return 250 * time.Millisecond
}
