package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/metric"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/filewatch"
	"github.com/offsetproxy/offsetproxy/internal/localusers"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// localUsers are those who log in at the proxy, read again when their files change.
type localUsers struct {
	logger  *slog.Logger
	stores  map[string]*localusers.Store // by file
	watcher *filewatch.Watcher
	reloads reloadCounts
}

// admit reads the users files that settings name, and has the listeners use them.
func admit(settings *config.Settings, logger *slog.Logger) (*localUsers, error) {
	files := slices.Compact(slices.Sorted(maps.Values(settings.ListenerUsers)))
	u := &localUsers{logger: logger, stores: map[string]*localusers.Store{}}
	// Before they are read, so that no change is missed.
	u.watcher = filewatch.New(u.reload, files...)
	var wrong []error
	for _, file := range files {
		store, err := localusers.Load(file)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		u.stores[file] = store
	}
	if len(wrong) > 0 {
		return nil, &exitError{exitUsage, errors.Join(wrong...)}
	}
	for i := range settings.Proxy.Listeners {
		l := &settings.Proxy.Listeners[i]
		if l.Login == nil {
			continue
		}
		store := u.stores[settings.ListenerUsers[l.Name]]
		login := *l.Login
		login.Begin = func(m proxy.Mechanism) proxy.LoginSession { return store.Begin(localusers.Mechanism(m)) }
		l.Login = &login
		logger.Info("users log in at the proxy", "listener", l.Name, "file", store.Path(), "users", store.Len())
	}
	return u, nil
}

// run takes over what the files hold from now on, until ctx ends.
func (u *localUsers) run(ctx context.Context) { u.watcher.Run(ctx, u.logger) }

// reload takes over what the files hold, or says why not. Who has logged in stays.
func (u *localUsers) reload() {
	failed := false
	for _, file := range slices.Sorted(maps.Keys(u.stores)) {
		store := u.stores[file]
		if err := store.Reload(); err != nil {
			failed = true
			u.logger.Error("users file refused, so the users read before stay: mend it, it is read again when it changes", "file", file, "err", err)
			continue
		}
		u.logger.Info("users file read again; it counts for logins from now on", "file", file, "users", store.Len())
	}
	u.reloads.note(failed)
}

// measure registers what is measured.
func (u *localUsers) measure(meter metric.Meter) error {
	return u.reloads.measure(meter, reloadMetrics{
		name:     "offsetproxy.users",
		reloads:  "Times that users files changed and were read again, by result: taken over, or refused so that the users from before stay.",
		unit:     "{file}",
		inFailed: "1 while a users file that changed is refused and the users from before are in force, else 0.",
	})
}
