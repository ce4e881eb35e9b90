package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// ErrHandshake is wrapped by errors of connections that were opened and did not come to
// speak TLS.
var ErrHandshake = errors.New("TLS")

// Dialer opens connections in TLS. It may be used concurrently.
type Dialer struct {
	// Store has the files.
	Store *Store
	// OfFlags has errors name flags of a client, and not settings of a proxy.
	OfFlags bool
	// Dial opens what TLS is spoken over; nil: a net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// DialContext connects and speaks TLS, both before ctx ends. Its errors say what an
// operator can do.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	cfg := d.Store.Client(host)
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w with %s: %w", ErrHandshake, address, d.advise(err, cfg.ServerName))
	}
	return secured, nil
}

// advise adds what to do.
func (d *Dialer) advise(err error, name string) error {
	caFile, serverName := "upstream.tls.ca_file", "upstream.tls.server_name"
	if d.OfFlags {
		caFile, serverName = "--tls-ca-file", "--tls-server-name"
	}
	var (
		noRecord  tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		other     x509.HostnameError
		expired   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &noRecord):
		return fmt.Errorf("%w: TLS is not spoken on this port", err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: the connection was closed: perhaps TLS is not spoken on this port", err)
	case errors.Is(err, context.DeadlineExceeded) && d.OfFlags:
		return fmt.Errorf("%w: no answer came: perhaps TLS is not spoken on this port", err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: %s must hold the authority of the certificates there", err, caFile)
	case errors.As(err, &other):
		return fmt.Errorf("%w: the certificate is for other names than %q: %s says which one to ask for", err, name, serverName)
	case errors.As(err, &expired) && expired.Reason == x509.Expired:
		return fmt.Errorf("%w: renew the certificate, or look at this machine's clock", err)
	}
	return err
}
