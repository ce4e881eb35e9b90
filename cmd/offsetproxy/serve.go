package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/filewatch"
	"github.com/offsetproxy/offsetproxy/internal/resources"
	"github.com/offsetproxy/offsetproxy/internal/version"
	"github.com/offsetproxy/offsetproxy/proxy"
)

type serveCmd struct {
	Config string `help:"Take the settings from FILE (see check-config)." placeholder:"FILE"`
	settingFlags
	logFlags
	proofFlags
	NoWatch bool `help:"Read the file again on SIGHUP only, not when it changes."`
	Unsafe  bool `help:"Check only a cache and never fence: loses races. For demonstrations."`
}

// Help adds to the command's help.
func (serveCmd) Help() string {
	return `Settings come from a file, or all from flags; both at once is an error, but for
--log-level and --log-format, which override the file. Logs go to standard
error; the line "serving" has the addresses once clients can connect. /readyz says
503, and why, until then, while no broker can be reached, and from SIGTERM on; /livez
only if the process should be restarted.

When the file changes, or on SIGHUP, it is read again. Its rules are in force for
every request that comes from then on; what else has changed is named in a warning
and takes effect after a restart. A file that is wrong is refused in the log, and
nothing changes. Certificates, keys, authorities and users are read again when their files
change, for connections and logins from then on.

SIGTERM or SIGINT drains: /readyz says 503, after drain_delay no new connections
are accepted, requests in flight are finished (at most drain_timeout). A second one
ends the process at once. Exit status: 0 after a drain in which every request was
answered, or when no broker had answered yet; 6 if requests had to be cut off at
drain_timeout; 1 if serving failed; 2 if the settings are wrong; 130 at a second signal.

With OTEL_METRICS_EXPORTER=otlp metrics are sent to a collector, with
OTEL_TRACES_EXPORTER=otlp traces of conditional appends, as OpenTelemetry's other
variables say; by default nothing is sent.

Examples:
    offsetproxy serve --config /etc/offsetproxy.yaml
    offsetproxy serve --bootstrap kafka-1:9092,kafka-2:9092 --require 'orders.*'
    offsetproxy serve --bootstrap kafka-1:9092 --listen 0.0.0.0:9092 --advertised-host proxy.internal --broker-ports 9093-9192 --require '*'`
}

// Run serves until the context ends.
func (c *serveCmd) Run(env *environment, parsed *kong.Context) error {
	// From the start, since it ends a program that does not ask for it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	var reloads *reloader
	var watched []string
	if c.Config != "" && !c.NoWatch {
		watched = append(watched, c.Config)
	}
	watcher := filewatch.New(func() { reloads.changed() }, watched...)
	settings, err := c.settings(parsed)
	if err != nil {
		return err
	}
	if settings.Proxy.Credentials.Mechanism != proxy.NoLogin {
		// It is read again for each login, but what is missing now is a mistake.
		if _, err := settings.Password.Read(); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	logger := newLogger(env.stderr, settings.LogLevel, settings.LogFormat)
	logger.Info("starting", "version", version.Current().Number, "bootstrap", settings.Proxy.Bootstrap, "rules", len(settings.Proxy.Rules))
	for _, note := range settings.Notes {
		logger.Warn("note on the settings", "note", note)
	}
	for _, shortage := range resources.Shortages(resources.Read(), resources.Needed(&settings.Proxy, settings.UpstreamTLS != nil)) {
		logger.Warn("the system gives less than the settings allow clients to use", "shortage", shortage)
	}
	if c.Unsafe {
		settings.Proxy.Unsafe = true
		logger.Error("UNSAFE: the fence is off; appends are checked against a cache only and will be acknowledged at other offsets than promised")
	}
	settings.Proxy.Logger = logger
	certs, err := secure(settings, logger)
	if err != nil {
		return err
	}
	users, err := admit(settings, logger)
	if err != nil {
		return err
	}
	reloads = newReloader(settings, c.Config, c.fromFile, logger, hangups)
	reloads.watched = !c.NoWatch
	logger.Info("all proxies of the cluster must show the same agreement", "agreement", reloads.agreed.hash(), "rules_hash", reloads.started.RulesHash())
	if err := c.prove(logger); err != nil {
		return err
	}

	told, err := startTelemetry(env.ctx, settings.MetricsListen != "", logger)
	if err != nil {
		return err
	}
	defer told.close()
	settings.Proxy.Meter, settings.Proxy.Tracing = told.meter, told.tracing
	if told.meter != nil {
		if err := errors.Join(reloads.measure(told.meter), certs.measure(told.meter), users.measure(told.meter)); err != nil {
			return err
		}
	}
	var admin *adminServer
	if settings.MetricsListen != "" {
		admin, err = startAdmin(settings.MetricsListen, settings.Pprof, told.registry, logger)
		if err != nil {
			return err
		}
		admin.handle("GET "+agreementPath, reloads.agreed)
		admin.openStatusPage(statusSource{reloads: reloads, certs: certs, users: users, unsafe: c.Unsafe}, logger)
		logger.Info("admin endpoints open", "admin", admin.addr())
	}
	watching, endWatching := context.WithCancel(env.ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { watcher.Run(watching, logger) })
	watchers.Go(func() { certs.run(watching) })
	watchers.Go(func() { users.run(watching) })
	err = errors.Join(serveProxy(env.ctx, settings.Proxy, admin, told, reloads), admin.close())
	endWatching()
	watchers.Wait()
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

// serveProxy serves until ctx ends, and tells when clients can connect.
func serveProxy(ctx context.Context, cfg proxy.Config, admin *adminServer, told *telemetry, reloads *reloader) error {
	p, err := startProxy(ctx, cfg, admin, told)
	if errors.Is(err, errInterrupted) {
		return nil // nothing was served, so nothing was lost
	}
	if err != nil {
		return err
	}
	attrs := []any{"listen", p.Addr(), "brokers", brokerList(p.BrokerAddrs())}
	if others := p.Serving()[1:]; len(others) > 0 {
		attrs = append(attrs, slog.Group("others", listenerList(others)...))
	}
	if admin != nil {
		attrs = append(attrs, "admin", admin.addr())
	}
	cfg.Logger.Info("serving", attrs...)
	for {
		select {
		case <-reloads.hangups:
			reloads.reload(p.Proxy)
			continue
		case <-reloads.changes:
			reloads.reload(p.Proxy)
			continue
		case <-ctx.Done():
		case <-p.done:
		}
		err := p.wait(ctx)
		var cut *proxy.DrainError
		if errors.As(err, &cut) {
			return &exitError{exitCut, err}
		}
		return err
	}
}

// newLogger writes lines of the given form.
func newLogger(w io.Writer, level slog.Level, format config.Format) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.FormatJSON {
		opts.ReplaceAttr = durationsAsText
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// durationsAsText has JSON say lengths of time as text does, 10s, and not in nanoseconds.
func durationsAsText(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	}
	return attr
}

// listenerList writes where clients are served, by the listeners' names.
func listenerList(all []proxy.Serving) []any {
	var list []any
	for _, s := range all {
		list = append(list, slog.Group(s.Name, "listen", s.Addr, "brokers", brokerList(s.Brokers)))
	}
	return list
}

// brokerList writes broker addresses as "0=host:port 1=host:port".
func brokerList(addrs map[int32]string) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(addrs)) {
		parts = append(parts, fmt.Sprintf("%d=%s", node, addrs[node]))
	}
	return strings.Join(parts, " ")
}
