package proxy

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/wire"
)

var (
	// ErrConfig is wrapped by every error of New about its configuration.
	ErrConfig = errors.New("proxy: configuration")

	// errDraining ends connections once Run's context has ended.
	errDraining = errors.New("draining")
	// errAborted is the cause when a connection is cut without waiting.
	errAborted = errors.New("connection aborted")
	// errClientClosed says that the client has closed its side.
	errClientClosed = errors.New("client closed the connection")
	// errUpstreamLost says that the upstream connection ended or broke the
	// protocol. Whether the broker acted on a request that was on its way is
	// not known, unless errNotSent is wrapped as well.
	errUpstreamLost = errors.New("upstream connection lost")
	// errNotSent says that surely no byte of the request was written upstream.
	errNotSent = errors.New("request was not sent")
	// errNoBroker says that no broker could be dialled.
	errNoBroker = errors.New("no broker could be reached")
	// errNoPort says that none of the brokers found has a port here: each falls
	// outside the ports there are, or its port cannot be listened on.
	errNoPort = errors.New("no broker has a port here")
	// errAnswer says that the broker's answer cannot be understood.
	errAnswer = errors.New("unexpected answer from the broker")
	// errOutcomeUnknown ends the connection of a client one of whose batches, sent
	// without a condition, may or may not be in the log.
	errOutcomeUnknown = errors.New("what became of an unconditional batch is unknown")
	// errAnswerTooLarge says that an answer that has to be read whole is
	// above Config.MaxRewrittenBytes.
	errAnswerTooLarge = errors.New("answer is above the limit for rewriting")
	// errUnsupportedVersion says that a client uses a version above what
	// ApiVersions told it, of an API that the proxy has to read.
	errUnsupportedVersion = errors.New("unsupported api version")
	// errOldHandshake says that a client uses SaslHandshake v0, after which
	// bare tokens follow that cannot be told from requests.
	errOldHandshake = errors.New("SaslHandshake v0 is not supported")
	// errRefusedWithoutAnswer ends the connection of a client that asked for no
	// answers (acks=0), one of whose batches was refused: as brokers do.
	errRefusedWithoutAnswer = errors.New("a batch sent with acks=0 was refused")
	// errOutOfTurn ends the connection of an idempotent client one of whose
	// batches was given back before the fence saw it.
	errOutOfTurn = errors.New("what is pipelined behind a batch that was given back must come after it")
	// errRulesChanged ends the connection of an idempotent client that has sent on it
	// before a topic came under the fence or left it.
	errRulesChanged = errors.New("a rule has begun or ended on a topic that the client writes to")
	// errNoHighWatermark says that a leader does not know its high watermark.
	errNoHighWatermark = errors.New("the leader does not know its high watermark")
	// errNoSplice says that bytes cannot be moved within the kernel here.
	errNoSplice = errors.New("splicing is not possible")
	// errLateRequest ends a connection whose request does not come while others wait
	// for its memory.
	errLateRequest = errors.New("a request took too long to arrive")
	// errLateAnswer is the same of an answer and its broker.
	errLateAnswer = errors.New("an answer of the broker took too long to arrive")
	// errAddressFull ends a connection whose client's address has as many as it may.
	errAddressFull = errors.New("too many connections of one address")
	// errLoginLost says that the proxy could not log in anew for a client.
	errLoginLost = errors.New("the proxy could not log in anew")
	// errIdle ends a connection on which nothing moved for IdleTimeout.
	errIdle = errors.New("idle for too long")
)

// malformedError is input that no Kafka client sends.
type malformedError struct {
	// name is the reason for metrics: few values, snake_case.
	name string
	// reason is for the operator who reads the log.
	reason string
}

func (e *malformedError) Error() string { return e.reason }

func malformed(name, format string, args ...any) error {
	return &malformedError{name: name, reason: fmt.Sprintf(format, args...)}
}

// kafkaCode gives the Kafka error code that tells a client of err. It is the
// only place where errors become codes. UNKNOWN_SERVER_ERROR is not retried
// by clients, so it is right for whatever has no better code.
func kafkaCode(err error) int16 {
	var record *wire.RecordError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &record), errors.Is(err, wire.ErrControlBatch):
		return kerr.InvalidRecord.Code
	case errors.Is(err, wire.ErrTooLarge):
		return kerr.MessageTooLarge.Code
	case errors.Is(err, wire.ErrOldFormat):
		return kerr.UnsupportedForMessageFormat.Code
	case errors.Is(err, wire.ErrBadCRC), errors.Is(err, wire.ErrCorrupt), errors.Is(err, wire.ErrShort):
		return kerr.CorruptMessage.Code
	case errors.Is(err, errUnsupportedVersion), errors.Is(err, errOldHandshake):
		return kerr.UnsupportedVersion.Code
	case errors.Is(err, errNoLoginHere), errors.Is(err, errLoginState):
		return kerr.IllegalSaslState.Code
	case errors.Is(err, errMechanism):
		return kerr.UnsupportedSaslMechanism.Code
	case errors.Is(err, errRefused):
		return kerr.SaslAuthenticationFailed.Code
	case errors.Is(err, errNotSent), errors.Is(err, errNoBroker):
		return kerr.NotLeaderForPartition.Code
	}
	return kerr.UnknownServerError.Code
}
