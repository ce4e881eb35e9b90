package proxy

import (
	"errors"
	"log/slog"

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
)

var outcomeNames = []string{outcomeWon, outcomeReplayed, outcomeTaken, outcomeNotReached, outcomeUnknown,
	outcomeViolation, outcomeBroker, outcomeRetry, outcomeFailed, outcomeRefused}

// Names of how the reading of a view ended.
const (
	readingOK          = "ok"
	readingRefused     = "refused"
	readingUnreachable = "unreachable"
)

var readingNames = []string{readingOK, readingRefused, readingUnreachable}

var alarmNames = []string{fence.Misplaced.String(), fence.Bypassed.String(), fence.Undecidable.String()}

// fenceInstruments is the table of what the fenced side measures.
var fenceInstruments = []instrument{
	{"offsetproxy.appends", "{batch}", "Batches under a rule, by what became of them.", false,
		named("outcome", func(m *metrics) counts { return m.outcomes })},
	{"offsetproxy.views", "{reading}", "Readings of partition views, by how they ended.", false,
		named("result", func(m *metrics) counts { return m.readings })},
	{"offsetproxy.views.evicted", "{view}", "Idle views forgotten because of the limit idle_views.", false,
		single(func(m *metrics) int64 { return m.evicted.Load() })},
	{"offsetproxy.alarms", "{alarm}", "Signs that a condition of the fence does not hold, by kind. Any needs a person.", false,
		named("alarm", func(m *metrics) counts { return m.alarms })},
}

func (m *metrics) outcome(v fence.Verdict) {
	name := outcomeUnknown
	switch v.Kind {
	case fence.Won:
		name = outcomeWon
		if v.Replayed {
			name = outcomeReplayed
		}
	case fence.Taken:
		name = outcomeTaken
	case fence.NotReached:
		name = outcomeNotReached
	case fence.Violation:
		name = outcomeViolation
	case fence.BrokerError:
		name = outcomeBroker
	case fence.Retry:
		name = outcomeRetry
	case fence.Failed:
		name = outcomeFailed
	}
	m.outcomes[name].Add(1)
}

func (m *metrics) refusedUnfenced() { m.outcomes[outcomeRefused].Add(1) }

func (m *metrics) viewRead(err error) {
	var refused *prober.BrokerError
	switch {
	case err == nil:
		m.readings[readingOK].Add(1)
	case errors.As(err, &refused):
		m.readings[readingRefused].Add(1)
	default:
		m.readings[readingUnreachable].Add(1)
	}
}

func (m *metrics) viewEvicted() { m.evicted.Add(1) }

func (m *metrics) alarm(a fence.Alarm) { m.alarms[a.String()].Add(1) }
