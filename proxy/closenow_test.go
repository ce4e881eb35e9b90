package proxy

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
)

// stuckInTLS is a connection in TLS whose peer takes nothing more, and the peer's socket.
func stuckInTLS(t *testing.T) (*tls.Conn, net.Conn) {
	t.Helper()
	ca := certtest.NewAuthority(t, "authority")
	near, far := net.Pipe()
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{ca.Sign(time.Hour, "127.0.0.1")}})
	client := tls.Client(far, &tls.Config{ServerName: "127.0.0.1", InsecureSkipVerify: true, SessionTicketsDisabled: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return server, far
}

func TestClosingDoesNotWaitForThePeer(t *testing.T) {
	took := func(close func(net.Conn)) (waited time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			conn, peer := stuckInTLS(t)
			before := time.Now()
			close(conn)
			waited = time.Since(before)
			_ = peer.Close()
		})
		return waited
	}
	if got := took(closeNow); got != 0 {
		t.Errorf("it waited for %s", got)
	}
	// The twin: saying goodbye does wait.
	if got := took(func(c net.Conn) { _ = c.Close() }); got == 0 {
		t.Error("the standard library's way does not wait either, so closeNow is of no use")
	}
}
