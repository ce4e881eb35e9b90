package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const troubleshooting = "docs/troubleshooting.md"

var (
	span = regexp.MustCompile("`([^`]+)`")
	// alertName is the name of an alert, in the rules for Prometheus.
	alertName = regexp.MustCompile(`(?m)^\s*- alert:\s*(\w+)`)
	runbook   = regexp.MustCompile(`(?m)^\s*runbook_url:\s*(\S+)`)
	// quotedIn is a literal of the program's, as it is written there.
	quotedIn = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// instrumentIn is the name of a metric, or the end of one that is put together.
	instrumentIn = regexp.MustCompile(`"(offsetproxy\.[a-z_.]+|\.[a-z_]+)"`)
	// metricSuffix is what Prometheus has behind a name.
	metricSuffix = regexp.MustCompile(`(_seconds|_bytes)?(_total|_bucket|_count|_sum)?$`)
)

// TestTroubleshootingQuotesTheProgram: whoever searches for a line of the log, for what a
// client was told or for a metric finds it as it is.
func TestTroubleshootingQuotesTheProgram(t *testing.T) {
	source := productSource(t)
	var literals strings.Builder
	for line := range strings.Lines(source) {
		if code := strings.TrimSpace(line); !strings.HasPrefix(code, "//") {
			literals.WriteString(strings.Join(quotedIn.FindAllString(code, -1), ""))
		}
	}
	// A literal that is broken over lines is one text, and verbs stand for anything.
	said := regexp.MustCompile(`%[a-zA-Z]`).ReplaceAllString(strings.ReplaceAll(literals.String(), `""`, ""), "…")
	metrics := map[string]bool{}
	var bases, ends []string
	for _, found := range instrumentIn.FindAllStringSubmatch(source, -1) {
		if strings.HasPrefix(found[1], ".") {
			ends = append(ends, found[1])
		} else {
			bases = append(bases, found[1])
		}
	}
	for _, base := range bases {
		metrics[strings.ReplaceAll(base, ".", "_")] = true
		for _, end := range ends {
			metrics[strings.ReplaceAll(base+end, ".", "_")] = true
		}
	}
	lines, quoted := strings.Split(read(t, troubleshooting), "\n"), 0
	for _, line := range lines {
		for _, found := range span.FindAllStringSubmatch(line, -1) {
			text := found[1]
			if name, _, _ := strings.Cut(text, "{"); strings.HasPrefix(name, "offsetproxy_") {
				quoted++
				if !metrics[name] && !metrics[metricSuffix.ReplaceAllString(name, "")] {
					t.Errorf("%s: there is no metric %s", troubleshooting, name)
				}
				continue
			}
			message := strings.HasPrefix(line, "- log: ") || strings.HasPrefix(line, "- client: ") && strings.Contains(text, " ")
			if !message {
				continue
			}
			quoted++
			for _, piece := range strings.Split(text, "…") {
				if !strings.Contains(said, piece) {
					t.Errorf("%s quotes %q, which the program does not say", troubleshooting, text)
				}
			}
		}
	}
	if quoted < 40 {
		t.Errorf("only %d quotations were found", quoted)
	}
}

// TestEveryAlertIsExplained: the link in an alert leads to what to do about it.
func TestEveryAlertIsExplained(t *testing.T) {
	rules, err := filepath.Glob("../../deploy/prometheus/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, names, alerts := read(t, troubleshooting), "", 0
	for _, file := range rules {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names += strings.ToLower(string(text))
		for _, found := range alertName.FindAllStringSubmatch(string(text), -1) {
			alerts++
			if anchor := strings.ToLower(found[1]); !strings.Contains(document, `<a id="`+anchor+`"></a>`) {
				t.Errorf("%s has no anchor %s for the alert %s", troubleshooting, anchor, found[1])
			}
		}
		for _, found := range runbook.FindAllStringSubmatch(string(text), -1) {
			if _, anchor, _ := strings.Cut(found[1], "troubleshooting.md#"); !strings.Contains(document, `<a id="`+strings.Trim(anchor, `"'`)+`"></a>`) {
				t.Errorf("%s has no anchor for %s", troubleshooting, found[1])
			}
		}
	}
	if alerts < 10 {
		t.Errorf("only %d alerts were found", alerts)
	}
	for _, found := range regexp.MustCompile(`<a id="(\w+)"></a>`).FindAllStringSubmatch(document, -1) {
		if !strings.Contains(names, found[1]) {
			t.Errorf("%s has the anchor %s, and there is no such alert", troubleshooting, found[1])
		}
	}
}

// productSource is the text of all that the program is built from, in Go.
func productSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, p := range list(t) {
		if strings.HasPrefix(p.ImportPath, module+"/cmd/") || strings.HasPrefix(p.ImportPath, module+"/proxy") ||
			strings.HasPrefix(p.ImportPath, module+"/internal/") || strings.HasPrefix(p.ImportPath, module+"/fence") {
			for _, file := range p.GoFiles {
				text, err := os.ReadFile(filepath.Join(p.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
		}
	}
	return all.String()
}
