package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// metricsDoc is written by TestMetricsAreDocumented.
var metricsDoc = filepath.Join("..", "..", "docs", "metrics.md")

// documented is a metric as docs/metrics.md has it.
type documented struct {
	name, unit, description string
	kind                    otlptranslator.MetricType
	labels                  map[string][]string // values by label
}

// takingDown is a meter that notes what is registered with it.
type takingDown struct {
	metric.Meter
	seen *[]documented
}

func (m takingDown) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	c := metric.NewInt64ObservableCounterConfig(o...)
	*m.seen = append(*m.seen, documented{name, c.Unit(), c.Description(), otlptranslator.MetricTypeMonotonicCounter, nil})
	return m.Meter.Int64ObservableCounter(name, o...)
}

func (m takingDown) Int64ObservableUpDownCounter(name string, o ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	c := metric.NewInt64ObservableUpDownCounterConfig(o...)
	*m.seen = append(*m.seen, documented{name, c.Unit(), c.Description(), otlptranslator.MetricTypeNonMonotonicCounter, nil})
	return m.Meter.Int64ObservableUpDownCounter(name, o...)
}

func (m takingDown) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(o...)
	*m.seen = append(*m.seen, documented{name, c.Unit(), c.Description(), otlptranslator.MetricTypeGauge, nil})
	return m.Meter.Int64ObservableGauge(name, o...)
}

// openLabels are labels whose values depend on who uses the proxy, with what they are.
var openLabels = map[string]map[string]string{
	"offsetproxy.requests":          {"api": "Kafka's name of the API; Unknown: none of them"},
	"offsetproxy.requests.denied":   {"api": "as above"},
	"offsetproxy.answers.rewritten": {"api": "as above"},
	"offsetproxy.logins":            {"listener": "its name", "mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, other", "result": "ok, refused, failed"},
	"offsetproxy.upstream.logins":   {"mechanism": "as above, and OAUTHBEARER", "result": "ok, refused, failed"},
	"offsetproxy.topic.appends":     {"topic": "its name, or (other)", "outcome": "as of offsetproxy.appends"},
	"offsetproxy.rules.since":       {"hash": "of the rules"},
	"offsetproxy.agreement":         {"hash": "of all of it"},
	"offsetproxy.tls.expires":       {"side": "upstream, or listener NAME"},
	"offsetproxy.tls.uncovered":     {"side": "listener NAME"},
}

// metricAdvice is what to do, where it is not obvious.
var metricAdvice = map[string]string{
	"offsetproxy.appends":              `violation: stop the writers, see [troubleshooting](troubleshooting.md#offsetproxyviolation). unknown: look at the brokers. Many taken: writers race, which is their business`,
	"offsetproxy.appends.conflicts":    "much by fence: writers of a partition come through several proxies, or around them",
	"offsetproxy.appends.hold":         "sent, long: several writers share a partition, or the broker is slow; larger batches help",
	"offsetproxy.appends.admission":    "long: the brokers are slow to tell of topics, or clients ask for offsets far behind the end",
	"offsetproxy.appends.retries":      "hold_expired: the partition is overloaded or its leader does not answer. same_view_refused, state_near_expiry: see [troubleshooting](troubleshooting.md)",
	"offsetproxy.appends.refusals":     "the log has each at level debug; not_served is logged once a topic, with the reason",
	"offsetproxy.topics.unserved":      "the log says why; `offsetproxy doctor` does too",
	"offsetproxy.topics.weak":          "raise min.insync.replicas, switch unclean leader election off",
	"offsetproxy.views":                "unreachable, refused: the log of the brokers, and the rights of the proxy's principal",
	"offsetproxy.views.duration":       "long: writers go around the proxy, or the broker is slow",
	"offsetproxy.alarms":               `any: see [troubleshooting](troubleshooting.md#offsetproxybypasssuspected)`,
	"offsetproxy.limits.hit":           "raise the limit, or find the client: the log names it",
	"offsetproxy.input.malformed":      "the log names the client; http or tls: somebody speaks another protocol to this port",
	"offsetproxy.brokers.unmapped":     "clients ask, and do not see a broker: see offsetproxy.brokers.hidden for why",
	"offsetproxy.brokers.hidden":       "no_port: make broker_ports wide enough, or add node_ports. port_in_use: free the port, or choose other broker_ports; the log names it",
	"offsetproxy.upstream.dial_errors": "brokers are down, or the network between",
	"offsetproxy.upstream.reachable":   "0: no broker answers; see the log",
	"offsetproxy.memory.buffered":      "near limits.max_buffered: requests wait for memory",
	"offsetproxy.views.evicted":        "raise limits.idle_views",
	"offsetproxy.producers.evicted":    "raise limits.max_producers or idle_producers",
	"offsetproxy.config.reload_failed": "1: mend the file; the log names the line",
	"offsetproxy.tls.reload_failed":    "1: mend the files; the log names them",
	"offsetproxy.users.reload_failed":  "1: mend the file; the log names the line",
	"offsetproxy.tls.expires":          "renew it: files are read again when they change",
	"offsetproxy.tls.uncovered":        "not 0: clients that check the certificate are locked out; have it issued for the names too",
	"offsetproxy.agreement":            "more than one hash in a cluster: `offsetproxy doctor --proxies` says in what they differ",
	"offsetproxy.rules.settling":       "1 for longer than ten seconds: a request to a topic that changed sides is not answered",
	"offsetproxy.brokers":              "nothing: grant the proxy its rights on the probe topic, or assert the kind",
	"offsetproxy.drain.requests":       "cut_by_timeout: raise limits.drain_timeout",
	"offsetproxy.logins":               "refused: wrong passwords; the log names the client",
	"offsetproxy.upstream.logins":      "refused, failed: the proxy's own credentials",
	"offsetproxy.requests.denied":      "a client that may only read writes; see the listener's read_only, allow_apis, deny_apis",
	"offsetproxy.appends.in_flight":    "grows and stays: the brokers do not answer",
	"offsetproxy.requests.pending":     "grows and stays: the brokers do not answer",
	"offsetproxy.observed":             "before you switch a rule on: taken and not_reached would have been refused, unconditional would be by require",
	"offsetproxy.ready":                "/readyz says why it is 0",
	"offsetproxy.appends.duration":     "won, long: the brokers, and holds",
}

