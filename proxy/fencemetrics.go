package proxy

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.opentelemetry.io/otel/metric"

	"github.com/offsetproxy/offsetproxy/fence"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

const debugLevel = slog.LevelDebug

// Names of what becomes of a batch under a rule.
const (
	outcomeWon        = "won"
	outcomeReplayed   = "replayed"
	outcomeTaken      = "taken"
	outcomeNotReached = "not_reached"
	outcomeUnknown    = "unknown"
	outcomeViolation  = "violation"
	outcomeBroker     = "broker_error"
	outcomeRetry      = "retry"
	outcomeFailed     = "failed"
	outcomeRefused    = "refused" // before the fence: malformed, not served

	outcomePredecessor = "predecessor_refused"
	outcomeSequence    = "out_of_sequence"
)

var outcomeNames = []string{outcomeWon, outcomeReplayed, outcomeTaken, outcomeNotReached, outcomeUnknown,
	outcomeViolation, outcomeBroker, outcomeRetry, outcomeFailed, outcomeRefused,
	outcomePredecessor, outcomeSequence}

// Names of what becomes of a batch under ModeObserve, beside those above.
const (
	observedUnconditional = "unconditional" // no record has a condition
	observedAtEnd         = "at_end"
	observedUnanswered    = "unanswered" // acks=0: nobody knows
	observedLost          = "lost"       // the connection ended before the answer
	observedUnready       = "unready"    // the topic is not known yet
	observedUnnamed       = "unnamed"    // of a topic id whose name is not known
	observedUncounted     = "uncounted"  // of a request with too many partitions
)

var observedNames = []string{outcomeWon, outcomeTaken, outcomeNotReached, outcomeBroker, outcomeRefused,
	observedUnconditional, observedAtEnd, observedUnanswered, observedLost, observedUnready, observedUnnamed, observedUncounted}

// Names of what decides that a batch is refused for its offset.
const (
	decidedByCache = "cache"
	decidedByFence = "fence"
)

var deciderNames = []string{decidedByCache, decidedByFence}

// Names of how the reading of a view ended.
const (
	readingOK          = "ok"
	readingRefused     = "refused"
	readingUnreachable = "unreachable"
)

var readingNames = []string{readingOK, readingRefused, readingUnreachable}

var alarmNames = []string{fence.Misplaced.String(), fence.Bypassed.String(), fence.Undecidable.String()}

// Names of why a batch was refused before it reached the fence.
const (
	refusalRecord      = "invalid_record"
	refusalCorrupt     = "corrupt"
	refusalTooLarge    = "too_large"
	refusalTimestamp   = "timestamp"
	refusalNotServed   = "not_served"
	refusalTransaction = "transactional"
	refusalMayNotWrite = "may_not_write"
	refusalOther       = "other"
)

var refusalNames = []string{refusalRecord, refusalCorrupt, refusalTooLarge, refusalTimestamp,
	refusalNotServed, refusalTransaction, refusalMayNotWrite, refusalOther}

// retryName is what metrics call each reason to give batches back; clients are told it
// in words.
var retryName = func() map[fence.Reason]string {
	names := map[fence.Reason]string{}
	for _, r := range fence.Reasons() {
		names[r] = strings.ReplaceAll(r.String(), " ", "_")
	}
	return names
}()

// retryNames are why batches were given back to be sent again.
var retryNames = slices.Sorted(maps.Values(retryName))

// fenceInstruments is the table of what the fenced side measures.
var fenceInstruments = []instrument{
	{"offsetproxy.appends", "{batch}", "Batches under a rule, by what became of them.", false,
		named("outcome", func(m *metrics) counts { return m.outcomes })},
	{"offsetproxy.appends.retries", "{batch}", "Batches under a rule given back with a retriable error, by reason.", false,
		named("reason", func(m *metrics) counts { return m.retries })},
	{"offsetproxy.appends.refusals", "{batch}", "Batches under a rule refused before the fence, by reason.", false,
		named("reason", func(m *metrics) counts { return m.refusals })},
	{"offsetproxy.appends.conflicts", "{batch}", "Batches refused because of their offset, by what decided it: cache, what the proxy knew or read, so that it was not sent; fence, the broker's sequence check.", false,
		named("decided_by", func(m *metrics) counts { return m.conflicts })},
	{"offsetproxy.appends.in_flight", "{batch}", "Batches under a rule that are held or upstream now.", true,
		single(func(m *metrics) int64 { return m.inFlight.Load() })},
	{"offsetproxy.topic.appends", "{batch}", "Batches under a rule by topic and what became of them, if metrics.per_topic is on; (other) are topics beyond metrics.max_topics.", false,
		func(m *metrics, observe func(int64, metric.MeasurementOption)) { m.topics.read(observe) }},
	{"offsetproxy.observed", "{batch}", "Batches under a rule that only observes, by what the fence would have said.", false,
		named("outcome", func(m *metrics) counts { return m.observed })},
	{"offsetproxy.observed.refusals", "{batch}", "Batches under a rule that only observes, which the fence would have refused, by reason.", false,
		named("reason", func(m *metrics) counts { return m.observedRefusals })},
	{"offsetproxy.topics.unserved", "{topic}", "Topics under a rule that cannot be fenced, so that Produce to them is refused.", true,
		single(func(m *metrics) int64 { return m.unserved.Load() })},
	{"offsetproxy.topics.weak", "{topic}", "Topics under a rule that can lose acknowledged records: min.insync.replicas 1, or unclean leader election.", true,
		single(func(m *metrics) int64 { return m.weak.Load() })},
	{"offsetproxy.brokers", "{broker}", "Brokers, by what they mark duplicates by: nothing, if a broker cannot be probed; refused, if nothing can be fenced on it.", true,
		named("marks_by", func(m *metrics) counts { return m.kinds })},
	{"offsetproxy.views", "{reading}", "Readings of partition views, by how they ended.", false,
		named("result", func(m *metrics) counts { return m.readings })},
	{"offsetproxy.views.evicted", "{view}", "Idle views forgotten because of the limit idle_views.", false,
		single(func(m *metrics) int64 { return m.evicted.Load() })},
	{"offsetproxy.pauses", "{pause}", "Times that a partition was left to other proxies for a moment.", false,
		single(func(m *metrics) int64 { return m.pauses.Load() })},
	{"offsetproxy.appends.attempts", "{transmission}", "Transmissions of batches under a rule to brokers; more than one an append where writers race.", false,
		single(func(m *metrics) int64 { return m.attempts.Load() })},
	{"offsetproxy.appends.lost_races", "{transmission}", "Those of them that the broker refused because somebody else was faster.", false,
		single(func(m *metrics) int64 { return m.lostRaces.Load() })},
	{"offsetproxy.rules.settling", "{change}", "1 while requests that were judged by earlier rules are not answered, so that topics which have changed sides wait for them; else 0.", true,
		single(func(m *metrics) int64 {
			if rules := m.rules.Load(); rules == nil || rules.inForce().settled() {
				return 0
			}
			return 1
		})},
	{"offsetproxy.producers", "{producer}", "Producer ids of idempotent clients whose last batches in a partition are remembered, counted in each partition.", true,
		single(func(m *metrics) int64 { return m.producers.Load() })},
	{"offsetproxy.producers.evicted", "{producer}", "Such producer ids forgotten before their time because of the limits max_producers and idle_producers, or with an idle view.", false,
		single(func(m *metrics) int64 { return m.producersEvicted.Load() })},
	{"offsetproxy.alarms", "{alarm}", "Signs that a condition of the fence does not hold, by kind. Any needs a person.", false,
		named("alarm", func(m *metrics) counts { return m.alarms })},
}

