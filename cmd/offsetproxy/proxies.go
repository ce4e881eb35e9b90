package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// errStopped means that a proxy ended without being asked to.
var errStopped = errors.New("the proxy stopped")

// runningProxy is a proxy that serves until its context ends.
type runningProxy struct {
	*proxy.Proxy
	done chan struct{} // closed by the goroutine in startProxy when Run has returned
	err  error         // what Run returned; read after done
}

// startProxy runs a proxy until ctx ends and returns when it serves. The
// caller waits for it.
func startProxy(ctx context.Context, cfg proxy.Config) (*runningProxy, error) {
	p, err := proxy.New(cfg)
	if err != nil {
		return nil, err
	}
	r := &runningProxy{Proxy: p, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		defer close(r.done)
		r.err = p.Run(ctx)
	}()
	select {
	case <-p.Ready():
		return r, nil
	case <-r.done:
		if r.err != nil {
			return nil, fmt.Errorf("start the proxy: %w", r.err)
		}
		return nil, errStopped
	}
}

// wait waits until the proxy has drained, after its context ended.
func (r *runningProxy) wait() error {
	<-r.done
	if errors.Is(r.err, context.Canceled) {
		return nil
	}
	return r.err
}