// allMetrics is everything that the program measures, by what registers it.
func allMetrics(t *testing.T) []documented {
	t.Helper()
	settings, err := config.Parse("f.yaml", []byte("bootstrap: k:9092\nmetrics: {per_topic: true}"))
	if err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	var seen []documented
	meter := takingDown{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), &seen}
	settings.Proxy.Meter, settings.Proxy.Logger = meter, slog.New(slog.DiscardHandler)
	p, err := proxy.New(settings.Proxy)
	if err != nil {
		t.Fatal(err)
	}
	others := []interface{ measure(metric.Meter) error }{
		newReloader(settings, "f.yaml", nil, settings.Proxy.Logger, nil), &certificates{}, &localUsers{},
	}
	for _, o := range others {
		if err := o.measure(meter); err != nil {
			t.Fatal(err)
		}
	}
	labels := labelsOf(t, reader)
	for _, timing := range p.Timings() {
		d := documented{timing.Name, "s", timing.Description, otlptranslator.MetricTypeHistogram, nil}
		labels[d.name] = map[string][]string{}
		for _, s := range timing.Series {
			for _, l := range s.Attributes.ToSlice() {
				labels[d.name][string(l.Key)] = append(labels[d.name][string(l.Key)], l.Value.AsString())
			}
		}
		seen = append(seen, d)
	}
	for i := range seen {
		d := &seen[i]
		d.labels = labels[d.name]
		if open, ok := openLabels[d.name]; ok {
			d.labels = map[string][]string{}
			for label, text := range open {
				d.labels[label] = []string{text}
			}
		} else if d.labels == nil {
			t.Errorf("%s has no series before there are clients: say in openLabels which labels it has", d.name)
		}
	}
	slices.SortFunc(seen, func(a, b documented) int { return cmp.Compare(a.name, b.name) })
	return seen
}

// labelsOf gives the values of the labels of all metrics that have any series.
func labelsOf(t *testing.T, reader sdkmetric.Reader) map[string]map[string][]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string][]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			var points []metricdata.DataPoint[int64]
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				points = data.DataPoints
			case metricdata.Gauge[int64]:
				points = data.DataPoints
			default:
				t.Fatalf("%s is of a kind that this test does not know", m.Name)
			}
			labels[m.Name] = map[string][]string{}
			for _, point := range points {
				for _, l := range point.Attributes.ToSlice() {
					labels[m.Name][string(l.Key)] = append(labels[m.Name][string(l.Key)], l.Value.AsString())
				}
			}
		}
	}
	return labels
}

