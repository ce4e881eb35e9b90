package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	firstAcceptBackoff = 5 * time.Millisecond
	maxAcceptBackoff   = time.Second
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
	p.accepting.Add(1)
	p.wg.Go(func() {
		defer p.accepting.Add(-1)
		p.acceptLoop(ctx, listener, e, node)
	})
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
			p.cfg.Logger.Warn("accept failed, trying on", withAdvice(err, "listener", e.Name, "node", node, "backoff", backoff)...)
			if !pause(ctx, backoff) {
				return
			}
			backoff = min(2*backoff, maxAcceptBackoff)
		}
	}
}

// withAdvice adds an error to what the log says, with what to do about it if that is
// known.
func withAdvice(err error, attrs ...any) []any {
	attrs = append(attrs, "err", err)
	if advice := descriptorAdvice(err); advice != "" {
		attrs = append(attrs, "advice", advice)
	}
	return attrs
}

// descriptorAdvice says what to do about an error, if that is for want of
// descriptors.
func descriptorAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "the process has no file descriptor left, and each client takes two: raise its limit (ulimit -n, LimitNOFILE), or lower limits.max_connections"
	case errors.Is(err, syscall.ENFILE):
		return "the system has no file descriptor left: raise fs.file-max"
	}
	return ""
}

// accepted starts serving a client, or turns it away.
func (p *Proxy) accepted(client net.Conn, e *entrance, node int32) {
	p.metrics.accepted.Add(1)
	address, free := netip.Prefix{}, true
	if e.ProxyProtocol == nil { // else its address is yet to be told
		address, free = p.addresses.enter(client.RemoteAddr())
	}
	p.mu.Lock()
	full := len(p.conns) >= p.cfg.MaxConnections
	if full || !free || p.draining {
		p.mu.Unlock()
		p.addresses.leave(address)
		switch {
		case full:
			p.metrics.limit(limitConnections, "remote", client.RemoteAddr().String())
		case !free:
			p.tooManyOf(client.RemoteAddr())
		}
		_ = client.Close()
		return
	}
	c := newConn(p, client, e, node)
	c.address = address
	p.conns[c] = struct{}{}
	p.metrics.open.Add(1)
	e.clients.Add(1)
	p.wg.Go(func() {
		c.serve()
		p.addresses.leave(c.address)
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		p.metrics.open.Add(-1)
		e.clients.Add(-1)
	})
	p.mu.Unlock()
}

// tooManyOf says that an address has as many connections as it may.
func (p *Proxy) tooManyOf(address net.Addr) {
	p.metrics.limit(limitAddress, "remote", address.String())
}
