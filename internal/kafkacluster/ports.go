package kafkacluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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

// FreePorts returns the first of n consecutive TCP ports that nobody listens on
// now. They are not reserved; random choice keeps processes apart that look at
// the same time.
func FreePorts(n int) (first int, err error) {
	for range 200 {
		first := lowestPort + rand.IntN(highestPort-lowestPort-n)
		if allFree(first, n) {
			return first, nil
		}
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
