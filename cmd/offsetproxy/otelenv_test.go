package main

import (
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// variablesOf is an environment, from NAME=value lines.
func variablesOf(lines ...string) func(string) string {
	set := map[string]string{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		set[name] = value
	}
	return func(name string) string { return set[name] }
}

func TestExportsByEnvironment(t *testing.T) {
	for _, c := range []struct {
		name            string
		set             []string
		metrics, traces otlpProtocol
		notes           int
	}{
		{"nothing", nil, otlpNone, otlpNone, 0},
		{"metrics", []string{"OTEL_METRICS_EXPORTER=otlp"}, otlpHTTP, otlpNone, 0},
		{"both, one by gRPC", []string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, otlpHTTP, otlpGRPC, 0},
		{"both by gRPC, one not", []string{"OTEL_METRICS_EXPORTER=prometheus, otlp", "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, otlpGRPC, otlpHTTP, 0},
		{"what Prometheus asks for", []string{"OTEL_METRICS_EXPORTER=prometheus", "OTEL_TRACES_EXPORTER=none"}, otlpNone, otlpNone, 0},
		{"switched off", []string{"OTEL_SDK_DISABLED=true", "OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=otlp"}, otlpNone, otlpNone, 0},
		{"an endpoint alone", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"}, otlpNone, otlpNone, 1},
		{"logs", []string{"OTEL_LOGS_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none"}, otlpNone, otlpNone, 1},
		{"wrong for what is not used", []string{"OTEL_EXPORTER_OTLP_PROTOCOL=pigeon"}, otlpNone, otlpNone, 0},
	} {
		got, err := readExports(variablesOf(c.set...), true)
		if err != nil || got.metrics != c.metrics || got.traces != c.traces || len(got.notes) != c.notes {
			t.Errorf("%s: got metrics %q, traces %q, notes %q, error %v; want %q, %q, %d notes", c.name, got.metrics, got.traces, got.notes, err, c.metrics, c.traces, c.notes)
		}
	}
}

func TestWrongEnvironmentIsRefused(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"OTEL_METRICS_EXPORTER=statsd", `OTEL_METRICS_EXPORTER: "statsd" is not an exporter that this program has; otlp, none, prometheus are`},
		{"OTEL_TRACES_EXPORTER=zipkin", `OTEL_TRACES_EXPORTER: "zipkin" is not an exporter that this program has; otlp, none are`},
		{"OTEL_METRICS_EXPORTER=prometheus", "OTEL_METRICS_EXPORTER: prometheus: metrics are served at /metrics of metrics.listen (--metrics-listen), which is not set"},
		{"OTEL_SDK_DISABLED=perhaps", `OTEL_SDK_DISABLED: "perhaps" is neither true nor false`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not a protocol that this program speaks; http/protobuf and grpc are`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT: not the URL of a collector, as in http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=ftp://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: not the URL of a collector, as in http://collector:4318"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", `OTEL_EXPORTER_OTLP_TIMEOUT: "10s" is not a positive whole number`},
		{"OTEL_METRIC_EXPORT_INTERVAL=0", `OTEL_METRIC_EXPORT_INTERVAL: "0" is not a positive whole number`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=many", `OTEL_BSP_MAX_QUEUE_SIZE: "many" is not a positive whole number`},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=zip", `OTEL_EXPORTER_OTLP_COMPRESSION: "zip" is none of gzip, none`},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=both", `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: "both" is none of cumulative, delta, lowmemory`},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=b, secret", "OTEL_EXPORTER_OTLP_HEADERS: entry 2 is not name=value"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/not/there", "OTEL_EXPORTER_OTLP_CERTIFICATE: open /not/there: no such file or directory"},
		{"OTEL_TRACES_SAMPLER=sometimes", `OTEL_TRACES_SAMPLER: "sometimes" is not a sampler that this program has; always_on, always_off, traceidratio and each with parentbased_ in front are`},
		{"OTEL_TRACES_SAMPLER_ARG=2", `OTEL_TRACES_SAMPLER_ARG: "2" is not a number from 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG=NaN", `OTEL_TRACES_SAMPLER_ARG: "NaN" is not a number from 0 to 1`},
	} {
		// The last one of a name counts.
		_, err := readExports(variablesOf("OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", c.set), false)
		var wrong *environmentError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want an error about the environment", c.set, err)
			continue
		}
		if len(wrong.problems) != 1 || wrong.problems[0] != c.want {
			t.Errorf("%s: got %q, want %q", c.set, wrong.problems, c.want)
		}
	}
}

func TestSamplers(t *testing.T) {
	parent := func(last byte, sampled trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0: 1, 8: last}, SpanID: trace.SpanID{1}, TraceFlags: sampled})
	}
	none, yes, no := trace.SpanContext{}, parent(0xff, trace.FlagsSampled), parent(0xff, 0)
	for _, c := range []struct {
		set    []string
		parent trace.SpanContext
		want   bool
	}{
		{nil, none, true},
		{nil, yes, true},
		{nil, no, false},
		{[]string{"OTEL_TRACES_SAMPLER=always_on"}, no, true},
		{[]string{"OTEL_TRACES_SAMPLER=always_off"}, yes, false},
		{[]string{"OTEL_TRACES_SAMPLER=parentbased_always_off"}, none, false},
		{[]string{"OTEL_TRACES_SAMPLER=parentbased_always_off"}, yes, true},
		{[]string{"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"}, none, false},
		{[]string{"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=1"}, none, true},
		{[]string{"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.5"}, yes, false},
		{[]string{"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.5"}, parent(0x7f, 0), true},
		{[]string{"OTEL_TRACES_SAMPLER=traceidratio"}, no, true},
	} {
		e, err := readExports(variablesOf(append(c.set, "OTEL_TRACES_EXPORTER=otlp")...), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.sampled(c.parent); got != c.want {
			t.Errorf("%q with parent %v: got %v, want %v", c.set, c.parent, got, c.want)
		}
	}
}
