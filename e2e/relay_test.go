package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// relayHost is the address that a relay stands for a proxy at: the ports are
// the proxy's own, so that the proxy only has to advertise this host.
const relayHost = "127.0.0.2"

// cut is what a relay does to one Produce request.
type cut int

const (
	cutNothing cut = iota
	cutBefore      // the connection ends, and nothing of the request arrives
	cutMiddle      // half of the request arrives
	cutAnswer      // the request is carried out, and its answer is lost
)

// relay stands between clients and a proxy and breaks connections.
type relay struct {
	bootstrap string

	mu     sync.Mutex
	choose func(produce int) cut // by the number of the Produce request, from 0
	seen   int
	cuts   int
	hold   func() // may be nil
}

// holdAnswers has wait called before each answer is relayed.
func (r *relay) holdAnswers(wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = wait
}

// held waits for as long as answers are held.
func (r *relay) held() {
	r.mu.Lock()
	wait := r.hold
	r.mu.Unlock()
	if wait != nil {
		wait()
	}
}

// startRelay stands before a proxy that advertises relayHost, until the test
// ends.
func startRelay(t *testing.T, p *proxyProcess, choose func(produce int) cut) *relay {
	t.Helper()
	r := &relay{choose: choose}
	r.bootstrap = standBefore(t, p, func(client, server net.Conn) (requests, answers func()) {
		pipe := &relayedConn{relay: r, client: client, server: server, lost: map[uint32]bool{}}
		return pipe.requests, pipe.answers
	})
	return r
}

// standBefore takes connections at relayHost for a proxy that advertises it,
// until the test ends, and gives the address to bootstrap from. relay makes of a
// connection, and the one to the proxy that belongs to it, what runs until both
// are closed.
func standBefore(t *testing.T, p *proxyProcess, relay func(client, server net.Conn) (requests, answers func())) string {
	t.Helper()
	_, port, err := net.SplitHostPort(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var open sync.Map
	for _, port := range p.ports {
		number := strconv.Itoa(int(port))
		listener, err := net.Listen("tcp", net.JoinHostPort(relayHost, number))
		if err != nil {
			t.Fatal(err)
		}
		open.Store(listener, nil)
		group.Go(func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}
				server, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", number))
				if err != nil {
					_ = client.Close()
					continue
				}
				open.Store(client, nil)
				open.Store(server, nil)
				requests, answers := relay(client, server)
				group.Go(requests)
				group.Go(answers)
			}
		})
	}
	t.Cleanup(func() {
		open.Range(func(closer, _ any) bool {
			_ = closer.(io.Closer).Close()
			return true
		})
		group.Wait()
	})
	return net.JoinHostPort(relayHost, port)
}

// next says what becomes of the Produce request that has come now.
func (r *relay) next() cut {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.choose(r.seen)
	r.seen++
	if c != cutNothing {
		r.cuts++
	}
	return c
}

// done is how many requests were cut.
func (r *relay) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts
}

// relayedConn is one connection through a relay.
type relayedConn struct {
	relay          *relay
	client, server net.Conn

	mu   sync.Mutex
	lost map[uint32]bool // correlation ids whose answers are
}

func (c *relayedConn) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// requests relays from the client, frame by frame.
func (c *relayedConn) requests() {
	defer c.close()
	for {
		frame, err := readFrame(c.client)
		if err != nil {
			return
		}
		whole := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		if len(frame) >= 8 && binary.BigEndian.Uint16(frame) == 0 { // Produce
			switch c.relay.next() {
			case cutBefore:
				return
			case cutMiddle:
				_, _ = c.server.Write(whole[:len(whole)/2])
				return
			case cutAnswer:
				c.mu.Lock()
				c.lost[binary.BigEndian.Uint32(frame[4:])] = true
				c.mu.Unlock()
			case cutNothing:
			}
		}
		if _, err := c.server.Write(whole); err != nil {
			return
		}
	}
}

// answers relays to the client, up to an answer that is lost.
func (c *relayedConn) answers() {
	defer c.close()
	for {
		frame, err := readFrame(c.server)
		if err != nil || len(frame) < 4 {
			return
		}
		c.mu.Lock()
		lost := c.lost[binary.BigEndian.Uint32(frame)]
		c.mu.Unlock()
		if lost {
			return
		}
		c.relay.held()
		if _, err := c.client.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			return
		}
	}
}
