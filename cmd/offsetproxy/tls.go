package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/filewatch"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
)

// upstreamSide names the certificates that brokers are shown and trusted by.
const upstreamSide = "upstream"

// listenerSide names the certificates of a listener.
func listenerSide(name string) string { return "listener " + name }

// certificates are the TLS files of all sides, read again when they change.
type certificates struct {
	logger  *slog.Logger
	stores  map[string]*tlsfiles.Store // by listener, and upstreamSide
	hosts   map[string][]string        // by listener: what its certificate has to be good for
	watcher *filewatch.Watcher
	reloads reloadCounts
}

// sidesOf are the TLS files that settings name, by listener, and upstreamSide.
func sidesOf(settings *config.Settings) map[string]tlsfiles.Files {
	sides := map[string]tlsfiles.Files{}
	for name, files := range settings.ListenerTLS {
		sides[listenerSide(name)] = files
	}
	if settings.UpstreamTLS != nil {
		sides[upstreamSide] = *settings.UpstreamTLS
	}
	return sides
}

// secure reads the TLS files that settings name, and has the proxy use them.
func secure(settings *config.Settings, logger *slog.Logger) (*certificates, error) {
	sides := sidesOf(settings)
	var names []string
	for _, files := range sides {
		names = append(names, files.Names()...)
	}
	slices.Sort(names)
	c := &certificates{logger: logger, stores: map[string]*tlsfiles.Store{}, hosts: map[string][]string{}}
	// Before they are read, so that no change is missed.
	c.watcher = filewatch.New(c.reload, slices.Compact(names)...)
	var wrong []error
	for side, files := range sides {
		store, err := tlsfiles.Load(files)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("TLS of %s: %w", side, err))
			continue
		}
		c.stores[side] = store
		c.warnOfExpiry(side, store)
	}
	if len(wrong) > 0 {
		return nil, &exitError{exitUsage, errors.Join(wrong...)}
	}
	for i := range settings.Proxy.Listeners {
		l := &settings.Proxy.Listeners[i]
		side := listenerSide(l.Name)
		store := c.stores[side]
		if store == nil {
			continue
		}
		l.TLS = store.Server()
		c.hosts[side] = l.CertificateHosts()
		c.warnOfHosts(side)
	}
	if store := c.stores[upstreamSide]; store != nil {
		settings.Proxy.Dial = (&tlsfiles.Dialer{Store: store}).DialContext
	}
	return c, nil
}

// run takes over what the files hold from now on, until ctx ends.
func (c *certificates) run(ctx context.Context) { c.watcher.Run(ctx, c.logger) }

// reload takes over what the files hold, or says why not.
func (c *certificates) reload() {
	failed := false
	for _, side := range slices.Sorted(maps.Keys(c.stores)) {
		store := c.stores[side]
		before := store.NotAfter()
		if err := store.Reload(); err != nil {
			failed = true
			c.logger.Error("TLS files refused, so those read before stay in force: mend them, they are read again when they change", "side", side, "err", err)
			continue
		}
		c.logger.Info("TLS files read again", "side", side, "expires", store.NotAfter(), "expired_before", before)
		c.warnOfExpiry(side, store)
		c.warnOfHosts(side)
	}
	c.reloads.note(failed)
}

func (c *certificates) warnOfExpiry(side string, store *tlsfiles.Store) {
	if at := store.NotAfter(); !at.IsZero() && time.Until(at) < tlsfiles.ExpiresSoon {
		c.logger.Warn("a certificate expires soon, or has: renew it, the files are read again when they change", "side", side, "expires", at)
	}
}

// uncovered are the names that clients of a side are told and that its certificate, as
// it was read last, is not good for.
func (c *certificates) uncovered(side string) []string {
	var lacks []string
	for _, host := range c.hosts[side] {
		if c.stores[side].Covers(host) != nil {
			lacks = append(lacks, host)
		}
	}
	return lacks
}

func (c *certificates) warnOfHosts(side string) {
	for _, host := range c.uncovered(side) {
		c.logger.Error("clients will not accept the certificate for a name that they are told: have it issued for that name too, the files are read again when they change",
			"side", side, "name", host, "err", c.stores[side].Covers(host))
	}
}

// measure registers what is measured.
func (c *certificates) measure(meter metric.Meter) error {
	expiry, err := meter.Int64ObservableGauge("offsetproxy.tls.expires", metric.WithUnit("s"),
		metric.WithDescription("When the certificate of a side expires, or the authorities that it trusts, in seconds since 1970, by side: upstream, or a listener."))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	uncovered, err := meter.Int64ObservableGauge("offsetproxy.tls.uncovered", metric.WithUnit("{name}"),
		metric.WithDescription("Names that clients of a listener are told and that its certificate is not good for, by side; one broker's name stands for all."))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for side, store := range c.stores {
			of := metric.WithAttributes(attribute.String("side", side))
			if at := store.NotAfter(); !at.IsZero() {
				o.ObserveInt64(expiry, at.Unix(), of)
			}
			if len(c.hosts[side]) > 0 {
				o.ObserveInt64(uncovered, int64(len(c.uncovered(side))), of)
			}
		}
		return nil
	}, expiry, uncovered)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return c.reloads.measure(meter, reloadMetrics{
		name:     "offsetproxy.tls",
		reloads:  "Times that TLS files changed and were read again, by result: taken over, or refused so that those before stay.",
		unit:     "{side}",
		inFailed: "1 while TLS files that changed are refused and those before in force, else 0.",
	})
}
