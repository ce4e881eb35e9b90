package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pipeListener takes connections that stay in memory.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l pipeListener) Close() error {
	close(l)
	return nil
}

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (l pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l <- server
	return client
}

// TestAdminConnectionsAreBounded: who asks again after a while on the same connection is
// answered, whatever was asked for before, and who asks for nothing more, sends half a
// request or takes no answer keeps no connection.
func TestAdminConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipeListener)
		logger := slog.New(slog.DiscardHandler)
		admin := serveAdmin(listener, false, prometheus.NewRegistry(), logger)
		admin.openStatusPage(statusSource{}, logger)
		conn := listener.dial()
		answers := bufio.NewReader(conn)
		paths := []string{"/status.json", "/livez", "/", "/metrics", "/status.json"}
		for _, path := range paths {
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: any\r\n\r\n", path)
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s, a minute after the request before: %v", path, err)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("%s: got status %d, %v", path, r.StatusCode, err)
			}
			time.Sleep(time.Minute)
		}
		ends := func(what string, conn net.Conn, within time.Duration) {
			t.Helper()
			begun := time.Now()
			_ = conn.SetReadDeadline(begun.Add(within))
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%s: got %v within %s, want the connection's end", what, err, within)
			}
		}
		ends("nothing more", conn, adminIdleTimeout)
		silent := listener.dial()
		ends("nothing at all", silent, adminHeaderTimeout+time.Second)
		half := listener.dial()
		fmt.Fprint(half, "GET /status.json HTTP/1.1\r\n")
		ends("half a request", half, adminHeaderTimeout+time.Second)
		for _, path := range paths {
			deaf := listener.dial()
			fmt.Fprintf(deaf, "GET %s HTTP/1.1\r\nHost: any\r\n\r\n", path)
			time.Sleep(adminWriteTimeout + time.Second)
			ends("no answer taken of "+path, deaf, 0)
		}
		if err := admin.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAdminConnectionsAreLimited: whoever keeps connections open does not keep a probe
// out, and takes no more than so many descriptors from clients.
func TestAdminConnectionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipeListener)
		admin := serveAdmin(listener, false, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		ask := func(conn net.Conn) {
			t.Helper()
			fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: any\r\n\r\n")
			if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("got %v, %v; want an answer", r, err)
			}
			synctest.Wait()
		}
		var kept []net.Conn
		for i := range 2 * adminConnections {
			conn := listener.dial()
			kept = append(kept, conn)
			if i%2 == 0 {
				ask(conn) // it stays, and so do those that say nothing
			}
		}
		ask(listener.dial())
		open := 0
		for _, conn := range kept {
			_ = conn.SetReadDeadline(time.Now())
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
		if open != adminConnections-1 {
			t.Errorf("%d connections are open beside the last one, want %d", open, adminConnections-1)
		}
		if err := admin.close(); err != nil {
			t.Error(err)
		}
	})
}
