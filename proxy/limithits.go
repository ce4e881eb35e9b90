package proxy

import "time"

// hitLogInterval is how often the log tells of each limit at most.
const hitLogInterval = time.Second

// limitHit counts that a limit has made a connection wait or end, and tells the
// operator, at most once per hitLogInterval for each limit.
func (p *Proxy) limitHit(name, message string, attrs ...any) {
	p.metrics.limit(name)
	logged := p.hitsLogged[name]
	last := logged.Load()
	if now := time.Now().UnixNano(); now-last > int64(hitLogInterval) && logged.CompareAndSwap(last, now) {
		p.cfg.Logger.Warn(message, append(attrs, "limit", name)...)
	}
}
