package proxy

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// stateInstruments is the table of what a proxy is looked at for when somebody asks.
var stateInstruments = []instrument{
	{"offsetproxy.ready", "{proxy}", "1 while clients may be sent to the proxy: it listens, a broker has answered, and it does not drain; else 0.", true,
		state(func(p *Proxy) int64 { return oneIf(p.NotReady() == "") })},
	{"offsetproxy.upstream.reachable", "{cluster}", "1 while the newest look for brokers found one, else 0.", true,
		state(func(p *Proxy) int64 {
			reach := p.reach.Load()
			return oneIf(reach != nil && reach.err == nil)
		})},
	{"offsetproxy.upstream.open", "{connection}", "Connections to brokers for clients that are open now.", true,
		state(func(p *Proxy) int64 { open, _ := p.goingOn(); return open })},
	{"offsetproxy.requests.pending", "{request}", "Requests that are not answered yet, of all connections.", true,
		state(func(p *Proxy) int64 { _, pending := p.goingOn(); return pending })},
	{"offsetproxy.draining", "{proxy}", "1 from SIGTERM on, else 0.", true,
		state(func(p *Proxy) int64 { return oneIf(p.leaving.Load()) })},
	{"offsetproxy.drain.requests", "{request}", "Requests that were in flight when the drain began, by what became of them: answered, or cut off by drain_timeout, with their client, or with the broker's connection.", false,
		readDrained},
	{"offsetproxy.brokers.hidden", "{broker}", "Brokers that clients of a listener are not told of now, once for each listener, by reason: the node id has no port, another program has it, or it cannot be listened on.", true,
		readHidden},
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// state reads one number of the proxy itself.
func state(value func(*Proxy) int64) func(*metrics, func(int64, metric.MeasurementOption)) {
	return func(m *metrics, observe func(int64, metric.MeasurementOption)) {
		if p := m.proxy.Load(); p != nil {
			observe(value(p), noAttributes)
		}
	}
}

func readDrained(m *metrics, observe func(int64, metric.MeasurementOption)) {
	p := m.proxy.Load()
	if p == nil {
		return
	}
	p.mu.Lock()
	d := p.drained
	p.mu.Unlock()
	for _, part := range []struct {
		result string
		n      int
	}{{"answered", d.answered}, {"cut_by_timeout", d.late}, {"client_gone", d.clientGone}, {"upstream_lost", d.upstreamLost}} {
		observe(int64(part.n), metric.WithAttributes(attribute.String("result", part.result)))
	}
}

// goingOn counts open connections to brokers, and requests without an answer.
func (p *Proxy) goingOn() (upstream, pending int64) {
	p.mu.Lock()
	open := p.connsLocked()
	p.mu.Unlock()
	for _, c := range open {
		c.mu.Lock()
		upstream += oneIf(c.upstream != nil && c.upstreamErr == nil)
		pending += int64(c.slots.len())
		c.mu.Unlock()
	}
	return upstream, pending
}