// outcomeOf names what became of a batch.
func outcomeOf(v fence.Verdict) string {
	switch v.Kind {
	case fence.Won:
		if v.Replayed {
			return outcomeReplayed
		}
		return outcomeWon
	case fence.Taken:
		return outcomeTaken
	case fence.NotReached:
		return outcomeNotReached
	case fence.Violation:
		return outcomeViolation
	case fence.BrokerError:
		if v.Code == kerr.OutOfOrderSequenceNumber.Code || v.Code == kerr.InvalidProducerEpoch.Code {
			return outcomeSequence
		}
		return outcomeBroker
	case fence.PredecessorRefused:
		return outcomePredecessor
	case fence.Retry:
		return outcomeRetry
	case fence.Failed:
		return outcomeFailed
	}
	return outcomeUnknown
}

// outcome counts a verdict on a batch of a topic.
func (m *metrics) outcome(name string, v fence.Verdict, topic counts) {
	if v.Kind == fence.Retry {
		m.retries[retryName[v.Reason]].Add(1)
	}
	m.outcomes[name].Add(1)
	m.inTopic(topic, name)
}

// conflict counts a batch that was refused for its offset; sent: after it was.
func (m *metrics) conflict(sent bool) {
	if sent {
		m.conflicts[decidedByFence].Add(1)
	} else {
		m.conflicts[decidedByCache].Add(1)
	}
}

// refused counts a partition of a topic that never reached the fence; denied: its
// client may not write to it.
func (m *metrics) refused(topic []byte, code int16, denied bool) {
	m.outcomes[outcomeRefused].Add(1)
	m.topics.refused(topic)
	name := refusalName(code)
	if denied && code == kerr.TopicAuthorizationFailed.Code {
		name = refusalMayNotWrite
	}
	if name == refusalTooLarge {
		m.limit(limitUnpacked)
	}
	m.refusals[name].Add(1)
}

// wouldRefuse counts one that a rule which only observes lets pass.
func (m *metrics) wouldRefuse(code int16) {
	m.observed[outcomeRefused].Add(1)
	m.observedRefusals[refusalName(code)].Add(1)
}

func refusalName(code int16) string {
	switch code {
	case kerr.InvalidRecord.Code:
		return refusalRecord
	case kerr.CorruptMessage.Code, kerr.UnsupportedForMessageFormat.Code:
		return refusalCorrupt
	case kerr.MessageTooLarge.Code:
		return refusalTooLarge
	case kerr.InvalidTimestamp.Code:
		return refusalTimestamp
	case kerr.PolicyViolation.Code:
		return refusalNotServed
	case kerr.TopicAuthorizationFailed.Code:
		return refusalTransaction
	}
	return refusalOther
}

func (m *metrics) viewRead(took time.Duration, err error) {
	var refused *prober.BrokerError
	result := readingUnreachable
	switch {
	case err == nil:
		result = readingOK
	case errors.As(err, &refused):
		result = readingRefused
	}
	m.readings[result].Add(1)
	m.viewTimes[result].add(took)
}

// viewEvicted counts the state of an idle partition that was forgotten, with so
// many virtual producer states.
func (m *metrics) viewEvicted(producers int) {
	m.evicted.Add(1)
	m.producers.Add(-int64(producers))
	m.producersEvicted.Add(int64(producers))
	m.limit(limitIdleViews)
}

// readingEnded counts the limits that a reading has met; late: the time for it was over.
func (m *metrics) readingEnded(at readingKey, err error, late bool) {
	if late {
		m.limit(limitReading, "node", at.node, "err", err)
	}
	if errors.Is(err, prober.ErrAnswerTooLarge) {
		m.limit(limitControl, "node", at.node, "err", err)
	}
}

func (m *metrics) alarm(a fence.Alarm) { m.alarms[a.String()].Add(1) }
