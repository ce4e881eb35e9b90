package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// What comes in TLS, in records of any length, is all there to be read, and an Inbox
// that waits for it holds nothing.
func TestPatientTLS(t *testing.T) {
	ca := certtest.NewAuthority(t, "authority")
	near, far := net.Pipe()
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{ca.Sign(time.Hour, "127.0.0.1")}, SessionTicketsDisabled: true})
	client := tls.Client(far, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	defer near.Close()
	defer far.Close()
	way := patient(server, server).(*patientTLS)
	var sent []byte
	sizes := []int{1, 2, 3, 4, 1000, 1, 40000, 8 << 10, 8<<10 + 1}
	for i, n := range sizes {
		sent = append(sent, bytes.Repeat([]byte{byte(i)}, n)...)
	}
	ended := make(chan error, 1)
	go func() {
		rest := sent
		for _, n := range sizes {
			if _, err := client.Write(rest[:n]); err != nil {
				ended <- err
				return
			}
			rest = rest[n:]
		}
		ended <- client.CloseWrite()
	}()
	in := wire.NewInbox(way, 8<<10, 1<<20)
	var got []byte
	for {
		if err := in.Fill(1); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, in.Bytes()...)
		in.Advance(len(in.Bytes()))
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes, want the %d that were sent", len(got), len(sent))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// While it waits it has given back what it had.
	parked, taken := 0, 0
	_, err := way.ReadWhenReady(func() []byte { taken++; return make([]byte, 1) }, func() { parked++ })
	if !errors.Is(err, io.EOF) || parked != 1 || taken != 0 {
		t.Errorf("at the end: %v, parked %d times, took room %d times", err, parked, taken)
	}
}
