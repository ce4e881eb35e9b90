package main

import (
	"strings"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/doctor"
)

// Who counts the findings that are shown must not miss some.
func TestReportSaysWhatIsShownTogether(t *testing.T) {
	finding := func(subject string) doctor.Finding {
		return doctor.Finding{ID: "some", Severity: doctor.Note, Subject: subject, Seen: "something"}
	}
	for want, findings := range map[string][]doctor.Finding{
		"2 notes, 0 ok; what is alike is shown together\n": {finding("broker 1"), finding("broker 2")},
		"1 note, 0 ok\n": {finding("broker 1")},
	} {
		var b strings.Builder
		report := &doctor.Report{Findings: findings, Counts: map[doctor.Severity]int{doctor.Note: len(findings)}}
		if err := writeReport(&b, report, false); err != nil || !strings.HasSuffix(b.String(), want) {
			t.Errorf("got %v and %q, want %q at the end", err, b.String(), want)
		}
	}
}
