package proxy

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// timingBounds are the upper bounds, inclusive, of the classes of lengths of time that
// are counted apart.
var timingBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute,
}

// timing counts lengths of time by classes. OpenTelemetry's own histograms cost some
// twenty times as much and take a lock. Its methods may be called concurrently.
type timing struct {
	counts [len(timingBounds) + 1]atomic.Int64
	sum    atomic.Int64 // nanoseconds
}

func (t *timing) add(d time.Duration) {
	class := 0
	for class < len(timingBounds) && d > timingBounds[class] {
		class++
	}
	t.counts[class].Add(1)
	t.sum.Add(int64(max(d, 0)))
}

// Timing is a distribution of lengths of time that a Proxy has measured since it was
// made. In seconds, as OpenTelemetry has it.
type Timing struct {
	// Name is the metric's, Description what it means.
	Name, Description string
	// Bounds are the upper bounds of the classes, inclusive and ascending; what is
	// longer than the last is in a class of its own. They are not to be changed.
	Bounds []time.Duration
	// Series are its parts, one for each value of its label.
	Series []TimingSeries
}

// TimingSeries is one series of a Timing.
type TimingSeries struct {
	// Attributes tell it from the others.
	Attributes attribute.Set
	// Counts has one number for each class, the one beyond the last bound included.
	Counts []uint64
	// Sum is that of all lengths of time.
	Sum time.Duration
}

// Values of the labels of timings.
const (
	heldUntilSent    = "sent"
	heldUntilDecided = "decided" // without having been sent
)

// timedOutcomes are those whose times are told apart; those of all others are together.
var timedOutcomes = []string{outcomeWon, outcomeReplayed, outcomeTaken, outcomeNotReached, outcomeUnknown, outcomeOther}

const outcomeOther = "other"

// timingRow is a row of the table of what is timed.
type timingRow struct {
	name, description, label string
	values                   []string
	of                       func(m *metrics) map[string]*timing
}

var timingTable = []timingRow{
	{"offsetproxy.appends.duration", "From a batch under a rule, as it comes, to its verdict, by what became of it.",
		"outcome", timedOutcomes, func(m *metrics) map[string]*timing { return m.durations }},
	{"offsetproxy.appends.admission", "From a batch under a rule, as it comes, to its place in the queue of its partition: finding out about its topic, reading its records, and the pause after too many old offsets.",
		"", []string{""}, func(m *metrics) map[string]*timing { return m.admissions }},
	{"offsetproxy.appends.hold", "From there until it is first sent, or decided without that: waiting for the batches before it and for the end of the partition to be read.",
		"until", []string{heldUntilSent, heldUntilDecided}, func(m *metrics) map[string]*timing { return m.holds }},
	{"offsetproxy.views.duration", "How long readings of the end of a partition took, by how they ended.",
		"result", readingNames, func(m *metrics) map[string]*timing { return m.viewTimes }},
}

// timed counts how long it took until a batch was decided.
func (m *metrics) timed(outcome string, took time.Duration) {
	t, ok := m.durations[outcome]
	if !ok {
		t = m.durations[outcomeOther]
	}
	t.add(took)
}

func newTimings(names ...string) map[string]*timing {
	all := map[string]*timing{}
	for _, name := range names {
		all[name] = new(timing)
	}
	return all
}

// Timings gives what was timed so far. What is counted meanwhile may be in some of the
// numbers and not in others.
func (p *Proxy) Timings() []Timing {
	var all []Timing
	for _, row := range timingTable {
		t := Timing{Name: row.name, Description: row.description, Bounds: timingBounds[:]}
		series := row.of(p.metrics)
		for _, value := range row.values {
			s := TimingSeries{Sum: time.Duration(series[value].sum.Load())}
			if row.label != "" {
				s.Attributes = attribute.NewSet(attribute.String(row.label, value))
			}
			for i := range series[value].counts {
				s.Counts = append(s.Counts, uint64(series[value].counts[i].Load()))
			}
			t.Series = append(t.Series, s)
		}
		all = append(all, t)
	}
	return all
}
