package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// ExpiresSoon is how long before a certificate expires people are told to renew it.
const ExpiresSoon = 14 * 24 * time.Hour

// ErrFile is wrapped by errors about what a file holds.
var ErrFile = errors.New("cannot be used for TLS")

const (
	// maxFile bounds a file, in bytes: an authority bundle has some 200 KiB.
	maxFile = 4 << 20
	// sessions is how many brokers' sessions are kept to be resumed (RFC 8446,
	// section 2.2).
	sessions = 256
)

// Files is one side of TLS, by the names of its files.
type Files struct {
	// Cert is a PEM file of this side's certificate with what leads to its
	// authority; empty: none.
	Cert string
	// Key is a PEM file of its private key; empty with Cert.
	Key string
	// CA is a PEM file of the authorities of the other side's certificates; empty:
	// the system's, or no certificate is asked for.
	CA string
	// ClientAuth says what is asked of clients; for brokers it means nothing.
	ClientAuth tls.ClientAuthType
	// MinVersion is the least version of the protocol that is spoken, as in
	// crypto/tls.
	MinVersion uint16
	// ServerName is the name that brokers' certificates must have, and that they are
	// asked for (SNI); empty: the host that is dialled.
	ServerName string
}

// Names lists the files.
func (f Files) Names() []string {
	return slices.DeleteFunc([]string{f.Cert, f.Key, f.CA}, func(name string) bool { return name == "" })
}

// Store has what was read of Files. Its methods may be called concurrently.
type Store struct {
	files  Files
	loaded atomic.Pointer[loaded] // replaced, never changed
}

// loaded is what files held at one time.
type loaded struct {
	cert *tls.Certificate // nil: none
	// roots are the authorities; nil: the system's.
	roots    *x509.CertPool
	notAfter time.Time
	server   *tls.Config
	// resumed are sessions with brokers, which no other authorities have vouched for.
	resumed tls.ClientSessionCache
}

// Load reads files. The error names the file; it wraps ErrFile, or that of reading.
func Load(f Files) (*Store, error) {
	s := &Store{files: f}
	return s, s.Reload()
}

// Reload reads the files again. On an error, which is like that of Load, what was
// read before stays in force.
func (s *Store) Reload() error {
	l, err := s.files.load()
	if err != nil {
		return err
	}
	s.loaded.Store(l)
	return nil
}

func (f Files) load() (*loaded, error) {
	l := &loaded{resumed: tls.NewLRUClientSessionCache(sessions)}
	if f.Cert != "" {
		certPEM, err := read(f.Cert)
		if err != nil {
			return nil, err
		}
		keyPEM, err := read(f.Key)
		if err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("%s with %s %w: %w", f.Cert, f.Key, ErrFile, err)
		}
		l.cert = &cert
		l.until(cert.Leaf.NotAfter)
	}
	if f.CA != "" {
		authorities, err := read(f.CA)
		if err != nil {
			return nil, err
		}
		if l.roots, err = l.pool(authorities); err != nil {
			return nil, fmt.Errorf("%s %w: %w", f.CA, ErrFile, err)
		}
	}
	l.server = &tls.Config{MinVersion: f.MinVersion, ClientCAs: l.roots, ClientAuth: f.ClientAuth}
	if l.cert != nil {
		l.server.Certificates = []tls.Certificate{*l.cert}
	}
	return l, nil
}

// until notes that something is not valid after a time.
func (l *loaded) until(at time.Time) {
	if l.notAfter.IsZero() || at.Before(l.notAfter) {
		l.notAfter = at
	}
}

var (
	errNoCertificate = errors.New("no certificate is in it")
	errLong          = fmt.Errorf("more than %d bytes", maxFile)
)

// pool makes a pool of certificates. Those of authorities that have expired are no
// use, but are let be: bundles hold some.
func (l *loaded) pool(authorities []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), 0
	latest := time.Time{}
	for rest := bytes.TrimSpace(authorities); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found++
		if cert.NotAfter.After(latest) {
			latest = cert.NotAfter
		}
	}
	if found == 0 {
		return nil, errNoCertificate
	}
	l.until(latest)
	return pool, nil
}

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("%s %w: %w", name, ErrFile, errLong)
	}
	return content, nil
}

// NotAfter is when the certificate expires, or all authorities have, whichever is
// first; zero: nothing does.
func (s *Store) NotAfter() time.Time { return s.loaded.Load().notAfter }

// Covers reports whether the certificate is good for a host name, as far as its
// names say.
func (s *Store) Covers(host string) error {
	l := s.loaded.Load()
	if l.cert == nil {
		return errNoCertificate
	}
	return l.cert.Leaf.VerifyHostname(host)
}

// Server is the configuration of a listener: each handshake takes what was read last.
func (s *Store) Server() *tls.Config {
	return &tls.Config{
		MinVersion: s.files.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.loaded.Load().server, nil
		},
	}
}

// Client is the configuration of a connection to a host, by what was read last.
func (s *Store) Client(host string) *tls.Config {
	l := s.loaded.Load()
	name := s.files.ServerName
	if name == "" {
		name = host
	}
	c := &tls.Config{MinVersion: s.files.MinVersion, RootCAs: l.roots, ServerName: name, ClientSessionCache: l.resumed}
	if l.cert != nil {
		c.Certificates = []tls.Certificate{*l.cert}
	}
	return c
}
