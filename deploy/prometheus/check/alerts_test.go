package check

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// now is when alerts are looked at.
var now = time.Unix(1_800_000_000, 0)

// series is one that grew evenly over the hour before now; a gauge that stays is one from
// a number to the same.
type series struct {
	labels   string // name{label="value"}
	from, to float64
}

// healthy is what a cluster of two proxies shows that does its job.
var healthy = []series{
	{`offsetproxy_appends_total{outcome="won"}`, 0, 100_000}, {`offsetproxy_appends_total{outcome="taken"}`, 0, 5000},
	{`offsetproxy_appends_total{outcome="unknown"}`, 0, 10}, {`offsetproxy_appends_total{outcome="violation"}`, 7, 7},
	{`offsetproxy_alarms_total{alarm="misplaced"}`, 1, 1}, {`offsetproxy_alarms_total{alarm="bypassed"}`, 2, 2},
	{`offsetproxy_views_total{result="ok"}`, 0, 1000}, {`offsetproxy_views_total{result="refused"}`, 0, 5},
	{`offsetproxy_topics_unserved`, 0, 0}, {`offsetproxy_config_reload_failed`, 0, 0}, {`offsetproxy_tls_reload_failed`, 0, 0},
	{`offsetproxy_users_reload_failed`, 0, 0}, {`offsetproxy_upstream_reachable`, 1, 1}, {`offsetproxy_brokers_hidden{reason="port_in_use"}`, 0, 0}, {`offsetproxy_ready`, 1, 1}, {`offsetproxy_draining`, 0, 0},
	{`offsetproxy_tls_expires_seconds{side="upstream"}`, in(90), in(90)}, {`offsetproxy_tls_uncovered{side="listener main"}`, 0, 0}, {`offsetproxy_limits_hit_total{limit="max_connections"}`, 3, 3},
	{`offsetproxy_limits_hit_total{limit="max_held_bytes"}`, 0, 3000}, {`offsetproxy_limits_hit_total{limit="idle_timeout"}`, 0, 300}, {`offsetproxy_drain_requests_total{result="cut_by_timeout"}`, 0, 0},
	{`offsetproxy_agreement{hash="aa"}`, 1, 1}, {`offsetproxy_agreement{hash="aa", instance="other:9400"}`, 1, 1},
}

// symptoms is by which series each alert is raised, in place of healthy ones.
var symptoms = map[string][]series{
	"OffsetproxyViolation":           {{`offsetproxy_appends_total{outcome="violation"}`, 0, 8}},
	"OffsetproxyBypassSuspected":     {{`offsetproxy_alarms_total{alarm="bypassed"}`, 0, 8}},
	"OffsetproxyUnknown":             {{`offsetproxy_appends_total{outcome="unknown"}`, 0, 2000}},
	"OffsetproxyViewErrors":          {{`offsetproxy_views_total{result="unreachable"}`, 0, 300}},
	"OffsetproxyTopicUnserved":       {{`offsetproxy_topics_unserved`, 2, 2}},
	"OffsetproxyReloadFailed":        {{`offsetproxy_users_reload_failed`, 1, 1}},
	"OffsetproxyCertificateExpires":  {{`offsetproxy_tls_expires_seconds{side="listener main"}`, in(13), in(13)}},
	"OffsetproxyCertificateNames":    {{`offsetproxy_tls_uncovered{side="listener main"}`, 1, 1}},
	"OffsetproxyBrokerHidden":        {{`offsetproxy_brokers_hidden{reason="port_in_use"}`, 1, 1}},
	"OffsetproxyUpstreamUnreachable": {{`offsetproxy_upstream_reachable`, 0, 0}},
	"OffsetproxyNotReady":            {{`offsetproxy_ready`, 0, 0}},
	"OffsetproxyLimitHit":            {{`offsetproxy_limits_hit_total{limit="max_connections"}`, 0, 50}},
	"OffsetproxyDrainCut":            {{`offsetproxy_drain_requests_total{result="cut_by_timeout"}`, 3, 3}},
	"OffsetproxyDisagreement":        {{`offsetproxy_agreement{hash="bb", instance="third:9400"}`, 1, 1}},
}

