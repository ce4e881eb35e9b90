package appender

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrClosed is returned by a Client that was closed.
var ErrClosed = errors.New("appender: the client is closed")

// ErrMalformed means that an answer could not be understood as Kafka protocol.
var ErrMalformed = errors.New("answer is not the Kafka protocol")

// ErrHTTP is wrapped beside ErrMalformed where an HTTP server answers.
var ErrHTTP = errors.New("it is HTTP")

// ErrTLS is wrapped beside ErrMalformed where a TLS server answers.
var ErrTLS = errors.New("it is TLS")

// Code is a Kafka error code as it stands in an answer.
type Code int16

// CodePolicyViolation is what a proxy answers for a topic that it does not
// serve.
const CodePolicyViolation Code = 44

const (
	codeUnknownServerError   Code = -1
	codeOffsetOutOfRange     Code = 1
	codeUnknownTopic         Code = 3
	codeLeaderNotAvailable   Code = 5
	codeNotLeader            Code = 6
	codeRequestTimedOut      Code = 7
	codeNotEnoughReplicas    Code = 19
	codeAppendedBelowMinISR  Code = 20
	codeKafkaStorageError    Code = 56
	codeInvalidRecord        Code = 87
	codeUnsupportedForFormat Code = 43
)

// String gives the protocol's name and the number: "OFFSET_OUT_OF_RANGE (1)".
func (c Code) String() string {
	name := "NONE"
	if c != 0 {
		if err := kerr.TypedErrorForCode(int16(c)); err != nil {
			name = err.Message
		}
	}
	return fmt.Sprintf("%s (%d)", name, int16(c))
}

// certain tells whether an error answer of this code with base offset −1 says
// that the transmission it answers appended nothing. Codes not listed leave it
// open: a storage error or a timeout may come after the append.
func (c Code) certain() bool {
	switch c {
	case codeOffsetOutOfRange, 2, codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, 10, 17, 18,
		codeNotEnoughReplicas, 21, 29, 31, 32, 35, 42, codeUnsupportedForFormat, CodePolicyViolation, 45, 47, 53, 74, 76,
		codeInvalidRecord, 89, 100:
		return true
	}
	return false
}

// passing tells whether a certain refusal may go away by asking again.
func (c Code) passing() bool {
	switch c {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, codeNotEnoughReplicas:
		return true
	}
	return false
}

// Reason is why a conditional append was refused.
type Reason string

const (
	// Taken: another record has the expected offset.
	Taken Reason = "taken"
	// NotReached: the partition ends before the expected offset. A weak
	// statement, see docs/semantics.md.
	NotReached Reason = "not reached"
	// PredecessorRefused: an earlier batch of the same producer was refused.
	PredecessorRefused Reason = "predecessor refused"
)

// RefusedError is a condition that did not hold: nothing was appended.
type RefusedError struct {
	Reason   Reason
	Code     Code
	Expected Offset
	// Next is the partition's next offset as the proxy knew it, a lower
	// bound; NoOffset when the answer does not tell.
	Next Offset
	// Message is the answer's error_message.
	Message string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused with %v: %s", e.Code, e.Message)
}

// UnknownError means that the record may or may not be in the log, now or
// later. Only reading the partition from Expected tells.
type UnknownError struct {
	Expected Offset
	// Code is the answer's, 0 when there was no answer.
	Code Code
	// Message is the answer's error_message, empty when there was no answer.
	Message string
	// Cause is what happened to the connection, nil when there was an answer.
	Cause error
}

// Error implements error.
func (e *UnknownError) Error() string {
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("outcome unknown: %v", e.Cause)
	case e.Message != "":
		return fmt.Sprintf("answered with %v: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("outcome unknown: answered with %v", e.Code)
}

// Unwrap gives what happened to the connection.
func (e *UnknownError) Unwrap() error { return e.Cause }

// BrokerError is an error answer that certainly appended nothing and is not
// about the condition.
type BrokerError struct {
	Code    Code
	Message string
}

// Error implements error.
func (e *BrokerError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("answered with %v", e.Code)
	}
	return fmt.Sprintf("answered with %v: %s", e.Code, e.Message)
}

// MayPass tells whether repeating the append may help: a leader that moved or
// too few replicas.
func (e *BrokerError) MayPass() bool { return e.Code.passing() }

// ConnectError means that no connection could be made; nothing was sent.
type ConnectError struct {
	// Addrs are the addresses tried.
	Addrs []string
	// Bootstrap tells that these are all of the bootstrap addresses.
	Bootstrap bool
	// Err is what the last of them said.
	Err error
}

// Error implements error.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("cannot connect to %s: %v", strings.Join(e.Addrs, ", "), e.Err)
}

// Unwrap gives the network error.
func (e *ConnectError) Unwrap() error { return e.Err }

// NoTopicError means that the topic, or the partition in it, does not exist.
type NoTopicError struct {
	Topic     string
	Partition Partition
	// Partitions is how many the topic has; 0 when there is no such topic.
	Partitions int
}

// Error implements error.
func (e *NoTopicError) Error() string {
	if e.Partitions == 0 {
		return fmt.Sprintf("there is no topic %q", e.Topic)
	}
	return fmt.Sprintf("topic %q has no partition %d, only 0 to %d", e.Topic, e.Partition, e.Partitions-1)
}

// NoLeaderError means that a partition has no leader at this moment; nothing
// was sent.
type NoLeaderError struct {
	Topic     string
	Partition Partition
	Code      Code
}

// Error implements error.
func (e *NoLeaderError) Error() string {
	return fmt.Sprintf("topic %q partition %d has no leader now: %v", e.Topic, e.Partition, e.Code)
}

// Verdict turns the answer to one transmission into an outcome. base is the
// answer's base offset; nil means that the record was appended there. Errors:
// *RefusedError, *BrokerError and *UnknownError, as Client.Append gives them.
func Verdict(expected Offset, code Code, base Offset, message string) error {
	if code == 0 {
		return nil
	}
	if code == codeOffsetOutOfRange || code == codeInvalidRecord || code == CodePolicyViolation {
		if r, ok := parseRefusal(message); ok {
			r.Code = code
			return r
		}
	}
	if base == NoOffset && code.certain() {
		return &BrokerError{Code: code, Message: message}
	}
	return &UnknownError{Expected: expected, Code: code, Message: message}
}

// parseRefusal reads a refusal's message, whose form is part of the proxy's
// protocol: "<reason>: expected=<E> next=<N>", other pairs ignored.
func parseRefusal(message string) (*RefusedError, bool) {
	head, pairs, ok := strings.Cut(message, ": ")
	if !ok {
		return nil, false
	}
	r := &RefusedError{Next: NoOffset, Message: message}
	switch head {
	case "expected-offset taken":
		r.Reason = Taken
	case "expected-offset not reached":
		r.Reason = NotReached
	case "predecessor refused":
		r.Reason = PredecessorRefused
	default:
		return nil, false
	}
	seen := false
	for _, pair := range strings.FieldsFunc(pairs, func(r rune) bool { return r == ' ' || r == ',' }) {
		name, text, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "expected":
			r.Expected, seen = Offset(n), true
		case "next":
			r.Next = Offset(n)
		}
	}
	return r, seen
}
