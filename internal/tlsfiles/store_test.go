package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is one side's files in a directory of its own.
func side(t *testing.T) Files {
	dir := t.TempDir()
	return Files{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt"),
		MinVersion: tls.VersionTLS12,
	}
}

func load(t *testing.T, f Files) *Store {
	t.Helper()
	s, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// echoes accepts connections and sends back what they send, until the test ends.
func echoes(t *testing.T, s *Store) net.Listener {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", s.Server())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l
}

// say sends a word on a connection and reads it back.
func say(conn net.Conn) error {
	if _, err := io.WriteString(conn, "word"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 4))
	return err
}

// Both sides take over new certificates and authorities; what is connected stays so.
func TestRotation(t *testing.T) {
	first, second := certtest.NewAuthority(t, "first"), certtest.NewAuthority(t, "second")
	server, client := side(t), side(t)
	server.ClientAuth, client.ServerName = tls.RequireAndVerifyClientCert, "proxy.test"
	rotate := func(a *certtest.Authority) {
		a.Write(server.Cert, server.Key, time.Hour, "proxy.test")
		a.Write(client.Cert, client.Key, time.Hour, "client")
		a.WriteCA(server.CA)
		a.WriteCA(client.CA)
	}
	rotate(first)
	servers, clients := load(t, server), load(t, client)
	l := echoes(t, servers)
	d := &Dialer{Store: clients}
	dial := func() (net.Conn, error) {
		conn, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn, say(conn)
	}
	before, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	rotate(second)
	if err := servers.Reload(); err != nil {
		t.Fatal(err)
	}
	// The client's authority is still the first.
	var unknown x509.UnknownAuthorityError
	if _, err := dial(); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "upstream.tls.ca_file") {
		t.Errorf("between the two: got %v, want an unknown authority and what to do", err)
	}
	if err := clients.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(); err != nil {
		t.Errorf("after both: %v", err)
	}
	if err := say(before); err != nil {
		t.Errorf("connected before: %v", err)
	}
}

// What cannot be used is refused in words, and what was read before stays.
func TestFilesThatCannotBeUsed(t *testing.T) {
	a := certtest.NewAuthority(t, "one")
	f := side(t)
	a.Write(f.Cert, f.Key, time.Hour, "proxy.test")
	a.WriteCA(f.CA)
	s := load(t, f)
	l := echoes(t, s)
	good := &Dialer{Store: load(t, Files{CA: f.CA, ServerName: "proxy.test"})}
	for name, spoil := range map[string]func(){
		"no file":                func() { _ = os.Remove(f.Key) },
		"no PEM":                 func() { _ = os.WriteFile(f.Cert, []byte("text"), 0o600) },
		"another's key":          func() { a.Write(f.Cert+".other", f.Key, time.Hour, "other") },
		"no authority":           func() { _ = os.WriteFile(f.CA, nil, 0o600) },
		"a damaged one":          func() { certtest.WritePEM(t, f.CA, "CERTIFICATE", []byte{1, 2, 3}) },
		"too long":               func() { _ = os.WriteFile(f.CA, make([]byte, maxFile+1), 0o600) },
		"a key for an authority": func() { certtest.WritePEM(t, f.CA, "PRIVATE KEY", []byte{1}) },
	} {
		a.Write(f.Cert, f.Key, time.Hour, "proxy.test")
		a.WriteCA(f.CA)
		spoil()
		err := s.Reload()
		if !errors.Is(err, ErrFile) && !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Dir(f.CA)) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
		conn, err := good.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := say(conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
}

func TestWhatBrokersCanGetWrong(t *testing.T) {
	a := certtest.NewAuthority(t, "one")
	f := side(t)
	a.WriteCA(f.CA)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "not TLS at all")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = plain.Close(); <-ended })
	secured := func(host string, lasts time.Duration) string {
		f := side(t)
		a.WriteCA(f.CA)
		a.Write(f.Cert, f.Key, lasts, host)
		return echoes(t, load(t, f)).Addr().String()
	}
	for address, want := range map[string]string{
		plain.Addr().String():               "TLS is not spoken",
		secured("other.test", time.Hour):    "upstream.tls.server_name",
		secured("proxy.test", -time.Minute): "renew the certificate",
	} {
		d := &Dialer{Store: load(t, Files{CA: f.CA, ServerName: "proxy.test"})}
		if conn, err := d.DialContext(context.Background(), "tcp", address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", conn, err, want)
		}
	}
}

func TestExpiryAndNames(t *testing.T) {
	a := certtest.NewAuthority(t, "one")
	f := side(t)
	a.WriteCA(f.CA)
	a.Write(f.Cert, f.Key, time.Minute, "*.kafka.test")
	s := load(t, f)
	if left := time.Until(s.NotAfter()); left > time.Minute || left < 50*time.Second {
		t.Errorf("expires in %s, want a minute", left)
	}
	if err := s.Covers("broker-1.kafka.test"); err != nil {
		t.Error(err)
	}
	if err := s.Covers("kafka.test"); err == nil {
		t.Error("a wildcard covers the domain itself")
	}
	none := load(t, Files{})
	if !none.NotAfter().IsZero() || none.Covers("x") == nil || len(Files{}.Names()) != 0 {
		t.Error("no files, and something of them")
	}
	if got := f.Names(); len(got) != 3 {
		t.Errorf("got files %q", got)
	}
}