// in is a time in so many days.
func in(days int) float64 { return float64(now.AddDate(0, 0, days).Unix()) }

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatal("alerts.yaml does not have one group")
	}
	return groups.Groups[0].Rules
}

func TestAlertsSayWhatToDo(t *testing.T) {
	for _, rule := range rules(t) {
		for _, annotation := range []string{"summary", "description", "runbook_url"} {
			if rule.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", rule.Alert, annotation)
			}
		}
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", rule.Alert, s)
		}
		if got, want := rule.Annotations["runbook_url"], "#"+strings.ToLower(rule.Alert); !strings.HasSuffix(got, want) {
			t.Errorf("%s leads to %s, want what ends in %s", rule.Alert, got, want)
		}
	}
}

// Each alert is raised by its symptom, and by nothing else.
func TestAlertsAreRaisedByTheirSymptoms(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	all := rules(t)
	if len(all) != len(symptoms) {
		t.Errorf("%d alerts, and symptoms of %d", len(all), len(symptoms))
	}
	for _, rule := range all {
		for what, shown := range map[string][]series{"healthy": nil, "its symptom": symptoms[rule.Alert]} {
			query, err := engine.NewInstantQuery(t.Context(), stored(shown), nil, rule.Expr, now)
			if err != nil {
				t.Fatalf("%s: %v", rule.Alert, err)
			}
			result := query.Exec(t.Context())
			raised, err := result.Vector()
			if err != nil {
				t.Fatalf("%s: %v", rule.Alert, err)
			}
			if got, want := len(raised) > 0, what != "healthy"; got != want {
				t.Errorf("%s, %s: raised %v, want %v", rule.Alert, what, got, want)
			}
			query.Close()
		}
	}
}

// The dashboard's queries are PromQL.
func TestDashboardCanBeAsked(t *testing.T) {
	text, err := os.ReadFile("../../grafana/offsetproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&dashboard); err != nil {
		t.Fatal(err)
	}
	seen := 0
	asked := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			seen++
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(asked.Replace(target.Expr)); err != nil {
				t.Errorf("%s: %s: %v", panel.Title, target.Expr, err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d queries were found", seen)
	}
}

// stored is a database with the healthy series, but for those that are shown instead.
func stored(shown []series) storage.Queryable {
	with := map[string]storage.Series{}
	for _, s := range slices.Concat(healthy, shown) {
		made := s.make()
		with[made.Labels().String()] = made
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			set := &found{at: -1}
			for _, name := range slices.Sorted(maps.Keys(with)) {
				if matches(with[name].Labels(), matchers) {
					set.series = append(set.series, with[name])
				}
			}
			return set
		},
	}}
}

func matches(of labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) })
}

// make gives the series with a sample each 15 seconds.
func (s series) make() storage.Series {
	parsed, err := parser.NewParser(parser.Options{}).ParseMetric(s.labels)
	if err != nil {
		panic(err) // the table is wrong
	}
	pairs := []string{"job", "offsetproxy"}
	if parsed.Get("instance") == "" {
		pairs = append(pairs, "instance", "proxy:9400")
	}
	parsed.Range(func(l labels.Label) { pairs = append(pairs, l.Name, l.Value) })
	const samples = 240
	var all []chunks.Sample
	for i := range samples + 1 {
		all = append(all, sample{now.Add(time.Duration(i-samples) * 15 * time.Second).UnixMilli(), s.from + (s.to-s.from)*float64(i)/samples})
	}
	return storage.NewListSeries(labels.FromStrings(pairs...), all)
}

// sample is a chunks.Sample that is a number.
type sample struct {
	at    int64 // milliseconds
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// found is a storage.SeriesSet.
type found struct {
	series []storage.Series
	at     int
}

func (f *found) Next() bool                        { f.at++; return f.at < len(f.series) }
func (f *found) At() storage.Series                { return f.series[f.at] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }
