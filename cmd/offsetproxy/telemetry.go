package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/offsetproxy/offsetproxy/internal/version"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// meterName is the instrumentation scope of all that the program measures and traces.
const meterName = "github.com/offsetproxy/offsetproxy"

// telemetryCloseTimeout bounds how long the last metrics and traces may take to be sent.
const telemetryCloseTimeout = 5 * time.Second

// telemetry is what the process tells of itself, beside its log: to Prometheus, which
// asks, and to a collector. By default it tells nobody.
type telemetry struct {
	logger *slog.Logger
	// meter is nil if nobody asks and nothing is sent.
	meter metric.Meter
	// registry is what /metrics shows; nil: it is not served.
	registry *prometheus.Registry
	// tracing is nil if no traces are sent.
	tracing *proxy.Tracing

	timings *timingProducer
	metrics *sdkmetric.MeterProvider
	traces  *sdktrace.TracerProvider
}

// startTelemetry has metrics be collected for /metrics, if they are served there, and
// metrics and traces be sent as OpenTelemetry's environment variables say. An error about
// these is an *exitError.
func startTelemetry(ctx context.Context, served bool, logger *slog.Logger) (*telemetry, error) {
	to, err := readExports(os.Getenv, served)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	for _, note := range to.notes {
		logger.Warn("note on the environment", "note", note)
	}
	t := &telemetry{logger: logger, timings: &timingProducer{since: time.Now()}}
	if !served && to.metrics == otlpNone && to.traces == otlpNone {
		return t, nil
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "offsetproxy"), attribute.String("service.version", version.Current().Number)),
		resource.WithFromEnv())
	if err != nil {
		return nil, &exitError{exitUsage, &environmentError{[]string{fmt.Sprintf("OTEL_RESOURCE_ATTRIBUTES: %v", err)}}}
	}
	if to.metrics != otlpNone || to.traces != otlpNone {
		otel.SetErrorHandler(&exporterErrors{logger: logger, now: time.Now})
	}
	if err := errors.Join(t.startMetrics(ctx, served, to.metrics, from), t.startTraces(ctx, to, from)); err != nil {
		return nil, errors.Join(err, t.shutdown())
	}
	return t, nil
}

func (t *telemetry) startMetrics(ctx context.Context, served bool, protocol otlpProtocol, from *resource.Resource) error {
	// The series are bounded where they are made.
	options := []sdkmetric.Option{sdkmetric.WithResource(from), sdkmetric.WithCardinalityLimit(0)}
	if served {
		t.registry = prometheus.NewRegistry()
		t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		exporter, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo(), otelprom.WithProducer(t.timings))
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(exporter))
	}
	if protocol != otlpNone {
		exporter, err := newMetricExporter(ctx, protocol)
		if err != nil {
			return fmt.Errorf("send metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(t.timings))))
		t.logger.Info("metrics are sent to a collector", "protocol", string(protocol))
	}
	if !served && protocol == otlpNone {
		return nil
	}
	t.metrics = sdkmetric.NewMeterProvider(options...)
	t.meter = t.metrics.Meter(meterName)
	return nil
}

func newMetricExporter(ctx context.Context, protocol otlpProtocol) (sdkmetric.Exporter, error) {
	if protocol == otlpGRPC {
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

func (t *telemetry) startTraces(ctx context.Context, to exports, from *resource.Resource) error {
	var exporter sdktrace.SpanExporter
	var err error
	switch to.traces {
	case otlpNone:
		return nil
	case otlpGRPC:
		exporter, err = otlptracegrpc.New(ctx)
	default:
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	// What is traced was decided before; what the collector does not take in time is
	// dropped.
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithBatcher(exporter))
	t.tracing = &proxy.Tracing{Tracer: t.traces.Tracer(meterName), Sampled: to.sampled}
	t.logger.Info("traces of conditional appends are sent to a collector", "protocol", string(to.traces))
	return nil
}

// watch has it tell of a proxy.
func (t *telemetry) watch(p *proxy.Proxy) { t.timings.proxy.Store(p) }

// close sends what is left, for telemetryCloseTimeout at most, and ends.
func (t *telemetry) close() {
	if err := t.shutdown(); err != nil {
		t.logger.Warn("the last metrics or traces could not be sent", "err", err)
	}
}

func (t *telemetry) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), telemetryCloseTimeout)
	defer cancel()
	var of [2]error
	if t.metrics != nil {
		of[0] = t.metrics.Shutdown(ctx)
	}
	if t.traces != nil {
		of[1] = t.traces.Shutdown(ctx)
	}
	return errors.Join(of[:]...)
}
