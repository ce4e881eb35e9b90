package proxy

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Names of the limits that metrics count hits of.
const (
	limitConnections = "max_connections"
	limitFrame       = "max_frame_bytes"
	limitPending     = "max_pending_requests"
	limitHeld        = "max_held_bytes"
	limitRewritten   = "max_rewritten_bytes"
	limitPartitions  = "max_produce_partitions"
	limitUnpacked    = "max_decompressed_bytes"

	limitAddPartitions = "max_add_partitions_bytes"
	limitTopics        = "max_topics"
	limitUnknown       = "max_unknown"
	limitReadings      = "max_readings"
	limitReadBack      = "max_read_back_bytes"
	limitAnswer        = "answer_max"
	limitOldReads      = "old_reads_per_second"
	limitRuleTopics    = "max_rule_topics"
	limitReading       = "reading_timeout"
	limitControl       = "max_control_answer_bytes"
	limitLookup        = "lookup_timeout"
	limitIdleViews     = "idle_views"
	limitProducers     = "max_producers"

	limitAddress  = "max_connections_per_address"
	limitBuffered = "max_buffered_bytes"
	limitArrival  = "arrival_timeout"
	limitWrite    = "write_timeout"
	limitIdle     = "idle_timeout"

	limitMetricTopics = "metrics.max_topics"
)

// What memory for frames is used for, as metrics name it.
const (
	bufferedRequests = "requests"
	bufferedAnswers  = "answers"
)

var (
	limitNames = []string{limitConnections, limitFrame, limitPending, limitHeld, limitRewritten,
		limitPartitions, limitUnpacked, limitRuleTopics, limitAddPartitions, limitTopics, limitUnknown,
		limitReadings, limitReading, limitReadBack, limitControl, limitLookup, limitAnswer, limitOldReads, limitIdleViews, limitProducers,
		limitAddress, limitBuffered, limitArrival, limitWrite, limitIdle, limitMetricTopics}
	reasonNames = []string{reasonLength, reasonTooLarge, reasonTLS, reasonHandshakeTLS, reasonServerName, reasonHTTP, reasonHeader,
		reasonProduce, reasonMetadata, reasonVersion, reasonTruncated, reasonHandshake, reasonProxyHeader, reasonProxyFrom, reasonLogin}
)

// unknownKey is where requests with api keys we do not know are counted.
const unknownKey = kmsg.MaxKey + 1

// metrics counts with atomics, which meters read when asked, so that counting
// costs a request next to nothing. All methods may be called concurrently.
type metrics struct {
	open        atomic.Int64
	accepted    atomic.Int64
	requests    [unknownKey + 1]atomic.Int64
	rewritten   [unknownKey + 1]atomic.Int64
	denied      [unknownKey + 1]atomic.Int64
	bytesIn     atomic.Int64
	bytesOut    atomic.Int64
	unmapped    atomic.Int64
	dialErrors  atomic.Int64
	buffered    counts // bytes of memory, now
	limits      *limitHits
	malformedBy counts
	logins      loginCounts // of clients, at the proxy itself
	// upstreamLogins are the proxy's own, those for clients among them.
	upstreamLogins loginCounts

	// Of the fenced side.
	outcomes counts
	readings counts
	alarms   counts
	retries  counts
	refusals counts
	kinds    counts // of brokers, now
	observed counts
	// observedRefusals are the refusals among observed.
	observedRefusals counts
	evicted          atomic.Int64
	producers        atomic.Int64 // virtual producer states, now
	producersEvicted atomic.Int64
	pauses           atomic.Int64
	attempts         atomic.Int64
	lostRaces        atomic.Int64
	unserved         atomic.Int64
	weak             atomic.Int64
	conflicts        counts
	inFlight         atomic.Int64 // batches admitted and not decided, now
	topics           *topicCounts
	durations        map[string]*timing // by timedOutcomes
	admissions       map[string]*timing // one, by ""
	holds            map[string]*timing
	viewTimes        map[string]*timing // by readingNames
	rules            atomic.Pointer[currentRules]

	// proxy tells what is only looked at when somebody asks; nil: not yet.
	proxy atomic.Pointer[Proxy]
}

// counts is a fixed set of named counters, made once and then only read.
type counts map[string]*atomic.Int64

func newCounts(names []string) counts {
	c := counts{}
	for _, name := range names {
		c[name] = new(atomic.Int64)
	}
	return c
}

func (m *metrics) received(n int)          { m.bytesIn.Add(int64(n)) }
func (m *metrics) answered(n int)          { m.bytesOut.Add(int64(n)) }
func (m *metrics) request(key int16)       { m.requests[keyIndex(key)].Add(1) }
func (m *metrics) rewrote(key int16)       { m.rewritten[keyIndex(key)].Add(1) }
func (m *metrics) malformed(reason string) { m.malformedBy[reason].Add(1) }

// limit counts that a limit has made a connection wait or end; see limitHits.hit.
func (m *metrics) limit(name string, attrs ...any) { m.limits.hit(name, attrs...) }

func keyIndex(key int16) int {
	if key < 0 || key > kmsg.MaxKey {
		return unknownKey
	}
	return int(key)
}

// instrument is a row of the table of metrics.
type instrument struct {
	name, unit, description string
	gauge                   bool
	// read calls observe once for each series.
	read func(m *metrics, observe func(value int64, attributes metric.MeasurementOption))
}

var noAttributes = metric.WithAttributeSet(*attribute.EmptySet())

