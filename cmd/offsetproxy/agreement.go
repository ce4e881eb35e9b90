package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
	"github.com/offsetproxy/offsetproxy/internal/version"
)

// agreementPath is where a proxy shows what it must have in common with the others.
const agreementPath = "/agreement.json"

// agreementShown is what is served there. Its form is what doctor reads, of any
// version of the program.
type agreementShown struct {
	agreement.Agreement
	// Since is when it came into force, in UTC.
	Since time.Time `json:"since"`
	// Version is the program's, which proxies need not have in common.
	Version string `json:"version"`
}

// agreed is what this proxy shows of itself: what is in force, of which rules alone
// change while it runs. Its methods may be called concurrently.
type agreed struct {
	terms agreement.Terms // but for the rules
	shown atomic.Pointer[agreementShown]
}

func newAgreed(terms agreement.Terms) *agreed {
	a := &agreed{terms: terms}
	a.take(terms.Rules)
	return a
}

// take has other rules be in force, and gives what is shown from then on. One
// goroutine calls it.
func (a *agreed) take(rules json.RawMessage) agreement.Agreement {
	terms := a.terms
	terms.Rules = rules
	now := &agreementShown{Agreement: agreement.Of(terms), Since: time.Now().UTC(), Version: version.Current().Number}
	if before := a.shown.Load(); before == nil || before.Hash != now.Hash {
		a.shown.Store(now)
	}
	return now.Agreement
}

// hash stands for all of it.
func (a *agreed) hash() string { return string(a.shown.Load().Hash) }

// ServeHTTP answers a request for it.
func (a *agreed) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(a.shown.Load()) // fails only when the client has gone
}

// measure registers what is measured.
func (a *agreed) measure(meter metric.Meter) error {
	_, err := meter.Int64ObservableGauge("offsetproxy.agreement",
		metric.WithDescription("1, with the hash of what all proxies of a cluster must have in common (see /agreement.json): proxies with other hashes do not agree."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, metric.WithAttributes(attribute.String("hash", a.hash())))
			return nil
		}))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
