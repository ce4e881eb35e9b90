package proxy

import (
	"errors"
	"fmt"
	"time"
)

// ErrDead says that a Proxy does not do its work any more and should be restarted.
var ErrDead = errors.New("proxy: dead")

// lookout is what the newest look for brokers came to.
type lookout struct {
	err   error // nil: one has answered
	since time.Time
}

// looked notes what a look for brokers came to.
func (p *Proxy) looked(err error) {
	before := p.reach.Load()
	if before == nil || (before.err == nil) != (err == nil) {
		p.reach.Store(&lookout{err, time.Now()})
		return
	}
	p.reach.Store(&lookout{err, before.since})
}

// Live reports whether the proxy lives: its listeners accept, unless it drains. It
// waits for the proxy's own locks, so that one that is stuck does not answer. The
// error wraps ErrDead.
func (p *Proxy) Live() error {
	p.topology.mu.Lock()
	draining := p.topology.closed
	p.topology.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if dead := len(p.listeners) - int(p.accepting.Load()); dead > 0 && !draining {
		return fmt.Errorf("%w: %d of %d listeners do not accept any more", ErrDead, dead, len(p.listeners))
	}
	return nil
}

// NotReady says, for a person, why no clients should be sent to the proxy now: it does
// not listen yet, it drains, or the newest look for brokers found none. Empty: they
// may.
func (p *Proxy) NotReady() string {
	if p.leaving.Load() {
		return "draining"
	}
	reach := p.reach.Load()
	switch {
	case p.Addr() == "":
		return "not listening yet"
	case reach == nil:
		return "no broker has answered yet"
	case reach.err != nil:
		return fmt.Sprintf("no broker can be reached since %s: %v", reach.since.Format(time.RFC3339), reach.err)
	}
	return ""
}
