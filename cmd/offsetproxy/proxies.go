package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/offsetproxy/offsetproxy/proxy"
)

var (
	// errStopped means that a proxy ended without being asked to.
	errStopped = errors.New("the proxy stopped")
	// errInterrupted means that a proxy was asked to end before it served.
	errInterrupted = errors.New("interrupted before the proxy could serve")
)

// runningProxy is a proxy that serves until its context ends.
type runningProxy struct {
	*proxy.Proxy
	done chan struct{} // closed by runLoop when Run has returned
	err  error         // what Run returned; read after done
}

// watcher tells of a proxy from its start.
type watcher interface{ watch(p *proxy.Proxy) }

// startProxy runs a proxy until ctx ends and returns when it serves. The
// caller waits for it. The error is errInterrupted if ctx ended before.
func startProxy(ctx context.Context, cfg proxy.Config, watchers ...watcher) (*runningProxy, error) {
	p, err := proxy.New(cfg)
	if err != nil {
		return nil, err
	}
	for _, w := range watchers {
		w.watch(p)
	}
	r := &runningProxy{Proxy: p, done: make(chan struct{})}
	go r.runLoop(ctx)
	select {
	case <-p.Ready():
		return r, nil
	case <-r.done:
		switch {
		case r.err != nil:
			return nil, fmt.Errorf("start the proxy: %w", r.err)
		case ctx.Err() != nil:
			return nil, errInterrupted
		}
		return nil, errStopped
	}
}

// runLoop runs the proxy and keeps what came of it.
func (r *runningProxy) runLoop(ctx context.Context) {
	defer close(r.done)
	r.err = r.Run(ctx)
}

// wait waits until the proxy has drained after ctx has ended, the context that
// it was started with. Ending before that is errStopped.
func (r *runningProxy) wait(ctx context.Context) error {
	<-r.done
	if r.err == nil && ctx.Err() == nil {
		return errStopped
	}
	return r.err
}
