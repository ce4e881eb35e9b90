package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// reloadCounts tells what came of reading something again that has changed. The zero
// value has seen nothing; its methods may be called concurrently.
type reloadCounts struct {
	taken, refused atomic.Int64
	failed         atomic.Bool // the last one was refused
}

// note counts a reload.
func (r *reloadCounts) note(failed bool) {
	r.failed.Store(failed)
	if failed {
		r.refused.Add(1)
	} else {
		r.taken.Add(1)
	}
}

// reloadMetrics is what the metrics of reloads are called and say.
type reloadMetrics struct {
	name           string // they are name.reloads and name.reload_failed
	reloads        string // description of the counter, by result
	unit, inFailed string // of the gauge
}

// measure registers what is measured.
func (r *reloadCounts) measure(meter metric.Meter, m reloadMetrics) error {
	reloads, err := meter.Int64ObservableCounter(m.name+".reloads", metric.WithUnit("{reload}"), metric.WithDescription(m.reloads))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	failed, err := meter.Int64ObservableGauge(m.name+".reload_failed", metric.WithUnit(m.unit), metric.WithDescription(m.inFailed))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	result := func(name string) metric.MeasurementOption {
		return metric.WithAttributes(attribute.String("result", name))
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(reloads, r.taken.Load(), result("taken"))
		o.ObserveInt64(reloads, r.refused.Load(), result("refused"))
		one := int64(0)
		if r.failed.Load() {
			one = 1
		}
		o.ObserveInt64(failed, one)
		return nil
	}, reloads, failed)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
