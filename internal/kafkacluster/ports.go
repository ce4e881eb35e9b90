package kafkacluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the ranges that Linux (32768) and macOS (49152)
// use for outgoing connections: a killed broker's port must stay free until it
// is revived, and a client that dials an idle port of that range can end up
// connected to itself.
const (
	lowestPort  = 20_000
	highestPort = 32_000
)

// ErrNoFreePorts means that no run of free ports was found.
var ErrNoFreePorts = errors.New("no free ports")

// foundPorts are those that FreePorts has returned.
type foundPorts struct {
	sync.Mutex
	ports map[int]bool
}

var found foundPorts

// any tells whether one of n ports is among them. The mutex must be held.
func (f *foundPorts) any(first, n int) bool {
	for port := first; port < first+n; port++ {
		if f.ports[port] {
			return true
		}
	}
	return false
}

// FreePorts returns the first of n consecutive TCP ports that nobody listens on
// now, and that it has not returned before. They are not reserved; random choice keeps
// processes apart that look at the same time. For concurrent use.
func FreePorts(n int) (first int, err error) {
	found.Lock()
	defer found.Unlock()
	for range 200 {
		first := lowestPort + rand.IntN(highestPort-lowestPort-n)
		if found.any(first, n) || !allFree(first, n) {
			continue
		}
		if found.ports == nil || len(found.ports) > (highestPort-lowestPort)/2 {
			found.ports = map[int]bool{} // who found so many has ended most of their users
		}
		for port := first; port < first+n; port++ {
			found.ports[port] = true
		}
		return first, nil
	}
	return 0, fmt.Errorf("%d in a row between %d and %d: %w", n, lowestPort, highestPort, ErrNoFreePorts)
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
