// Package certtest issues certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// Authority signs certificates. It is for one goroutine.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

// NewAuthority makes one that lasts as long as any test.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, next: 1}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	a.cert, a.key = a.issue(template)
	return a
}

// issue signs a template, by the authority or, if it is the first, by itself.
func (a *Authority) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(a.next)
	a.next++
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// Pool has the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Sign gives a certificate for names, host names and IP addresses, for servers and
// clients, that expires after a time; one below zero has expired.
func (a *Authority) Sign(lasts time.Duration, names ...string) tls.Certificate {
	a.t.Helper()
	var hosts []string
	var addresses []net.IP
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			addresses = append(addresses, ip)
			continue
		}
		hosts = append(hosts, name)
	}
	cert, key := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: hosts, IPAddresses: addresses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// WriteCA writes the authority's certificate, as PEM.
func (a *Authority) WriteCA(file string) { WritePEM(a.t, file, "CERTIFICATE", a.cert.Raw) }

// Write signs like Sign and writes certificate and key, as PEM.
func (a *Authority) Write(cert, key string, lasts time.Duration, names ...string) {
	a.t.Helper()
	signed := a.Sign(lasts, names...)
	encoded, err := x509.MarshalPKCS8PrivateKey(signed.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	WritePEM(a.t, cert, "CERTIFICATE", signed.Certificate[0])
	WritePEM(a.t, key, "PRIVATE KEY", encoded)
}

// WritePEM writes one block.
func WritePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
