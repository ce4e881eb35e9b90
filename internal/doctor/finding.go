package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity is how bad a finding is.
type Severity string

const (
	// OK: it was looked at, and is as it should be.
	OK Severity = "ok"
	// Note: nothing is wrong, but somebody should know; also what could not be seen
	// and is no condition of the promise.
	Note Severity = "note"
	// Warning: something may break the promise, or stop appends, if more happens; also
	// a condition of the promise that could not be seen.
	Warning Severity = "warning"
	// Error: the promise does not hold, or appends are refused.
	Error Severity = "error"
)

// severities in their order.
var severities = []Severity{OK, Note, Warning, Error}

// rank is larger for what is worse.
func (s Severity) rank() int { return slices.Index(severities, s) }

// Finding is one thing that was seen.
type Finding struct {
	// ID is the check's. It does not change from version to version.
	ID ID `json:"id"`
	// Severity is how bad it is.
	Severity Severity `json:"severity"`
	// Subject is what it is about, as in "broker 2", "topic orders" or "rules[0]".
	Subject string `json:"subject"`
	// Seen is what was seen, for a person.
	Seen string `json:"seen"`
	// Do is what to do, for a person; empty: nothing.
	Do string `json:"do,omitempty"`
}

// topicSubject begins a Subject that is a topic.
const topicSubject = "topic "

// Like reports whether two findings say the same of two subjects.
func (f Finding) Like(other Finding) bool {
	f, other = f.ofAny(), other.ofAny()
	other.Subject = f.Subject
	return f == other
}

// ofAny is the finding with a remedy for whatever topic it is about.
func (f Finding) ofAny() Finding {
	if topic, is := strings.CutPrefix(f.Subject, topicSubject); is {
		f.Do = strings.ReplaceAll(f.Do+" ", "--topic "+topic+" ", anyTopic+" ")
		f.Do = strings.TrimSuffix(f.Do, " ")
	}
	return f
}

// DoForAny is what to do about several findings that are alike: NAME stands for each
// topic that they are about.
func (f Finding) DoForAny() string { return f.ofAny().Do }

// Report is all findings. Its form as JSON is stable: fields may be added.
type Report struct {
	// Form is 1.
	Form int `json:"form"`
	// At is when it was made, in UTC.
	At time.Time `json:"at"`
	// Cluster is the cluster's id; empty: it was not reached.
	Cluster string `json:"cluster,omitempty"`
	// Worst is the greatest severity among the findings.
	Worst Severity `json:"worst"`
	// Counts has how many findings of each severity there are.
	Counts map[Severity]int `json:"counts"`
	// Findings, the worst first, and then in the order of Checks.
	Findings []Finding `json:"findings"`
}

// reportForm is the version of Report's form.
const reportForm = 1

// newReport sorts findings into a report.
func newReport(at time.Time, cluster string, findings []Finding) *Report {
	r := &Report{Form: reportForm, At: at.UTC().Truncate(time.Second), Cluster: cluster, Worst: OK, Counts: map[Severity]int{}, Findings: findings}
	place := map[ID]int{}
	for i, c := range checks {
		place[c.ID] = i
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(b.Severity.rank()-a.Severity.rank(), place[a.ID]-place[b.ID])
	})
	for _, s := range severities {
		r.Counts[s] = 0
	}
	for _, f := range r.Findings {
		r.Counts[f.Severity]++
		if f.Severity.rank() > r.Worst.rank() {
			r.Worst = f.Severity
		}
	}
	return r
}
