package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/verify"
)

const (
	// shownInJSON bounds the violations that a program is given.
	shownInJSON = 100
	// shownOfKind bounds those of a kind that a person is told.
	shownOfKind = 3
)

// verifyReport is what verify found.
type verifyReport struct {
	*verify.Verdict
	history       *verify.History
	file, picture string
	took          time.Duration
}

// unknownShare is which share of the appends was of unknown fate.
func (r *verifyReport) unknownShare() float64 {
	if r.Counts.Operations == 0 {
		return 0
	}
	return float64(r.Counts.Unknown) / float64(r.Counts.Operations)
}

func (r *verifyReport) seconds() float64 { return time.Duration(r.Counts.Span).Seconds() }

func (r *verifyReport) perSecond() float64 {
	if r.seconds() == 0 {
		return 0
	}
	return float64(r.Counts.Operations) / r.seconds()
}

// checks are what a person wants to know, and the violations that deny it.
var checks = []struct {
	good  string
	kinds []verify.Kind
}{
	{"each success lies exactly at its promised offsets", []verify.Kind{verify.SuccessMissing, verify.SuccessMisplaced, verify.Torn}},
	{"nothing that was refused is in the log", []verify.Kind{verify.TakenInLog, verify.RefusedInLog, verify.NotSentInLog}},
	{"what is unknown is there once at most, where it was promised", []verify.Kind{verify.UnknownMisplaced, verify.Twice}},
	{"nothing is there that nobody wrote, and no offset is empty", []verify.Kind{verify.Stranger, verify.Altered, verify.Hole}},
	{"each partition's history is linearizable", []verify.Kind{verify.Order, verify.BeyondEnd, verify.Nonsense}},
}

// write tells it to a person.
func (r *verifyReport) write(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	c := r.Counts
	line("%d writers appended to %d partitions of topic %s through %d proxies for %.1f s.", r.history.Writers, r.history.Partitions,
		r.history.Topic, len(r.history.Proxies), r.seconds())
	line("")
	count := func(name string, n int, meaning string) { line("  %-12s %11s  %s", name, thousands(n), meaning) }
	count("appends", c.Operations, fmt.Sprintf("%s of them conditional; %s transmissions; %.0f appends a second",
		thousands(c.Conditional), thousands(c.Transmissions), r.perSecond()))
	count("ok", c.OK, "acknowledged")
	count("taken", c.Taken, "another record was there")
	count("not reached", c.NotReached, "the log was not so far")
	count("refused", c.Refused, "for another reason, such as a leader that moved")
	count("not sent", c.NotSent, "no connection")
	count("unknown", c.Unknown, fmt.Sprintf("%.2f %%; %s of them turned out to be in the log", 100*r.unknownShare(), thousands(c.UnknownInLog)))
	line("")
	line("The log (%s records), against what the writers were told:", thousands(c.Records))
	for _, check := range checks {
		bad := 0
		for _, k := range check.kinds {
			bad += r.Kinds[k]
		}
		if bad == 0 {
			line("  ok    %s", check.good)
			continue
		}
		line("  WRONG %s", check.good)
		for _, k := range check.kinds {
			if n := r.Kinds[k]; n > 0 {
				line("        %s: %s", k, thousands(n))
			}
		}
	}
	if r.Linearizable == verify.NotDecided {
		line("  Not decided by porcupine: it judged %d of %d pieces in the time it had. The exact check found an order for all.", r.Judged, r.Pieces)
	}
	line("")
	if r.history.Cut {
		line("The last line of the history is cut off and left out.")
	}
	if r.Verified() {
		line("VERIFIED: what was promised was kept. The history is in %s.", r.file)
		_, err := io.WriteString(w, b.String())
		return err
	}
	r.writeViolations(line)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeViolations tells of a few of each kind, and what to do.
func (r *verifyReport) writeViolations(line func(string, ...any)) {
	for _, check := range checks {
		for _, k := range check.kinds {
			r.writeKind(line, k)
		}
	}
	if c := r.Counts; c.Conditional > 0 && c.Taken+c.NotReached == 0 && r.Kinds[verify.SuccessMisplaced] > 0 {
		line("No append was refused on account of its condition. Is a rule with mode enforce or require in force for topic %s at %s?",
			r.history.Topic, strings.Join(r.history.Proxies, " and "))
	}
	line("NOT VERIFIED: %s violations. The history is in %s.", thousands(r.Total), r.file)
	if r.picture != "" {
		line("A picture of the first, for a browser, is in %s.", r.picture)
	}
}

func (r *verifyReport) writeKind(line func(string, ...any), k verify.Kind) {
	if r.Kinds[k] == 0 {
		return
	}
	line("%s (%s):", k, thousands(r.Kinds[k]))
	shown := 0
	for _, v := range r.Violations {
		if v.Kind == k && shown < shownOfKind {
			line("  %v", v)
			shown++
		}
	}
	line("  What to do: %s", k.Advice())
	line("")
}

// verifyJSON is the report for programs.
type verifyJSON struct {
	Verified            bool                `json:"verified"`
	Violations          []verify.Violation  `json:"violations"`
	ViolationsTotal     int                 `json:"violations_total"`
	ViolationsByKind    map[verify.Kind]int `json:"violations_by_kind"`
	Operations          int                 `json:"operations"`
	Transmissions       int                 `json:"transmissions"`
	Conditional         int                 `json:"conditional"`
	OK                  int                 `json:"ok"`
	Taken               int                 `json:"taken"`
	NotReached          int                 `json:"not_reached"`
	Unknown             int                 `json:"unknown"`
	UnknownInLog        int                 `json:"unknown_in_log"`
	Refused             int                 `json:"refused"`
	NotSent             int                 `json:"not_sent"`
	UnknownShare        float64             `json:"unknown_share"`
	Records             int                 `json:"records"`
	Seconds             float64             `json:"seconds"`
	OperationsPerSecond float64             `json:"operations_per_second"`
	Linearizable        verify.Linearizable `json:"linearizable"`
	Seed                uint64              `json:"seed"`
	History             string              `json:"history"`
	Picture             string              `json:"picture,omitempty"`
}

func (r *verifyReport) forPrograms() verifyJSON {
	c := r.Counts
	return verifyJSON{
		Verified: r.Verified(), Violations: append([]verify.Violation{}, r.Violations[:min(len(r.Violations), shownInJSON)]...),
		ViolationsTotal: r.Total, ViolationsByKind: r.Kinds,
		Operations: c.Operations, Transmissions: c.Transmissions, Conditional: c.Conditional,
		OK: c.OK, Taken: c.Taken, NotReached: c.NotReached, Unknown: c.Unknown, UnknownInLog: c.UnknownInLog, Refused: c.Refused, NotSent: c.NotSent,
		UnknownShare: r.unknownShare(), Records: c.Records, Seconds: r.seconds(), OperationsPerSecond: r.perSecond(),
		Linearizable: r.Linearizable, Seed: r.history.Seed, History: r.file, Picture: r.picture,
	}
}
