package main

import (
	"net"
	"net/http"
	"sync"
)

// adminConns keeps the connections to the admin port at adminConnections: a new one takes
// the place of one on which nothing is answered, any of them, so that however many are
// kept open, a probe gets through. Its method may be called concurrently.
type adminConns struct {
	mu   sync.Mutex
	busy map[net.Conn]bool // of those that are open, whether a request is answered
}

// changed is an http.Server's ConnState.
func (a *adminConns) changed(conn net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(a.busy, conn)
		return
	case http.StateNew:
		if len(a.busy) >= adminConnections && a.closeOneLocked(conn) == conn {
			return
		}
	}
	a.busy[conn] = state == http.StateActive
}

// closeOneLocked closes one on which nothing is answered, or else the new one.
func (a *adminConns) closeOneLocked(conn net.Conn) net.Conn {
	for other, busy := range a.busy {
		if !busy {
			conn = other
			break
		}
	}
	delete(a.busy, conn)
	_ = conn.Close() // whoever had it hears of it
	return conn
}
