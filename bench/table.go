package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

var errNothing = errors.New("the sample has no figure")

// report is what a run gives, and the form of --json.
type report struct {
	Started  time.Time  `json:"started"`
	Rounds   int        `json:"rounds"`
	Seconds  float64    `json:"seconds"` // of a sample
	Targets  []string   `json:"targets"`
	Measures []measured `json:"measures"`
	Memory   []memory   `json:"memory"`
}

// measured is one measure of all its ways.
type measured struct {
	Name  string        `json:"name"`
	About string        `json:"about"`
	Ways  []measuredWay `json:"ways"`
	// Others is what processes used that are none of the bench, as a share of
	// the machine, by sample; nil where that cannot be seen.
	Others *spread `json:"others,omitempty"`
	// Besides are further ratios.
	Besides []beside `json:"besides,omitempty"`
}

// measuredWay is one way's figures.
type measuredWay struct {
	Name    string   `json:"name"`
	Figures []series `json:"figures"`
}

// memory is the peak of one target's processes over the whole run.
type memory struct {
	Target  string  `json:"target"`
	PeakMiB float64 `json:"peak_mib"`
}

// collect makes series of the samples of a way, beside those of the first.
func collect(samples, base []sample) []series {
	var out []series
	for i, f := range samples[0] {
		s := series{Name: f.name, Unit: f.unit, Better: f.better}
		for _, one := range samples {
			if i < len(one) {
				s.Values = append(s.Values, one[i].value)
			}
		}
		s.spread = spreadOf(s.Values)
		if &samples[0] != &base[0] {
			s.Ratio = pairedRatio(s.Values, valuesOf(base, f))
		}
		out = append(out, s)
	}
	return out
}

// valuesOf gives a figure of each sample that has it.
func valuesOf(samples []sample, like figure) []float64 {
	var out []float64
	for _, s := range samples {
		for _, f := range s {
			if f.name == like.name && f.unit == like.unit {
				out = append(out, f.value)
			}
		}
	}
	return out
}

// String is for progress lines: "412 MB/s, CPU 0.46 s/GB".
func (s sample) String() string {
	var parts []string
	for _, f := range s {
		parts = append(parts, fmt.Sprintf("%s %s %s", f.name, number(f.value), f.unit))
	}
	return strings.Join(parts, ", ")
}

// number writes a value with three significant digits, and no more than the
// value has before the point.
func number(v float64) string {
	switch magnitude := math.Abs(v); {
	case v == 0:
		return "0"
	case magnitude >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case magnitude >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// render writes "412 (400..430)".
func (s spread) render() string {
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// write prints a measure as a table: a line for each way, and for each figure
// its median, its range and the ratio.
func (m measured) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", m.Name, m.About)
	header := []string{"way"}
	column := map[string]int{} // by name and unit
	for _, way := range m.Ways {
		for _, f := range way.Figures {
			title := f.Name + " " + f.Unit
			if _, known := column[title]; !known {
				column[title] = len(header)
				header = append(header, title, "ratio")
			}
		}
	}
	rows := [][]string{header}
	for _, way := range m.Ways {
		row := make([]string, len(header))
		row[0] = way.Name
		for _, f := range way.Figures {
			at := column[f.Name+" "+f.Unit]
			row[at] = f.render()
			if f.Ratio != nil {
				row[at+1] = f.Ratio.render()
			}
		}
		rows = append(rows, row)
	}
	writeColumns(w, rows)
	writeBesides(w, m.Besides)
	writeOthers(w, m.Others)
}

// writeColumns aligns the cells and leaves columns out that are empty below the
// header.
func writeColumns(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for at := range widths {
		filled := false
		for i, row := range rows {
			widths[at] = max(widths[at], utf8.RuneCountInString(row[at]))
			filled = filled || i > 0 && row[at] != ""
		}
		if !filled {
			widths[at] = 0
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for at, cell := range row {
			if widths[at] > 0 {
				line.WriteString("  " + cell + strings.Repeat(" ", widths[at]-utf8.RuneCountInString(cell)))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// writeMemory prints the peaks.
func writeMemory(w io.Writer, all []memory) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\nmemory: most that a way's processes held over all of it\n")
	rows := [][]string{{"way", "peak MiB"}}
	for _, m := range all {
		rows = append(rows, []string{m.Target, number(m.PeakMiB)})
	}
	writeColumns(w, rows)
}

// writeJSON writes the report for programs.
func (r report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