// instruments is the table of what the proxy measures.
var instruments = []instrument{
	{"offsetproxy.connections.open", "{connection}", "Client connections that are open now.", true,
		single(func(m *metrics) int64 { return m.open.Load() })},
	{"offsetproxy.connections.accepted", "{connection}", "Client connections accepted.", false,
		single(func(m *metrics) int64 { return m.accepted.Load() })},
	{"offsetproxy.requests", "{request}", "Requests received, by api.", false,
		byKey(func(m *metrics) *[unknownKey + 1]atomic.Int64 { return &m.requests })},
	{"offsetproxy.requests.denied", "{request}", "Requests that may not be made at their listener, by api.", false,
		byKey(func(m *metrics) *[unknownKey + 1]atomic.Int64 { return &m.denied })},
	{"offsetproxy.answers.rewritten", "{answer}", "Answers in which versions or broker addresses were replaced, by api.", false,
		byKey(func(m *metrics) *[unknownKey + 1]atomic.Int64 { return &m.rewritten })},
	{"offsetproxy.received", "By", "Bytes of requests received from clients.", false,
		single(func(m *metrics) int64 { return m.bytesIn.Load() })},
	{"offsetproxy.sent", "By", "Bytes of answers written to clients.", false,
		single(func(m *metrics) int64 { return m.bytesOut.Load() })},
	{"offsetproxy.memory.buffered", "By", "Memory for frames that connections have taken out of max_buffered now, by what they are.", true,
		named("frames", func(m *metrics) counts { return m.buffered })},
	{"offsetproxy.limits.hit", "{hit}", "Times that a configured limit made a connection wait or end, by limit.", false,
		named("limit", func(m *metrics) counts { return m.limits.counted })},
	{"offsetproxy.input.malformed", "{connection}", "Connections ended because of their input, by reason.", false,
		named("reason", func(m *metrics) counts { return m.malformedBy })},
	{"offsetproxy.brokers.unmapped", "{answer}", "Brokers left out of answers since they are hidden.", false,
		single(func(m *metrics) int64 { return m.unmapped.Load() })},
	{"offsetproxy.logins", "{login}", "Logins of clients at the proxy itself, by listener, mechanism and result.", false,
		byLogin(func(m *metrics) *loginCounts { return &m.logins })},
	{"offsetproxy.upstream.logins", "{login}", "Logins of the proxy at brokers, also for clients and anew, by mechanism and result.", false,
		byLogin(func(m *metrics) *loginCounts { return &m.upstreamLogins })},
	{"offsetproxy.upstream.dial_errors", "{error}", "Upstream connection attempts that failed.", false,
		single(func(m *metrics) int64 { return m.dialErrors.Load() })},
}

func single(value func(*metrics) int64) func(*metrics, func(int64, metric.MeasurementOption)) {
	return func(m *metrics, observe func(int64, metric.MeasurementOption)) { observe(value(m), noAttributes) }
}

func named(label string, set func(*metrics) counts) func(*metrics, func(int64, metric.MeasurementOption)) {
	return func(m *metrics, observe func(int64, metric.MeasurementOption)) {
		for name, n := range set(m) {
			observe(n.Load(), metric.WithAttributes(attribute.String(label, name)))
		}
	}
}

func byKey(table func(*metrics) *[unknownKey + 1]atomic.Int64) func(*metrics, func(int64, metric.MeasurementOption)) {
	return func(m *metrics, observe func(int64, metric.MeasurementOption)) {
		counters := table(m)
		for key := range counters {
			if n := counters[key].Load(); n > 0 {
				observe(n, metric.WithAttributes(attribute.String("api", kmsg.NameForKey(int16(key)))))
			}
		}
	}
}

// newMetrics registers the table with a meter, which may go on reading when the proxy
// has ended: its last numbers are sent after that. So many topics have series of their
// own.
func newMetrics(meter metric.Meter, metricTopics int) (*metrics, error) {
	m := &metrics{
		buffered: newCounts([]string{bufferedRequests, bufferedAnswers}),
		limits:   newLimitHits(), malformedBy: newCounts(reasonNames),
		outcomes: newCounts(outcomeNames), readings: newCounts(readingNames), alarms: newCounts(alarmNames),
		retries: newCounts(retryNames), refusals: newCounts(refusalNames),
		kinds:     newCounts(kindNames),
		conflicts: newCounts(deciderNames), topics: newTopicCounts(metricTopics),
		durations: newTimings(timedOutcomes...), admissions: newTimings(""),
		holds: newTimings(heldUntilSent, heldUntilDecided), viewTimes: newTimings(readingNames...),
		observed: newCounts(observedNames), observedRefusals: newCounts(refusalNames),
	}
	table := slices.Concat(instruments, fenceInstruments, stateInstruments)
	observables := make([]metric.Int64Observable, len(table))
	all := make([]metric.Observable, len(table))
	for i, row := range table {
		var err error
		if row.gauge {
			observables[i], err = meter.Int64ObservableUpDownCounter(row.name, metric.WithUnit(row.unit), metric.WithDescription(row.description))
		} else {
			observables[i], err = meter.Int64ObservableCounter(row.name, metric.WithUnit(row.unit), metric.WithDescription(row.description))
		}
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", row.name, err)
		}
		all[i] = observables[i]
	}
	var err error
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, row := range table {
			row.read(m, func(value int64, attributes metric.MeasurementOption) {
				o.ObserveInt64(observables[i], value, attributes)
			})
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}
