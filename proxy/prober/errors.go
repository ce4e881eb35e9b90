package prober

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed answers every call made after the context of [Pool.Run] has
	// ended, and those that were waiting then.
	ErrClosed = errors.New("prober is closed")
	// ErrUnreachable is wrapped by errors of dialling, writing, reading,
	// timing out and of answers that do not parse: the broker said nothing
	// that can be used. The connection is closed.
	ErrUnreachable = errors.New("broker unreachable")
	// ErrAnswerTooLarge is wrapped, besides ErrUnreachable, by the error of the
	// call whose answer exceeded Config.MaxFrame. Asking again brings the same.
	ErrAnswerTooLarge = errors.New("answer too large")
	// ErrBusy answers a call that would exceed Config.MaxWaiting on its
	// broker's connection.
	ErrBusy = errors.New("too many calls wait for the broker")
)

// errMalformed is the cause, below ErrUnreachable, of an answer that breaks
// the protocol.
var errMalformed = errors.New("malformed answer")

// errFrameTooLarge is the cause, below errMalformed, of a frame above MaxFrame.
var errFrameTooLarge = fmt.Errorf("%w: frame too large", errMalformed)

// errExpired is the cause, below ErrUnreachable, of calls that outlast their
// connection's UseUntil by much.
var errExpired = errors.New("the connection's login ends")

// Broker error codes that this package tells apart.
const (
	codeOffsetOutOfRange   int16 = 1
	codeUnknownTopic       int16 = 3
	codeLeaderNotAvailable int16 = 5
	codeNotLeader          int16 = 6
	codeFencedLeaderEpoch  int16 = 74
	codeUnknownLeaderEpoch int16 = 75
	codeOffsetNotAvailable int16 = 78
	codeOutOfOrderSequence int16 = 45
	codeDuplicateSequence  int16 = 46
	codeUnknownProducerID  int16 = 59
	codeUnknownTopicID     int16 = 100
	codeNone               int16 = 0
)

// BrokerError is a broker's answer with an error code. The connection stays
// open.
type BrokerError struct {
	// Code is Kafka's error code.
	Code int16
	// Op names the API that answered, as in "Fetch".
	Op string
	// Message is what the broker says besides; may be empty.
	Message string
}

// Error implements error.
func (e *BrokerError) Error() string {
	if e.Message != "" {
		return fmt.Sprintf("%s answered with error code %d (%s)", e.Op, e.Code, e.Message)
	}
	return fmt.Sprintf("%s answered with error code %d", e.Op, e.Code)
}

// UnsupportedError says that a broker lacks an API, or the versions of it,
// that a call needs. It lasts until the broker is upgraded.
type UnsupportedError struct {
	// Op names the API, as in "DescribeProducers".
	Op string
	// NeedMin and NeedMax are the versions that would do, inclusive.
	NeedMin, NeedMax int16
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("broker supports none of the versions %d to %d of %s", e.NeedMin, e.NeedMax, e.Op)
}
