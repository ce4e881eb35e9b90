package proxy

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// messageTransactional: an abort marker alone would move the offset on.
const messageTransactional = "the topic is fenced: transactional writes to it are not possible"

// messageTypeUnknown is for topics whose timestamp type the proxy may not read:
// should it be LogAppendTime, equal records could not be told apart.
const messageTypeUnknown = "whether the topic has LogAppendTime, where equal records cannot be told apart, may not be read: give every record an append-id header, or grant the proxy DESCRIBE_CONFIGS on the topic"

// tell is how a client is told of a verdict: the Kafka error code and the
// message, which clients may parse, so that its words are part of the contract
// (docs/semantics.md). The rule's code for refusals, OFFSET_OUT_OF_RANGE if
// nothing else is chosen, is not retried by any client and never made by a
// broker's append path; UNKNOWN_SERVER_ERROR is not retried either, and
// NOT_LEADER_OR_FOLLOWER by all.
func (r *rule) tell(v fence.Verdict, expected ps.Offset) (int16, string) {
	switch v.Kind {
	case fence.Won:
		return 0, ""
	case fence.Taken:
		m := fmt.Sprintf("expected-offset taken: expected=%d next=%d", expected, v.Next)
		if v.LogStart != ps.NoOffset {
			m += fmt.Sprintf(" log_start=%d", v.LogStart)
		}
		return r.code, m
	case fence.NotReached:
		return r.code, fmt.Sprintf("expected-offset not reached: expected=%d next=%d", expected, v.Next)
	case fence.Violation:
		return kerr.UnknownServerError.Code, fmt.Sprintf("appended at %d, expected %d: another writer bypasses the proxy", v.Offset, expected)
	case fence.PredecessorRefused:
		if expected == ps.NoOffset {
			return r.code, messagePredecessor + "end"
		}
		return r.code, messagePredecessor + strconv.FormatInt(int64(expected), 10)
	case fence.BrokerError:
		switch v.Code {
		case kerr.OutOfOrderSequenceNumber.Code:
			return v.Code, messageSequence
		case kerr.InvalidProducerEpoch.Code:
			return v.Code, messageEpoch
		}
		return v.Code, ""
	case fence.Retry:
		return kerr.NotLeaderForPartition.Code, "not appended, send again: " + v.Reason.String()
	case fence.Failed:
		if v.Code == kerr.UnsupportedVersion.Code {
			return kerr.PolicyViolation.Code, "the brokers lack what it takes to fence a topic: Kafka 2.8 or later is needed"
		}
		return kerr.PolicyViolation.Code, "the proxy may not read what it needs to fence this topic: its principal needs DESCRIBE and READ on it"
	}
	if expected == ps.NoOffset {
		return kerr.UnknownServerError.Code, fmt.Sprintf("outcome unknown: expected=end next=%d; read the partition near its end", v.Next)
	}
	return kerr.UnknownServerError.Code, fmt.Sprintf("outcome unknown: expected=%d next=%d; read the partition from %d", expected, v.Next, expected)
}

// messageNoCondition refuses a batch without a condition.
func (r *rule) messageNoCondition() string {
	return "the topic requires an expected-offset header on every record" + renamed("expected-offset", r.options.ExpectedOffsetHeader)
}

// namedAppendID goes behind a text that ends in "append-id header".
func (r *rule) namedAppendID() string { return renamed("append-id", r.options.AppendIDHeader) }

// renamed says how a header is named, if not as usual.
func renamed(usual, name string) string {
	if name == usual {
		return ""
	}
	return ", which is named " + strconv.Quote(name) + " here"
}

// observe counts a verdict, and logs it: refusals for who looks closely,
// violations for who must act.
func (f *fencing) observe(e *entry, at ps.Now, v fence.Verdict) {
	if v.Kind == fence.Violation && v.Replayed {
		e.traced.became(outcomeViolation)
		return // it was counted and logged when it happened
	}
	f.count(e, at, v)
	key := e.lane.key
	if v.Kind == fence.Violation {
		f.events.violation(key, e.ticket.Expected, v.Offset)
		f.logger.Error("batch was appended at another offset than promised: check that only proxies with the same rules and fence id write this topic",
			"topic", key.Topic, "partition", key.Partition, "offset", int64(v.Offset), "expected", int64(e.ticket.Expected))
		return
	}
	if v.Kind != fence.Won && f.logger.Enabled(f.readings.ctx, debugLevel) {
		f.logger.Debug("batch not appended",
			"topic", key.Topic, "partition", key.Partition, "expected", int64(e.ticket.Expected), "verdict", v.String())
	}
}

// count has metrics tell of a verdict, and of the times that it took.
func (f *fencing) count(e *entry, at ps.Now, v fence.Verdict) {
	name, m := outcomeOf(v), f.metrics
	e.traced.became(name)
	m.outcome(name, v, e.lane.counts)
	if v.Kind == fence.Retry && v.Reason == fence.TooManyUnknown {
		m.limit(limitUnknown, "topic", e.lane.key.Topic, "partition", e.lane.key.Partition)
	}
	m.timed(name, at.Instant.Sub(e.x.arrived))
	m.admissions[""].add(e.admittedAt.Sub(e.x.arrived))
	if !e.firstSent {
		m.holds[heldUntilDecided].add(at.Instant.Sub(e.admittedAt))
	}
	if v.Kind == fence.Taken || v.Kind == fence.NotReached || v.Kind == fence.PredecessorRefused {
		m.conflict(e.firstSent)
	}
}

// logRefusal logs a partition that was refused before it reached the fence. Bad
// bytes are a warning: some client or network is broken. All else is the
// client's business, which it was told in the answer.
func (f *fencing) logRefusal(c *conn, p *wire.ProducePartition, code int16, message string) {
	level := debugLevel
	if code == kerr.CorruptMessage.Code || code == kerr.MessageTooLarge.Code {
		level = slog.LevelWarn
	}
	if !f.logger.Enabled(f.readings.ctx, level) {
		return
	}
	f.logger.Log(f.readings.ctx, level, "batch refused", "remote", c.remote(),
		"topic", string(p.Topic), "partition", p.Partition, "code", code, "reason", message)
}
