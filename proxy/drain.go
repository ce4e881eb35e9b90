package proxy

import (
	"context"
	"fmt"
	"time"
)

// DrainError says that a drain has cut off requests in flight, since
// Config.DrainTimeout was not enough. Whether brokers acted on them is not known.
type DrainError struct {
	// Connections and Requests are how many were cut off.
	Connections, Requests int
}

// Error implements error.
func (e *DrainError) Error() string {
	return fmt.Sprintf("drain_timeout was over before %d requests on %d connections were answered, which were cut off", e.Requests, e.Connections)
}

// drained is what became of the requests that were in flight when a drain began.
// Proxy.mu guards it.
type drained struct {
	answered int
	// Cut off: by the timeout, and on how many connections; with a client that has
	// gone; with the upstream connection.
	late, lateConnections int
	clientGone            int
	upstreamLost          int
}

// leave waits, while clients are still accepted, until load balancers have had time
// to see that the proxy is not ready any more.
func (p *Proxy) leave() {
	p.leaving.Store(true)
	if p.cfg.DrainDelay > 0 {
		p.cfg.Logger.Info("not ready any more, draining soon", "delay", p.cfg.DrainDelay)
		pause(context.Background(), p.cfg.DrainDelay)
	}
}

// drain ends all that Run started.
func (p *Proxy) drain() error {
	begun := time.Now()
	p.topology.close()
	p.mu.Lock()
	p.draining = true
	listeners := p.listeners
	open := p.connsLocked()
	p.mu.Unlock()
	p.cfg.Logger.Info("draining", "connections", len(open), "timeout", p.cfg.DrainTimeout)
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, c := range open {
		c.drain()
	}
	cut := time.AfterFunc(p.cfg.DrainTimeout, func() {
		p.mu.Lock()
		left := p.connsLocked()
		p.mu.Unlock()
		p.cfg.Logger.Warn("drain timed out, cutting connections", "connections", len(left))
		for _, c := range left {
			c.abort(errAborted)
		}
	})
	p.wg.Wait()
	cut.Stop()
	p.mu.Lock()
	d := p.drained
	p.mu.Unlock()
	p.cfg.Logger.Info("drained", "took", time.Since(begun), "answered", d.answered,
		"cut_by_timeout", d.late, "client_gone", d.clientGone, "upstream_lost", d.upstreamLost)
	if d.late > 0 {
		return &DrainError{Connections: d.lateConnections, Requests: d.late}
	}
	return nil
}

func (p *Proxy) connsLocked() []*conn {
	open := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		open = append(open, c)
	}
	return open
}

// drain ends the connection in order, and has what becomes of its requests counted.
func (c *conn) drain() {
	c.mu.Lock()
	c.drainedFrom = c.popped + 1
	c.mu.Unlock()
	c.closeAfter(errDraining)
}

// countDrained counts what has become of the requests in flight, when no more of them
// will be answered.
func (c *conn) countDrained(clientGone bool) {
	c.mu.Lock()
	from, answered, left := c.drainedFrom, int(c.popped+1-c.drainedFrom), c.slots.len()
	late, gone := c.aborted || c.timedOut, clientGone || c.clientDead
	c.mu.Unlock()
	if from == 0 {
		return
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	d := &c.p.drained
	d.answered += answered
	switch {
	case left == 0:
	case late:
		d.late += left
		d.lateConnections++
	case gone:
		d.clientGone += left
	default:
		d.upstreamLost += left
	}
}

// poppedLocked counts answers that have left the front of the slots.
func (c *conn) poppedLocked(n int) {
	if !c.clientDead {
		c.popped += int64(n)
	}
}
