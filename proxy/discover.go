package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	refreshInterval    = 30 * time.Second
	minRefreshInterval = time.Second
	firstBackoff       = 100 * time.Millisecond
	maxBackoff         = 5 * time.Second

	// discoveryVersion of Metadata is served by every broker since 1.0.
	discoveryVersion = 5
	clientID         = "offsetproxy"
)

// discoverLoop learns the cluster's brokers, at first until it works, then
// every refreshInterval and when asked.
func (p *Proxy) discoverLoop(ctx context.Context) {
	backoff := firstBackoff
	failing, hidden := false, false
	for ctx.Err() == nil {
		err := p.discover(ctx)
		if ctx.Err() == nil {
			p.looked(err)
		}
		wait := refreshInterval
		switch {
		case err == nil:
			if failing {
				p.cfg.Logger.Info("cluster reached again")
			}
			failing, backoff = false, firstBackoff
			p.markReady()
			if !pause(ctx, minRefreshInterval) {
				return
			}
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoPort):
			if !hidden {
				p.cfg.Logger.Error("every broker is hidden, so no client can be served; give them ports of their own or free the ones in use, trying on",
					"err", err)
			}
			hidden = true
			wait, backoff = backoff, min(2*backoff, maxBackoff)
		default:
			if !failing {
				p.cfg.Logger.Warn("cluster cannot be reached, trying on", "err", err)
			}
			failing = true
			wait, backoff = backoff, min(2*backoff, maxBackoff)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.wake:
			if failing {
				pause(ctx, firstBackoff)
			}
		}
		timer.Stop()
	}
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// refresh asks for a discovery soon. It never blocks.
func (p *Proxy) refresh() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// discover asks the bootstrap servers in order, then the brokers known, until
// one answers. The error is errNoPort if the answer leaves nobody to serve.
func (p *Proxy) discover(ctx context.Context) error {
	addresses := append([]string(nil), p.cfg.Bootstrap...)
	for _, b := range p.topology.candidates() {
		addresses = append(addresses, b.upstream)
	}
	var failures []error
	for _, address := range addresses {
		found, err := p.askMetadata(ctx, address)
		if err == nil {
			p.topology.discovered(found)
			if !p.topology.servesAny() {
				return errNoPort
			}
			return nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", address, err))
	}
	return fmt.Errorf("discover brokers: %w", errors.Join(failures...))
}

// askMetadata asks one server for the brokers of its cluster.
func (p *Proxy) askMetadata(ctx context.Context, address string) ([]broker, error) {
	conn, err := p.dialOwn(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(p.cfg.DialTimeout))

	request := kmsg.NewPtrMetadataRequest()
	request.Version = discoveryVersion
	request.Topics = []kmsg.MetadataRequestTopic{} // none, rather than all
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	if _, err := conn.Write(formatter.AppendRequest(nil, request, 0)); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	body, err := readAnswer(conn, p.cfg.MaxRewrittenBytes)
	if errors.Is(err, io.EOF) && p.cfg.Credentials.Mechanism == NoLogin {
		return nil, fmt.Errorf("%w: brokers close so on ports that expect a login (SASL) or TLS", err)
	}
	if err != nil {
		return nil, err
	}
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.Version = discoveryVersion
	if err := metadata.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", errAnswer, err)
	}
	var found []broker
	for _, b := range metadata.Brokers {
		found = append(found, broker{node: b.NodeID, upstream: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: metadata without brokers", errAnswer)
	}
	return found, nil
}

// readAnswer reads the body of a single answer with a header of version 0.
func readAnswer(conn net.Conn, maxBytes int) ([]byte, error) {
	in := wire.NewInbox(conn, inboxBytes, maxBytes)
	if err := in.Fill(8); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	size := int(int32(binary.BigEndian.Uint32(in.Bytes())))
	if size < 4 {
		return nil, fmt.Errorf("%w: length %d", errAnswer, size)
	}
	if err := in.Fill(4 + size); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return in.Bytes()[8 : 4+size], nil
}

// dial opens an upstream connection within DialTimeout.
func (p *Proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	conn, err := p.cfg.Dial(ctx, "tcp", address)
	if err != nil {
		p.metrics.dialErrors.Add(1)
		return nil, fmt.Errorf("dial: %w", err)
	}
	return conn, nil
}

// reached is an upstream connection of a client's.
type reached struct {
	conn     net.Conn
	node     int32
	openedAt ps.Instant // it was open by then
	term     loginTerm  // of the proxy's login for the client
}

// dialFor opens the upstream connection for a client that came in on the
// listener of a node, or on the bootstrap listener (unknownNode), which any
// live broker serves. With Credentials.ForClients it is logged in. The error wraps
// errNoBroker.
func (p *Proxy) dialFor(ctx context.Context, target int32) (reached, error) {
	var brokers []broker
	if target == unknownNode {
		if err := p.awaitDiscovery(ctx); err != nil {
			return reached{}, err
		}
		brokers = p.topology.candidates()
	} else if b, ok := p.topology.lookup(target); ok {
		brokers = append(brokers, b)
	}
	failures := []error{errNoBroker}
	for _, b := range brokers {
		r := reached{node: b.node}
		var err error
		if p.cfg.Credentials.ForClients {
			r.conn, r.term, err = p.dialLoggedIn(ctx, b.upstream)
		} else {
			r.conn, err = p.dial(ctx, b.upstream)
		}
		p.reached.tried(ctx, b.node, err)
		if err == nil {
			// A dial may outlast a restart of the broker, so this is after it.
			r.openedAt = instant()
			return r, nil
		}
		failures = append(failures, fmt.Errorf("broker %d: %w", b.node, err))
		if ctx.Err() != nil {
			break
		}
	}
	p.refresh()
	return reached{}, errors.Join(failures...)
}

// awaitDiscovery waits, for DialTimeout, until some broker is known.
func (p *Proxy) awaitDiscovery(ctx context.Context) error {
	timer := time.NewTimer(p.cfg.DialTimeout)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%w: none found yet", errNoBroker)
	}
}

// nodeIDs lists the live brokers; part of brokerSet.
func (p *Proxy) nodeIDs() []int32 { return *p.topology.live.Load() }

// dialNode opens a connection to a broker, logged in; part of brokerSet.
func (p *Proxy) dialNode(ctx context.Context, node int32) (net.Conn, error) {
	b, ok := p.topology.lookup(node)
	if !ok {
		p.refresh()
		return nil, fmt.Errorf("%w: node %d is not known", errNoBroker, node)
	}
	conn, err := p.dialOwn(ctx, b.upstream)
	p.reached.tried(ctx, node, err)
	return conn, err
}