// promName is what Prometheus calls a metric, by the rules of the exporter.
func (d documented) promName(t *testing.T) string {
	t.Helper()
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	name, err := namer.Build(otlptranslator.Metric{Name: d.name, Unit: d.unit, Type: d.kind})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// row is the metric's line of the table.
func (d documented) row(t *testing.T) string {
	kind := map[otlptranslator.MetricType]string{
		otlptranslator.MetricTypeMonotonicCounter: "counter", otlptranslator.MetricTypeNonMonotonicCounter: "gauge",
		otlptranslator.MetricTypeGauge: "gauge", otlptranslator.MetricTypeHistogram: "histogram",
	}[d.kind]
	if unit := strings.Trim(d.unit, "{}"); unit != "" {
		kind += ", " + map[string]string{"By": "bytes", "s": "seconds"}[unit]
		if kind[len(kind)-2:] == ", " {
			kind += unit
		}
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(d.labels)) {
		values := slices.Clone(d.labels[label])
		slices.Sort(values)
		labels = append(labels, fmt.Sprintf("`%s`: %s", label, strings.Join(slices.Compact(values), ", ")))
	}
	return fmt.Sprintf("| `%s`<br>`%s` | %s | %s | %s | %s |\n", d.name, d.promName(t), kind, strings.Join(labels, "; "), d.description, metricAdvice[d.name])
}

const metricsDocHead = `# What the proxy measures

Prometheus finds all of it at ` + "`/metrics`" + ` of ` + "`metrics.listen`" + `, beside the Go runtime's and the
process's own (` + "`go_*`, `process_*`" + `). An OpenTelemetry collector gets it, but for these, if
the environment says so; by default nothing is sent anywhere:

    OTEL_METRICS_EXPORTER=otlp OTEL_TRACES_EXPORTER=otlp \
    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 \
    offsetproxy serve --config /etc/offsetproxy.yaml

| variable | what it says |
|---|---|
| ` + "`OTEL_METRICS_EXPORTER`, `OTEL_TRACES_EXPORTER`" + ` | ` + "`otlp`" + `: sent; not set, or ` + "`none`" + `: not |
| ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + ` | where to; a URL |
| ` + "`OTEL_EXPORTER_OTLP_PROTOCOL`" + ` | ` + "`http/protobuf`" + ` (default), or ` + "`grpc`" + ` |
| ` + "`OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT`, `…_COMPRESSION`, `…_CERTIFICATE`, `…_CLIENT_CERTIFICATE`, `…_CLIENT_KEY`" + ` | as OpenTelemetry has them; each also for one of both, as in ` + "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`" + ` |
| ` + "`OTEL_METRIC_EXPORT_INTERVAL`" + ` | how often, in milliseconds; default 60000 |
| ` + "`OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`" + ` | which appends are traced; default ` + "`parentbased_always_on`" + `: those of sampled traces, and all without one. ` + "`parentbased_always_off`" + `: only the former |
| ` + "`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`" + ` | which process it is; default ` + "`offsetproxy`" + ` |
| ` + "`OTEL_SDK_DISABLED`" + ` | ` + "`true`" + `: nothing is sent |

What is wrong with them is said at start (exit status 2). A collector that cannot be reached
is named in the log once a minute, and disturbs nobody; what is left at the end is sent for
five seconds at most.

**Traces.** Each append with a condition that is sampled has a span ` + "`conditional append`" + `, from the
arrival of its request to its verdict, in the trace that its record names in the headers
` + "`traceparent` and `tracestate`" + ` (W3C Trace Context; of a batch, its first record). Attributes:
` + "`messaging.destination.name`, `messaging.destination.partition.id`, `offsetproxy.expected_offset`," + `
` + "`offsetproxy.outcome`" + ` (as below), ` + "`messaging.kafka.offset`" + ` if it was appended, ` + "`offsetproxy.error_code`" + `
if not; an event ` + "`sent`" + ` for each time that it went to the broker. Never the contents of records.

**The log** has a line for each violation (level error) and for each refusal (debug).

**Dashboard and alerts** are in [deploy/grafana](../deploy/grafana/offsetproxy.json) and
[deploy/prometheus](../deploy/prometheus/alerts.yaml). What to do at each alert is in
[troubleshooting.md](troubleshooting.md).

No label has values that clients can make up: the number of series is bounded. Series by topic
are off unless ` + "`metrics.per_topic`" + ` is on, and then of ` + "`metrics.max_topics`" + ` topics at most (100);
what is beyond is counted under ` + "`(other)`" + `, which no topic can be called, and as a hit of that limit.

This table is written by a test from what the program registers; CONTRIBUTING.md says how to
write it anew.

| metric | kind, unit | labels | meaning | what to do |
|---|---|---|---|---|
`

// TestMetricsAreDocumented compares docs/metrics.md with what is measured; -rewrite
// writes it.
func TestMetricsAreDocumented(t *testing.T) {
	text, known := metricsDocHead, map[string]bool{}
	for _, d := range allMetrics(t) {
		text += d.row(t)
		known[d.name] = true
		if d.description == "" {
			t.Errorf("%s has no description", d.name)
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(metricAdvice)), slices.Collect(maps.Keys(openLabels))) {
		if !known[name] {
			t.Errorf("the test knows of %s, which is not measured", name)
		}
	}
	if *rewrite {
		if err := os.WriteFile(metricsDoc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("docs/metrics.md is not what is measured: go test ./cmd/offsetproxy -run TestMetricsAreDocumented -rewrite")
	}
}

// The names that Prometheus sees are those of the document.
func TestPrometheusNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	timings := &timingProducer{}
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithProducer(timings))
	if err != nil {
		t.Fatal(err)
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)).Meter(meterName)
	p, err := proxy.New(proxy.Config{Bootstrap: []string{"k:9092"}, Listen: "127.0.0.1:0", Meter: meter, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	timings.proxy.Store(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, d := range allMetrics(t) {
		want = append(want, d.promName(t))
	}
	if len(families) < 20 {
		t.Errorf("got %d families only", len(families))
	}
	for _, family := range families {
		if name := family.GetName(); name != "target_info" && !slices.Contains(want, name) {
			t.Errorf("Prometheus sees %s, which docs/metrics.md does not have", name)
		}
	}
}
