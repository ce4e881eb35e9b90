package verify

import (
	"errors"
	"slices"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Outcome is what is known of an append, or of one transmission of it.
type Outcome uint8

// The outcomes; docs/semantics.md says what each promises.
const (
	// NotSent: no byte of it left.
	NotSent Outcome = iota
	// OK: it is in the log.
	OK
	// Taken: another record has the expected offset.
	Taken
	// NotReached: the log does not reach to the expected offset.
	NotReached
	// Refused: for another reason nothing was appended by this transmission.
	Refused
	// Unknown: it may be in the log, or come there, or not.
	Unknown
)

var outcomeNames = []string{"not_sent", "ok", "taken", "not_reached", "refused", "unknown"}

// String gives the name that the history has.
func (o Outcome) String() string { return outcomeNames[o] }

// parseOutcome is the reverse of String.
func parseOutcome(name string) (Outcome, bool) {
	i := slices.Index(outcomeNames, name)
	return Outcome(max(i, 0)), i >= 0
}

// said understands the answer to a transmission.
func (t *Try) said(expected Offset, code int16, base Offset, message string) {
	t.Code = code
	err := appender.Verdict(appender.Offset(expected), appender.Code(code), appender.Offset(base), message)
	var refused *appender.RefusedError
	var certain *appender.BrokerError
	switch {
	case err == nil:
		t.Outcome, t.Offset = OK, base
	case errors.As(err, &refused) && refused.Reason == appender.Taken:
		t.Outcome, t.Next = Taken, Offset(refused.Next)
	case errors.As(err, &refused) && refused.Reason == appender.NotReached:
		t.Outcome, t.Next = NotReached, Offset(refused.Next)
	case errors.As(err, &refused), errors.As(err, &certain):
		t.Outcome = Refused
	default:
		t.Outcome = Unknown
	}
}
