package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
	"github.com/offsetproxy/offsetproxy/internal/race"
)

// shownViolations bounds how many violations are named one by one.
const shownViolations = 5

// demoReport is what the demo found.
type demoReport struct {
	Cluster          string
	Topic            string
	Writers, Proxies int
	Unsafe           bool
	duration         time.Duration
	result           *race.Result
}

// write tells it to a person.
func (d *demoReport) write(w io.Writer) error {
	r := d.result
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	fence := ""
	if d.Unsafe {
		fence = " with the fence switched off"
	}
	line("%d writers raced for %v through %d proxies%s,", d.Writers, d.duration, d.Proxies, fence)
	line("before %s, for the places of topic %s.", d.Cluster, d.Topic)
	line("")
	count := func(name string, n int, meaning string) { line("  %-9s %9s  %s", name, thousands(n), meaning) }
	count("attempts", r.Attempts, "each sent once")
	count("won", r.Won, "acknowledged")
	count("refused", r.Refused, "another was first, or the end was not reached")
	found := "no answer left the writer in doubt"
	if r.Unknown > 0 {
		found = thousands(r.UnknownInLog) + " of them turned out to be in the log"
	}
	count("unknown", r.Unknown, found)
	if r.NotSent > 0 {
		count("not sent", r.NotSent, "a leader or a connection was not there")
	}
	line("")
	var refused *appender.RefusedError
	if errors.As(r.Refusal, &refused) {
		line("A refusal as the client saw it:")
		line("  %v: %s", refused.Code, refused.Message)
		line("")
	}
	line("The log, read from the brokers (%s records), against what the writers were told:", thousands(r.Records))
	check := func(good string, faults ...race.Fault) {
		bad := 0
		for _, f := range faults {
			bad += r.Count(f)
		}
		if bad == 0 {
			line("  ok    %s", good)
			return
		}
		line("  WRONG %s", good)
		for _, f := range faults {
			if n := r.Count(f); n > 0 {
				line("        %s: %s", f, thousands(n))
			}
		}
	}
	check("every success stands at the offset it was promised", race.Misplaced, race.Missing)
	check("no refused record is in the log", race.RefusedInLog)
	check("no value is in the log twice", race.Twice)
	check("nothing of unknown outcome stands elsewhere, nothing is of unknown origin", race.UnknownMisplaced, race.Stray)
	line("")
	if len(r.Violations) == 0 {
		line("The check holds.")
		if d.Unsafe {
			line("With the fence off that was luck: race for longer or on a real cluster.")
		}
	} else {
		line("The check does NOT hold: %s violations. The first of them:", thousands(len(r.Violations)))
		for _, v := range r.Violations[:min(shownViolations, len(r.Violations))] {
			line("  %s: %v", v.Fault, v)
		}
		if d.Unsafe {
			line("This is what a check in the proxy alone is worth: between check and append")
			line("the other proxy appends. Run the demo without --unsafe to see the fence hold.")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// demoJSON is the report for programs.
type demoJSON struct {
	Holds        bool               `json:"holds"`
	Unsafe       bool               `json:"unsafe"`
	Topic        string             `json:"topic"`
	Writers      int                `json:"writers"`
	Proxies      int                `json:"proxies"`
	Seconds      float64            `json:"seconds"`
	Attempts     int                `json:"attempts"`
	Won          int                `json:"won"`
	Refused      int                `json:"refused"`
	Unknown      int                `json:"unknown"`
	UnknownInLog int                `json:"unknown_in_log"`
	NotSent      int                `json:"not_sent"`
	Records      int                `json:"records"`
	Refusal      *demoRefusal       `json:"refusal,omitempty"`
	Violations   map[race.Fault]int `json:"violations"`
	First        []string           `json:"first_violations,omitempty"`
}

type demoRefusal struct {
	Code    appender.Code `json:"code"`
	Name    string        `json:"name"`
	Message string        `json:"message"`
}

func (d *demoReport) forPrograms() demoJSON {
	r := d.result
	j := demoJSON{
		Holds: len(r.Violations) == 0, Unsafe: d.Unsafe, Topic: d.Topic,
		Writers: d.Writers, Proxies: d.Proxies, Seconds: d.duration.Seconds(),
		Attempts: r.Attempts, Won: r.Won, Refused: r.Refused, Unknown: r.Unknown,
		UnknownInLog: r.UnknownInLog, NotSent: r.NotSent, Records: r.Records,
		Violations: map[race.Fault]int{},
	}
	var refused *appender.RefusedError
	if errors.As(r.Refusal, &refused) {
		j.Refusal = &demoRefusal{Code: refused.Code, Name: refused.Code.String(), Message: refused.Message}
	}
	for _, v := range r.Violations {
		j.Violations[v.Fault]++
		if len(j.First) < shownViolations {
			j.First = append(j.First, fmt.Sprintf("%s: %v", v.Fault, v))
		}
	}
	return j
}

// thousands writes a count with commas.
func thousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
