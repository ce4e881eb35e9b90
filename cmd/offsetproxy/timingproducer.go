package main

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// timingProducer gives what a proxy has timed to whoever collects metrics. It may be
// used concurrently.
type timingProducer struct {
	since time.Time
	proxy atomic.Pointer[proxy.Proxy] // nil: nothing was timed yet
}

// Produce implements metric.Producer.
func (p *timingProducer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	watched := p.proxy.Load()
	if watched == nil {
		return nil, nil
	}
	now := time.Now()
	produced := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: meterName}}
	for _, timing := range watched.Timings() {
		h := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		var bounds []float64
		for _, bound := range timing.Bounds {
			bounds = append(bounds, bound.Seconds())
		}
		for _, s := range timing.Series {
			point := metricdata.HistogramDataPoint[float64]{
				Attributes: s.Attributes, StartTime: p.since, Time: now,
				Bounds: bounds, BucketCounts: s.Counts, Sum: s.Sum.Seconds(),
			}
			for _, n := range s.Counts {
				point.Count += n
			}
			h.DataPoints = append(h.DataPoints, point)
		}
		produced.Metrics = append(produced.Metrics, metricdata.Metrics{
			Name: timing.Name, Description: timing.Description, Unit: "s", Data: h,
		})
	}
	return []metricdata.ScopeMetrics{produced}, nil
}
