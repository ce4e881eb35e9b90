package race

import (
	"fmt"
	"slices"
	"strings"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Fault is a way in which log and answers may disagree.
type Fault string

const (
	// Misplaced: acknowledged, but not at the expected offset.
	Misplaced Fault = "success at another offset than promised"
	// Missing: acknowledged, but not in the log.
	Missing Fault = "success that is not in the log"
	// RefusedInLog: refused or never sent, yet in the log.
	RefusedInLog Fault = "refused record that is in the log"
	// Twice: in the log more than once.
	Twice Fault = "value that is in the log twice"
	// UnknownMisplaced: outcome unknown, and in the log at another offset than
	// the expected one.
	UnknownMisplaced Fault = "record of unknown outcome at another offset than expected"
	// Stray: in the log, and nobody attempted it.
	Stray Fault = "record that no writer wrote"
)

// Faults lists all faults in the order of reporting.
var Faults = []Fault{Misplaced, Missing, RefusedInLog, Twice, UnknownMisplaced, Stray}

// Violation is one disagreement of log and answers.
type Violation struct {
	Fault    Fault
	Value    string
	Expected appender.Offset
	// Found lists where the value stands in the log, ascending.
	Found []appender.Offset
}

// String describes the violation for a person.
func (v Violation) String() string {
	found := "nowhere"
	if len(v.Found) > 0 {
		parts := make([]string, len(v.Found))
		for i, o := range v.Found {
			parts[i] = fmt.Sprint(o)
		}
		found = "at " + strings.Join(parts, ", ")
	}
	if v.Fault == Stray {
		return fmt.Sprintf("%q stands %s", v.Value, found)
	}
	return fmt.Sprintf("%q expected %d and stands %s", v.Value, v.Expected, found)
}

// Result is what a check found.
type Result struct {
	Attempts, Won, Refused, Unknown, NotSent int
	// Records is how many the log holds.
	Records int
	// UnknownInLog is how many of Unknown turned out to be in the log.
	UnknownInLog int
	// Violations, in the order of the attempts; strays last. Empty: the check
	// holds.
	Violations []Violation
	// Refusal is the first refusal that a writer saw, nil if there was none.
	Refusal error
}

// Count is how many violations of a kind there are.
func (r *Result) Count(f Fault) int {
	n := 0
	for _, v := range r.Violations {
		if v.Fault == f {
			n++
		}
	}
	return n
}

// Check compares a log with what the writers were told.
func Check(attempts []Attempt, log []Stored) *Result {
	r := &Result{Attempts: len(attempts), Records: len(log)}
	found := make(map[string][]appender.Offset, len(log))
	for _, s := range log {
		found[s.Value] = append(found[s.Value], s.Offset)
	}
	for _, a := range attempts {
		at := found[a.Value]
		delete(found, a.Value)
		violation := func(f Fault) {
			r.Violations = append(r.Violations, Violation{Fault: f, Value: a.Value, Expected: a.Expected, Found: at})
		}
		if len(at) > 1 {
			violation(Twice)
		}
		elsewhere := len(at) > 0 && at[0] != a.Expected
		switch a.Outcome {
		case Won:
			r.Won++
			switch {
			case len(at) == 0:
				violation(Missing)
			case elsewhere || a.Answered != a.Expected:
				violation(Misplaced)
			}
		case Unknown:
			r.Unknown++
			if len(at) > 0 {
				r.UnknownInLog++
			}
			if elsewhere {
				violation(UnknownMisplaced)
			}
		default:
			if a.Outcome == Refused {
				r.Refused++
				if r.Refusal == nil {
					r.Refusal = a.Err
				}
			} else {
				r.NotSent++
			}
			if len(at) > 0 {
				violation(RefusedInLog)
			}
		}
	}
	for _, s := range log {
		if at, stray := found[s.Value]; stray {
			r.Violations = append(r.Violations, Violation{Fault: Stray, Value: s.Value, Expected: appender.NoOffset, Found: slices.Sorted(slices.Values(at))})
			delete(found, s.Value)
		}
	}
	return r
}
