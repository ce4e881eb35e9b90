package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// Kind is what one broker was seen to be.
type Kind struct {
	// MarksBy says by what it marks duplicates, as metrics do: "nothing" if by
	// nothing that was seen.
	MarksBy string
	// Marks reports whether it does.
	Marks bool
	// Embedded: it is kfake, which tells none of its limits and forgets nothing.
	Embedded bool
	// Refusal says, for a person, why nothing on it can be fenced; empty: it can.
	Refusal string
}

// ProbeKind learns what a broker is as a proxy with this configuration would, by up
// to four records on the probe topic, which must exist: nothing is created, and no
// other topic is written to. cfg is in force, its Logger may be nil. It takes
// ControlTimeout at most for each of its steps. The error says, for a person, what it
// takes to probe the broker.
func ProbeKind(ctx context.Context, cfg Config, node int32, address string) (Kind, error) {
	if err := cfg.validate(); err != nil {
		return Kind{}, err
	}
	pool := prober.New(prober.Config{
		Dial:   func(ctx context.Context, _ int32) (net.Conn, error) { return cfg.dialOnce(ctx, address) },
		Logger: cfg.Logger, FenceID: cfg.FenceID, RequestTimeout: cfg.ControlTimeout, MaxFrame: cfg.MaxControlBytes,
		StateFrom: prober.AsProbed,
	})
	running, stop := context.WithCancel(ctx)
	var cleaned sync.WaitGroup
	cleaned.Go(func() { _ = pool.Run(running) }) // it returns nil
	defer cleaned.Wait()
	defer stop()
	seen, _, err := pool.Probe(ctx, node, cfg.ProbeTopic)
	if err != nil {
		return Kind{}, &unprobedError{(&kindBook{topic: cfg.ProbeTopic}).missing(node, err), err}
	}
	kind := kindOf(seen)
	if cfg.BrokerKind != AutoKind {
		kind = (&kindBook{asserted: cfg.BrokerKind}).contradiction(seen)
	}
	return Kind{MarksBy: markingName(kind.marking), Marks: kind.marking != fence.MarkNone, Embedded: kind.embedded, Refusal: kind.refusal}, nil
}

// unprobedError says, for a person, what it takes to probe a broker.
type unprobedError struct {
	reason string
	err    error
}

func (e *unprobedError) Error() string { return e.reason }

func (e *unprobedError) Unwrap() error { return e.err }

// dialOnce opens a connection of the proxy's own, logged in, within DialTimeout.
func (c *Config) dialOnce(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	conn, err := c.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if c.Credentials.Mechanism == NoLogin {
		return conn, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	_, err = c.Credentials.login(ctx, onConn(conn), address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}
