package proxy

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	firstAcceptBackoff = 5 * time.Millisecond
	maxAcceptBackoff   = time.Second
	fullLogInterval    = time.Second
)

// serve starts accepting clients of one node, or of the bootstrap address
// (unknownNode), at an entrance. On a drain the listener is closed instead.
func (p *Proxy) serve(ctx context.Context, listener net.Listener, e *entrance, node int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		_ = listener.Close()
		return
	}
	p.listeners = append(p.listeners, listener)
	p.wg.Go(func() { p.acceptLoop(ctx, listener, e, node) })
}

// acceptLoop accepts until the listener is closed. Other errors pass: a
// process that has run out of descriptors gets some back when clients leave.
func (p *Proxy) acceptLoop(ctx context.Context, listener net.Listener, e *entrance, node int32) {
	backoff := firstAcceptBackoff
	for {
		client, err := listener.Accept()
		switch {
		case err == nil:
			backoff = firstAcceptBackoff
			p.accepted(client, e, node)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			p.cfg.Logger.Warn("accept failed, trying on", "listener", e.Name, "node", node, "err", err, "backoff", backoff)
			if !pause(ctx, backoff) {
				return
			}
			backoff = min(2*backoff, maxAcceptBackoff)
		}
	}
}

// turnedAway counts a client for which there is no room, and logs that, at
// most once per fullLogInterval.
func (p *Proxy) turnedAway(client net.Conn) {
	p.metrics.limit(limitConnections)
	last := p.fullLogged.Load()
	if now := time.Now().UnixNano(); now-last > int64(fullLogInterval) && p.fullLogged.CompareAndSwap(last, now) {
		p.cfg.Logger.Warn("too many connections, turning clients away",
			"max_connections", p.cfg.MaxConnections, "remote", client.RemoteAddr().String())
	}
}

// accepted starts serving a client, or turns it away.
func (p *Proxy) accepted(client net.Conn, e *entrance, node int32) {
	p.metrics.accepted.Add(1)
	p.mu.Lock()
	full := len(p.conns) >= p.cfg.MaxConnections
	if full || p.draining {
		p.mu.Unlock()
		if full {
			p.turnedAway(client)
		}
		_ = client.Close()
		return
	}
	c := newConn(p, client, e, node)
	p.conns[c] = struct{}{}
	p.wg.Go(func() {
		c.serve()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		p.metrics.open.Add(-1)
	})
	p.mu.Unlock()
	p.metrics.open.Add(1)
}
