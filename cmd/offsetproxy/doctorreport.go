package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/offsetproxy/offsetproxy/internal/doctor"
)

// reportWidth is where lines of a report are broken.
const reportWidth = 96

// writeReport tells a report to a person: the worst first, what is the same of several
// subjects once, and what is good as a number, unless verbose.
func writeReport(w io.Writer, r *doctor.Report, verbose bool) error {
	var b strings.Builder
	together := false
	for i := 0; i < len(r.Findings); {
		f := r.Findings[i]
		subjects := []string{f.Subject}
		for i++; i < len(r.Findings) && f.Like(r.Findings[i]); i++ {
			subjects = append(subjects, r.Findings[i].Subject)
		}
		if f.Severity == doctor.OK && !verbose {
			continue
		}
		together = together || len(subjects) > 1
		fmt.Fprintf(&b, "%-8s %s\n", f.Severity, f.ID)
		wrap(&b, "         ", strings.Join(subjects, ", ")+": "+f.Seen)
		if len(subjects) > 1 {
			f.Do = f.DoForAny()
		}
		if f.Do != "" {
			wrap(&b, "         do: ", f.Do)
		}
		b.WriteByte('\n')
	}
	var parts []string
	for _, s := range []doctor.Severity{doctor.Error, doctor.Warning, doctor.Note, doctor.OK} {
		word := string(s)
		if n := r.Counts[s]; n != 1 && s != doctor.OK {
			word += "s"
		}
		parts = append(parts, fmt.Sprintf("%d %s", r.Counts[s], word))
	}
	cluster := "the cluster was not reached"
	if r.Cluster != "" {
		cluster = "cluster " + r.Cluster
	}
	grouped := ""
	if together {
		grouped = "; what is alike is shown together"
	}
	fmt.Fprintf(&b, "%s: %s%s\n", cluster, strings.Join(parts, ", "), grouped)
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes words in lines behind a first indent, and blanks of its length. Principals,
// hosts and what a proxy says are others' texts: nothing in them moves a terminal.
func wrap(b *strings.Builder, indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		word = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return unicode.ReplacementChar
		}, word)
		if len(line)+1+len(word) > reportWidth && strings.TrimSpace(line) != "" {
			fmt.Fprintln(b, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", len(indent))
		}
		if line != "" && !strings.HasSuffix(line, " ") {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(b, line)
}
