package main

import (
	"log/slog"
	"sync"
	"time"
)

// exporterErrorInterval is how often the log tells at most that telemetry is not sent.
const exporterErrorInterval = time.Minute

// exporterErrors logs what exporters complain of, which they do for each try. It may be
// used concurrently.
type exporterErrors struct {
	logger *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	logged time.Time // zero: never
	left   int       // out since then
}

// Handle implements otel.ErrorHandler.
func (e *exporterErrors) Handle(err error) {
	e.mu.Lock()
	now := e.now()
	quiet := !e.logged.IsZero() && now.Sub(e.logged) < exporterErrorInterval
	left := e.left
	if quiet {
		e.left++
	} else {
		e.logged, e.left = now, 0
	}
	e.mu.Unlock()
	if !quiet {
		e.logger.Warn("telemetry is not sent; clients are served all the same: see that the collector can be reached at the endpoint in OTEL_EXPORTER_OTLP_ENDPOINT",
			"err", err, "more_since_last_told", left)
	}
}
