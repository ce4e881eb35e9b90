package verify

import "fmt"

// Kind is a way in which the log and what writers were told disagree.
type Kind string

// The kinds; Advice says what to do about each.
const (
	// SuccessMissing: acknowledged, and not in the log.
	SuccessMissing Kind = "success missing"
	// SuccessMisplaced: acknowledged at another offset than was expected, or
	// lying at another than was acknowledged.
	SuccessMisplaced Kind = "success misplaced"
	// TakenInLog: refused as taken, and in the log below the end told.
	TakenInLog Kind = "taken, yet in the log"
	// RefusedInLog: refused otherwise, no other copy of it about, and in the log.
	RefusedInLog Kind = "refused, yet in the log"
	// NotSentInLog: never sent, and in the log.
	NotSentInLog Kind = "not sent, yet in the log"
	// UnknownMisplaced: of unknown fate, and at another offset than was expected.
	UnknownMisplaced Kind = "unknown misplaced"
	// Twice: in the log more than once.
	Twice Kind = "twice in the log"
	// Torn: a batch that is in the log in part.
	Torn Kind = "batch torn"
	// Stranger: a record that nobody wrote.
	Stranger Kind = "stranger"
	// Altered: a record whose key or headers are not what its writer sent.
	Altered Kind = "record altered"
	// Hole: an offset without a record.
	Hole Kind = "hole"
	// BeyondEnd: an end was told that the log has not reached.
	BeyondEnd Kind = "end told that is not"
	// Nonsense: refused as taken with an end that does not reach beyond the expected
	// offset, or as not reached with one that reaches it.
	Nonsense Kind = "refusal against its own end"
	// Order: the history is not linearizable.
	Order Kind = "not linearizable"
)

// advice is what to do about each kind.
var advice = map[Kind]string{
	SuccessMissing: "An acknowledged record is lost, or it lies elsewhere. Look for unclean leader elections, min.insync.replicas below 2, " +
		"and records that were deleted; see the conditions in ARCHITECTURE.md.",
	SuccessMisplaced: "Somebody else appended in between. See that every proxy has the same rule and fence id for the topic " +
		"(offsetproxy check-config) and none runs with --unsafe, and that no client goes around the proxies.",
	TakenInLog: "A writer was told that another has its place, and it has it itself: it will write the same again elsewhere. " +
		"Keep the history and the proxies' logs, and report it.",
	RefusedInLog: "A writer was told that nothing was appended, and it was. Keep the history and the proxies' logs, and report it.",
	NotSentInLog: "Something between this program and the brokers made up a request. Look for what is in the way.",
	UnknownMisplaced: "Somebody else appended in between. See that every proxy has the same rule and fence id for the topic " +
		"(offsetproxy check-config) and none runs with --unsafe, and that no client goes around the proxies.",
	Twice: "The same record was appended twice. See that every proxy has the same rule and fence id for the topic, and that the " +
		"brokers' producer.id.expiration.ms is what the proxies take it for.",
	Torn:      "Brokers append a batch whole. Look for deletion or compaction of the topic.",
	Stranger:  "Somebody else wrote to the topic during the run: an earlier run of verify, or a client. Use a topic of its own.",
	Altered:   "Something between this program and the brokers changed a record. Look for what is in the way.",
	Hole:      "Transactions, deletion or compaction left it. Use a topic of its own, with cleanup.policy=delete and enough retention.",
	BeyondEnd: "A refusal or a read told an end that the log does not have: a leader lost what it had committed. Look for unclean leader elections.",
	Nonsense:  "A refusal says what its own numbers deny. Keep the history and the proxies' logs, and report it.",
	Order:     "What was told cannot be true in any order that the times allow. Keep the history and the proxies' logs, and report it.",
}

// Advice says what to do about a kind of violation.
func (k Kind) Advice() string { return advice[k] }

// Violation is one disagreement.
type Violation struct {
	// Kind is what is wrong.
	Kind Kind `json:"kind"`
	// Partition is where.
	Partition Partition `json:"partition"`
	// Offset is where in the partition, NoOffset if nowhere.
	Offset Offset `json:"offset"`
	// Text tells it to a person.
	Text string `json:"text"`
}

// String is the text.
func (v Violation) String() string { return v.Text }

// told says in words what an append's writer was told by a try.
func (h *History) told(t *Try) string {
	if t == nil {
		return "nothing, since it was not sent"
	}
	what := t.Outcome.String()
	switch t.Outcome {
	case OK:
		what = fmt.Sprintf("appended at %d", t.Offset)
	case Taken:
		what = fmt.Sprintf("taken, the log ends at %d", t.Next)
	case NotReached:
		what = fmt.Sprintf("not reached, the log ends at %d", t.Next)
	case Refused:
		what = fmt.Sprintf("refused with code %d", t.Code)
	case Unknown:
		what = "nothing certain"
		if t.Code != 0 {
			what = fmt.Sprintf("outcome unknown, code %d", t.Code)
		}
	}
	return fmt.Sprintf("%q (through %s, sent at %v, answered at %v)", what, h.Proxies[t.Proxy], t.Start, t.End)
}

// describe names a record in words.
func (h *History) describe(id RecordID) string {
	op := h.op(id.Append)
	expected := "the end"
	if op.Expected != NoOffset {
		expected = fmt.Sprintf("offset %d", op.Expected+Offset(id.Place))
	}
	return fmt.Sprintf("record %d of %d of append %v (%v), which expected %s", id.Place+1, op.Records, id.Append, op.Habit, expected)
}
