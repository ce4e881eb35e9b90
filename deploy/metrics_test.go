package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	metricName = regexp.MustCompile(`offsetproxy_[a-z0-9_]+`)
	// documentedName is a metric's second name in docs/metrics.md.
	documentedName = regexp.MustCompile("(?m)^\\| `[a-z_.]+`<br>`(offsetproxy_[a-z0-9_]+)` \\| ([a-z]+)")
)

// TestMetricsOfDashboardAndAlertsExist holds both against docs/metrics.md, which is
// written from what the program registers.
func TestMetricsOfDashboardAndAlertsExist(t *testing.T) {
	var known []string
	for _, found := range documentedName.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		if known = append(known, found[1]); found[2] == "histogram" {
			known = append(known, found[1]+"_bucket", found[1]+"_sum", found[1]+"_count")
		}
	}
	if len(known) < 40 {
		t.Fatalf("docs/metrics.md has only %d metrics; does the test read it right?", len(known))
	}
	dashboard := read(t, "deploy/grafana/offsetproxy.json")
	for file, text := range map[string]string{"deploy/grafana/offsetproxy.json": dashboard, "deploy/prometheus/alerts.yaml": read(t, "deploy/prometheus/alerts.yaml")} {
		for _, name := range metricName.FindAllString(text, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s, which is not measured", file, name)
			}
		}
	}
	for _, name := range known {
		if strings.Contains(name, "_seconds_") { // a part of a histogram
			continue
		}
		if !strings.Contains(dashboard, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
