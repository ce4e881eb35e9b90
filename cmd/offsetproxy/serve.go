package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/version"
)

type serveCmd struct {
	Config string `help:"Take the settings from FILE (see check-config)." placeholder:"FILE"`
	settingFlags
	logFlags
	Unsafe bool `help:"Check only a cache and never fence: loses races. For demonstrations."`
}

// Help adds to the command's help.
func (serveCmd) Help() string {
	return `Settings come from a file, or all from flags; both at once is an error, but for
--log-level and --log-format, which override the file. Logs go to standard
error; the line "serving" has the addresses once clients can connect.

SIGTERM or SIGINT drains: no new connections, requests in flight are finished
(at most drain_timeout). A second one ends the process at once. Exit status: 0
after a drain; 1 if serving failed; 2 if the settings are wrong.

Examples:
    offsetproxy serve --config /etc/offsetproxy.yaml
    offsetproxy serve --bootstrap kafka-1:9092,kafka-2:9092 --require 'orders.*'
    offsetproxy serve --bootstrap kafka-1:9092 --listen 0.0.0.0:9092 --advertised-host proxy.internal --broker-ports 9093-9192 --require '*'`
}

// Run serves until the context ends.
func (c *serveCmd) Run(env *environment, parsed *kong.Context) error {
	settings, err := c.settings(parsed)
	if err != nil {
		return err
	}
	logger := newLogger(env.stderr, settings.LogLevel, settings.LogFormat)
	logger.Info("starting", "version", version.Current().Number, "bootstrap", settings.Proxy.Bootstrap, "rules", len(settings.Proxy.Rules))
	for _, note := range settings.Notes {
		logger.Warn("note on the settings", "note", note)
	}
	if c.Unsafe {
		settings.Proxy.Unsafe = true
		logger.Error("UNSAFE: the fence is off; appends are checked against a cache only and will be acknowledged at other offsets than promised")
	}
	settings.Proxy.Logger = logger

	var admin *adminServer
	if settings.MetricsListen != "" {
		admin, err = startAdmin(settings.MetricsListen, logger)
		if err != nil {
			return err
		}
		settings.Proxy.Meter = admin.meter
	}
	p, err := startProxy(env.ctx, settings.Proxy)
	if err != nil {
		return errors.Join(err, admin.close())
	}
	attrs := []any{"listen", p.Addr(), "brokers", brokerList(p.BrokerAddrs())}
	if admin != nil {
		attrs = append(attrs, "admin", admin.addr())
	}
	logger.Info("serving", attrs...)
	admin.setReady(true)
	select {
	case <-env.ctx.Done():
	case <-p.done:
	}
	admin.setReady(false)
	err = errors.Join(p.wait(), admin.close())
	if err == nil && env.ctx.Err() == nil {
		err = errStopped
	}
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

// newLogger writes lines of the given form.
func newLogger(w io.Writer, level slog.Level, format config.Format) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// brokerList writes broker addresses as "0=host:port 1=host:port".
func brokerList(addrs map[int32]string) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(addrs)) {
		parts = append(parts, fmt.Sprintf("%d=%s", node, addrs[node]))
	}
	return strings.Join(parts, " ")
}
