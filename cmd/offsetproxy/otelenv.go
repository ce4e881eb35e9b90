package main

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// otlpProtocol is how metrics and traces are sent to a collector.
type otlpProtocol string

const (
	otlpNone otlpProtocol = "" // not sent
	otlpHTTP otlpProtocol = "http/protobuf"
	otlpGRPC otlpProtocol = "grpc"
)

// exports is what is sent to a collector, by OpenTelemetry's standard environment
// variables. Their names and values are its specification's; what they say beyond this
// the exporters read themselves.
type exports struct {
	metrics, traces otlpProtocol
	// sampled says which batches are traced.
	sampled func(parent trace.SpanContext) bool
	// notes say, for a person, what may not be meant.
	notes []string
}

// environmentError is all that is wrong with OpenTelemetry's variables.
type environmentError struct{ problems []string }

func (e *environmentError) Error() string {
	return "environment: " + strings.Join(e.problems, "\nenvironment: ")
}

// variables reads OpenTelemetry's variables and collects what is wrong. Values of
// headers are secrets, and are never shown.
type variables struct {
	get      func(string) string
	problems []string
}

func (v *variables) wrong(name, format string, args ...any) {
	problem := name + ": " + fmt.Sprintf(format, args...)
	if !slices.Contains(v.problems, problem) { // most variables are of both signals
		v.problems = append(v.problems, problem)
	}
}

// readExports reads them; prometheus: metrics are served at /metrics. The error is an
// *environmentError.
func readExports(get func(string) string, prometheus bool) (exports, error) {
	v := &variables{get: get}
	var e exports
	if off := get("OTEL_SDK_DISABLED"); off != "" {
		if disabled, err := strconv.ParseBool(off); err != nil {
			v.wrong("OTEL_SDK_DISABLED", "%q is neither true nor false", off)
		} else if disabled {
			return e, nil
		}
	}
	if v.sends("METRICS", "prometheus") {
		e.metrics = v.protocol("METRICS")
		v.positive("OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT")
		v.oneOf("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "cumulative", "delta", "lowmemory")
	}
	if slices.Contains(v.list("OTEL_METRICS_EXPORTER"), "prometheus") && !prometheus {
		v.wrong("OTEL_METRICS_EXPORTER", "prometheus: metrics are served at /metrics of metrics.listen (--metrics-listen), which is not set")
	}
	if v.sends("TRACES") {
		e.traces = v.protocol("TRACES")
		v.positive("OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
		e.sampled = v.sampler()
	}
	if slices.Contains(v.list("OTEL_LOGS_EXPORTER"), "otlp") {
		e.notes = append(e.notes, "OTEL_LOGS_EXPORTER=otlp: logs are written to standard error alone, and not sent")
	}
	endpoint := get("OTEL_EXPORTER_OTLP_ENDPOINT") + get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") + get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint != "" && get("OTEL_METRICS_EXPORTER") == "" && get("OTEL_TRACES_EXPORTER") == "" {
		e.notes = append(e.notes, "an endpoint of OTLP is set and nothing is sent there: OTEL_METRICS_EXPORTER=otlp has metrics sent, OTEL_TRACES_EXPORTER=otlp traces")
	}
	if len(v.problems) > 0 {
		return exports{}, &environmentError{v.problems}
	}
	return e, nil
}

func (v *variables) list(name string) []string {
	var all []string
	for part := range strings.SplitSeq(v.get(name), ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// sends reports whether a signal goes to a collector; others are exporters that need
// nothing.
func (v *variables) sends(signal string, others ...string) bool {
	name, sends := "OTEL_"+signal+"_EXPORTER", false
	for _, exporter := range v.list(name) {
		switch {
		case exporter == "otlp":
			sends = true
		case exporter == "none", slices.Contains(others, exporter):
		default:
			v.wrong(name, "%q is not an exporter that this program has; %s are", exporter, strings.Join(append([]string{"otlp", "none"}, others...), ", "))
		}
	}
	return sends
}

// protocol reads how a signal is sent, and checks what the exporter will read.
func (v *variables) protocol(signal string) otlpProtocol {
	protocol := otlpHTTP
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_" + signal + "_"} {
		switch p := v.get(prefix + "PROTOCOL"); otlpProtocol(p) {
		case "":
		case otlpHTTP, otlpGRPC:
			protocol = otlpProtocol(p)
		default:
			v.wrong(prefix+"PROTOCOL", "%q is not a protocol that this program speaks; %s and %s are", p, otlpHTTP, otlpGRPC)
		}
		v.endpoint(prefix + "ENDPOINT")
		v.positive(prefix + "TIMEOUT")
		v.oneOf(prefix+"COMPRESSION", "gzip", "none")
		v.oneOf(prefix+"INSECURE", "true", "false")
		for i, header := range v.list(prefix + "HEADERS") {
			if name, _, ok := strings.Cut(header, "="); !ok || strings.TrimSpace(name) == "" {
				v.wrong(prefix+"HEADERS", "entry %d is not name=value", i+1)
			}
		}
		for _, file := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
			if path := v.get(prefix + file); path != "" {
				if _, err := os.ReadFile(path); err != nil {
					v.wrong(prefix+file, "%v", err)
				}
			}
		}
	}
	return protocol
}

func (v *variables) endpoint(name string) {
	value := v.get(name)
	if value == "" {
		return
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		v.wrong(name, "not the URL of a collector, as in http://collector:4318") // it may have a password
	}
}

func (v *variables) positive(names ...string) {
	for _, name := range names {
		if value := v.get(name); value != "" {
			if n, err := strconv.Atoi(value); err != nil || n <= 0 {
				v.wrong(name, "%q is not a positive whole number", value)
			}
		}
	}
}

func (v *variables) oneOf(name string, allowed ...string) {
	if value := v.get(name); value != "" && !slices.Contains(allowed, strings.ToLower(value)) {
		v.wrong(name, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
}

// sampler reads which traces are recorded. It decides for batches without a parent by
// chance, since nothing else has the same trace yet.
func (v *variables) sampler() func(trace.SpanContext) bool {
	const sampler, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	name := strings.ToLower(strings.TrimSpace(v.get(sampler)))
	kind, byParent := strings.CutPrefix(name, "parentbased_")
	if name == "" {
		kind, byParent = "always_on", true
	}
	share := 1.0
	switch kind {
	case "always_on":
	case "always_off":
		share = 0
	case "traceidratio":
		if text := v.get(argument); text != "" {
			var err error
			if share, err = strconv.ParseFloat(text, 64); err != nil || !(0 <= share && share <= 1) {
				v.wrong(argument, "%q is not a number from 0 to 1", text)
			}
		}
	default:
		v.wrong(sampler, "%q is not a sampler that this program has; always_on, always_off, traceidratio and each with parentbased_ in front are", name)
	}
	return func(parent trace.SpanContext) bool {
		switch {
		case byParent && parent.IsValid():
			return parent.IsSampled()
		case parent.IsValid():
			return inShare(parent.TraceID(), share)
		}
		return rand.Float64() < share
	}
}

// inShare decides by the trace's id, as OpenTelemetry's samplers do, so that all who
// have a part in a trace decide alike.
func inShare(id trace.TraceID, share float64) bool {
	var low uint64
	for _, b := range id[8:] {
		low = low<<8 | uint64(b)
	}
	return float64(low>>1) < share*(1<<63)
}
