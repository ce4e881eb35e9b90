package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
)

// entrance is a Listener at work. Its methods may be called concurrently.
type entrance struct {
	Listener        // in force
	index    int    // among the proxy's
	host     string // of Listen
	// bound is the address that clients bootstrap from; nil before Run listens.
	bound atomic.Pointer[net.Addr]
	// clients is how many of its clients are connected.
	clients atomic.Int64
}

func newEntrances(cfg *Config) []*entrance {
	var all []*entrance
	for i, l := range cfg.AllListeners() {
		host, _, _ := splitAddress(l.Listen) // checked by validate
		all = append(all, &entrance{Listener: l, index: i, host: host})
	}
	return all
}

// open listens for clients that bootstrap.
func (e *entrance) open(listen func(network, address string) (net.Listener, error)) (net.Listener, error) {
	listener, err := listen("tcp", e.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", e.Listen, err)
	}
	at := listener.Addr()
	e.bound.Store(&at)
	return listener, nil
}

// namesPort is the port that clients are told with ServerNames; it is 0 before Run
// listens on a port of the system's choice.
func (e *entrance) namesPort() int32 {
	if e.ServerNames.Port != 0 {
		return int32(e.ServerNames.Port)
	}
	at := e.bound.Load()
	if at == nil {
		return 0
	}
	_, port, _ := splitAddress((*at).String())
	return int32(port)
}

// address is where it listens; empty before Run does.
func (e *entrance) address() string {
	if at := e.bound.Load(); at != nil {
		return (*at).String()
	}
	return ""
}

// secure speaks TLS with a client, if the entrance does, and tells whom the client
// wants: target, or the broker whose name it asks for. It takes as long as the
// connection's deadline allows; ctx ends it too. Errors: *malformedError, and
// errClientClosed.
func (e *entrance) secure(ctx context.Context, client net.Conn, target int32) (net.Conn, int32, error) {
	if e.TLS == nil {
		return client, target, nil
	}
	secured := tls.Server(client, e.TLS)
	if err := secured.HandshakeContext(ctx); err != nil {
		return client, target, handshakeError(err)
	}
	if e.ServerNames == nil {
		return secured, target, nil
	}
	name := secured.ConnectionState().ServerName
	node, ok := e.ServerNames.node(name)
	if !ok {
		return secured, target, malformed(reasonServerName, "no broker has the server name %q; names are %s and %s", name, e.ServerNames.Bootstrap, brokerPrefix+"<node id>."+e.ServerNames.Domain)
	}
	return secured, node, nil
}

// refusingAlerts are those of a client that does not take our certificate:
// bad_certificate, certificate_unknown and unknown_ca (RFC 8446, section 6).
var refusingAlerts = []uint64{42, 46, 48}

// alertOf is the number of the alert by which a client ended a handshake; 0: it did
// not. crypto/tls keeps the alert's type to itself, so that only its kind can be told.
func alertOf(err error) uint64 {
	var from *net.OpError
	if !errors.As(err, &from) {
		return 0
	}
	if alert := reflect.ValueOf(from.Err); alert.Kind() == reflect.Uint8 {
		return alert.Uint()
	}
	return 0
}

// handshakeError says why a client could not be spoken to in TLS.
func handshakeError(err error) error {
	var noRecord tls.RecordHeaderError
	switch {
	case errors.Is(err, io.EOF):
		return errClientClosed // as one that looks whether the port is open
	case errors.Is(err, os.ErrDeadlineExceeded):
		return malformed(reasonHandshake, "no TLS handshake in time")
	case errors.As(err, &noRecord):
		return malformed(reasonHandshakeTLS, "the client does not speak TLS, which this listener expects (security.protocol SSL or SASL_SSL)")
	}
	if slices.Contains(refusingAlerts, alertOf(err)) {
		return malformed(reasonHandshakeTLS, "the client refuses the certificate of this listener (%v): it does not trust it, or connects to a name that is not in it", err)
	}
	return malformed(reasonHandshakeTLS, "TLS handshake failed: %v", err)
}
