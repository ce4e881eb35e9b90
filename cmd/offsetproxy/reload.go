package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// reloader reads the configuration again while the proxy runs. Its rules are
// taken over; all else that has changed waits for a restart.
type reloader struct {
	// file is the configuration's name; empty: settings came from flags.
	file string
	// watched has the file read again when it changes, and not on SIGHUP alone.
	watched bool
	load    func() (*config.Settings, error)
	logger  *slog.Logger
	// hangups asks for it; sent by the runtime, never closed. Capacity 1: signals
	// that come while one waits ask for the same.
	hangups <-chan os.Signal
	// changes asks for it because the file has changed; sent by its watcher, never
	// closed, capacity 1.
	changes chan struct{}

	// started is what the proxy runs with but for its rules, those of rules.
	started config.Effective
	rules   atomic.Pointer[rulesInForce]
	agreed  *agreed

	reloads reloadCounts
	// lastRefused is the last configuration that was refused; nil: none was.
	lastRefused atomic.Pointer[refusedReload]
}

// rulesInForce is what is shown of the rules.
type rulesInForce struct {
	hash  string
	since time.Time
}

func newReloader(settings *config.Settings, file string, load func() (*config.Settings, error), logger *slog.Logger, hangups <-chan os.Signal) *reloader {
	r := &reloader{file: file, load: load, logger: logger, hangups: hangups, changes: make(chan struct{}, 1), started: settings.Effective(), agreed: newAgreed(settings.Terms())}
	r.rules.Store(&rulesInForce{r.started.RulesHash(), time.Now()})
	return r
}

// measure registers what is measured.
func (r *reloader) measure(meter metric.Meter) error {
	since, err := meter.Int64ObservableGauge("offsetproxy.rules.since", metric.WithUnit("s"),
		metric.WithDescription("When the rules in force were taken over, in seconds since 1970; the hash is the same in all proxies with the same rules."))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		rules := r.rules.Load()
		o.ObserveInt64(since, rules.since.Unix(), metric.WithAttributes(attribute.String("hash", rules.hash)))
		return nil
	}, since)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if err := r.agreed.measure(meter); err != nil {
		return err
	}
	return r.reloads.measure(meter, reloadMetrics{
		name:     "offsetproxy.config",
		reloads:  "Times that the configuration was read again, by result: taken over, or refused so that the one before stays.",
		unit:     "{config}",
		inFailed: "1 while the configuration that was read last is refused and the one before in force, else 0.",
	})
}

// changed asks for the file to be read again soon. It may be called from any
// goroutine.
func (r *reloader) changed() {
	select {
	case r.changes <- struct{}{}:
	default:
	}
}

// reload reads the configuration and has p take over its rules, or says why not.
func (r *reloader) reload(p *proxy.Proxy) {
	if r.file == "" {
		r.logger.Warn("SIGHUP has the configuration file read again, and there is none: settings came from flags, so nothing has changed")
		return
	}
	settings, err := r.load()
	if err == nil {
		err = p.ChangeRules(settings.Proxy.Rules, settings.Proxy.Default)
	}
	if err != nil {
		r.reloads.note(true)
		r.lastRefused.Store(refusedBy(err))
		refused := "configuration refused, so the one before stays in force: mend the file and send SIGHUP again"
		if r.watched {
			refused = "configuration refused, so the one before stays in force: mend the file, it is read again when it changes"
		}
		r.logger.Error(refused, "file", r.file, "problems", problems(err))
		return
	}
	effective := settings.Effective()
	hash := effective.RulesHash()
	r.reloads.note(false)
	for _, note := range settings.Notes {
		r.logger.Warn("note on the settings", "note", note)
	}
	if before := r.rules.Load(); before.hash == hash {
		r.logger.Info("configuration read again; its rules are those in force", "file", r.file, "hash", hash)
	} else {
		r.rules.Store(&rulesInForce{hash, time.Now()})
		agreedBefore := r.agreed.hash()
		now := r.agreed.take(settings.Terms().Rules)
		r.logger.Info("configuration read again; other rules are in force", "file", r.file, "rules", len(effective.Rules), "hash", hash, "hash_before", before.hash,
			"agreement", now.Hash, "agreement_before", agreedBefore)
	}
	if changed := r.started.Differences(effective); len(changed) > 0 {
		r.logger.Warn("these settings changed, and take effect after a restart", "file", r.file, "settings", changed)
	}
}

// problems says what is wrong, each thing with its line.
func problems(err error) []string {
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return []string{err.Error()}
	}
	var list []string
	for _, p := range wrong.Problems {
		text := p.Message
		if p.Path != "" {
			text = p.Path + ": " + text
		}
		if p.Line > 0 {
			text = fmt.Sprintf("line %d: %s", p.Line, text)
		}
		list = append(list, text)
	}
	return list
}
