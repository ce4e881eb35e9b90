package race

import (
	"errors"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Outcome is what a writer was told about one attempt.
type Outcome int

const (
	// Won: acknowledged.
	Won Outcome = iota
	// Refused: the condition did not hold; the record must not be in the log.
	Refused
	// Unknown: the record may be in the log, at the expected offset.
	Unknown
	// NotSent: a leader moved or a connection could not be made; the record
	// must not be in the log.
	NotSent
)

// Attempt is one transmission of a record whose value no other has.
type Attempt struct {
	Writer   int
	Value    string
	Expected appender.Offset
	Outcome  Outcome
	// Answered is the acknowledged offset of a Won attempt.
	Answered appender.Offset
	// Err is what the writer was told when it did not win.
	Err error
}

// classify tells what an error of appender.Client.Append means. fatal is an
// error that repeating will not cure.
func classify(err error) (outcome Outcome, fatal bool) {
	var (
		refused     *appender.RefusedError
		unknown     *appender.UnknownError
		answered    *appender.BrokerError
		leaderless  *appender.NoLeaderError
		unreachable *appender.ConnectError
	)
	switch {
	case err == nil:
		return Won, false
	case errors.As(err, &refused):
		return Refused, false
	case errors.As(err, &unknown):
		return Unknown, false
	case errors.As(err, &answered):
		return NotSent, !answered.MayPass()
	case errors.As(err, &leaderless), errors.As(err, &unreachable):
		return NotSent, false
	}
	return NotSent, true
}
