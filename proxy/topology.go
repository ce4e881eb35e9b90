package proxy

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// broker is what is known of one broker.
type broker struct {
	node     int32
	upstream string // host:port where it is dialled
	host     string // what clients are told
	port     int32
}

// maxUnmapped is how many brokers without a port are named in the log. Whatever
// brokers say of others, it must not fill memory and log.
const maxUnmapped = 256

// topology knows the brokers of the cluster, by node id, and which port of
// the proxy serves each. Reading takes no lock; a broker that is seen for the
// first time gets its listener before learn returns. A broker that was once
// known stays known: its port must not pass to another.
//
// All methods may be called concurrently.
type topology struct {
	cfg    *Config
	log    *slog.Logger
	listen string // host part of Config.Listen
	// serve starts accepting on a broker's new listener. Set before use.
	serve func(listener net.Listener, node int32)

	known atomic.Pointer[map[int32]broker] // replaced, never changed
	live  atomic.Pointer[[]int32]          // node ids of the last discovery
	turn  atomic.Uint32                    // where bootstrap connections begin

	// mu makes learning one at a time. Opening a listener happens under it:
	// two answers that show the same new broker must not open two, and both
	// must wait until its port is known.
	mu       sync.Mutex
	closed   bool
	unmapped map[int32]bool // logged already; at most maxUnmapped
	failed   map[int32]bool // listening failed; tried again on discovery
}

func newTopology(cfg *Config, listenHost string) *topology {
	t := &topology{cfg: cfg, log: cfg.Logger, listen: listenHost, unmapped: map[int32]bool{}, failed: map[int32]bool{}}
	t.known.Store(&map[int32]broker{})
	t.live.Store(&[]int32{})
	return t
}

// lookup gives the broker of a node id; false if it has no port here.
func (t *topology) lookup(node int32) (broker, bool) {
	b, ok := (*t.known.Load())[node]
	return b, ok
}

// servesAny reports whether any broker has a port here.
func (t *topology) servesAny() bool { return len(*t.known.Load()) > 0 }

// learn takes note of a broker and its upstream address, from our own
// discovery or from an answer that is passing through, and opens its listener
// if it is new. It returns what clients are told; false if it has no port.
func (t *topology) learn(node int32, host string, port int32) (broker, bool) {
	upstream := net.JoinHostPort(host, strconv.Itoa(int(port)))
	known, ok := t.lookup(node)
	if ok && known.upstream == upstream {
		return known, true
	}
	if node < 0 || host == "" || port <= 0 || port > maxPort {
		// Not an address: a broker that is down, or no broker at all.
		return known, ok
	}
	return t.learnSlow(node, upstream)
}

func (t *topology) learnSlow(node int32, upstream string) (broker, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.lookup(node)
	switch {
	case ok && b.upstream == upstream:
		return b, true
	case ok:
		t.log.Info("broker moved", "node", node, "from", b.upstream, "to", upstream)
		b.upstream = upstream
	case t.closed, t.failed[node]:
		return broker{}, false
	default:
		if b, ok = t.openLocked(node); !ok {
			return broker{}, false
		}
		b.upstream = upstream
		t.log.Info("broker found", "node", node, "upstream", upstream, "port", b.port)
	}
	next := maps.Clone(*t.known.Load())
	next[node] = b
	t.known.Store(&next)
	return b, true
}

// openLocked opens the listener of a node.
func (t *topology) openLocked(node int32) (broker, bool) {
	port, mapped := t.port(node)
	if !mapped {
		if !t.unmapped[node] && len(t.unmapped) < maxUnmapped {
			t.unmapped[node] = true
			t.log.Warn("broker has no port here and is hidden from clients; widen the port range or map the node",
				"node", node, "first_port", t.cfg.BrokerPorts.First, "last_port", t.cfg.BrokerPorts.Last)
		}
		return broker{}, false
	}
	listener, err := t.cfg.ListenFunc("tcp", net.JoinHostPort(t.listen, strconv.Itoa(port)))
	if err != nil {
		t.failed[node] = true
		t.log.Error("cannot listen for broker; it is hidden from clients", "node", node, "port", port, "err", err)
		return broker{}, false
	}
	bound, err := boundPort(listener, port)
	if err != nil {
		t.failed[node] = true
		t.log.Error("cannot listen for broker; it is hidden from clients", "node", node, "port", port, "err", err)
		_ = listener.Close()
		return broker{}, false
	}
	t.serve(listener, node)
	return broker{node: node, host: t.cfg.AdvertisedHost, port: int32(bound)}, true
}

// port gives the port of a node; 0 means any.
func (t *topology) port(node int32) (int, bool) {
	if port, ok := t.cfg.NodePorts[node]; ok {
		return port, true
	}
	r := t.cfg.BrokerPorts
	if r == (PortRange{}) {
		return 0, true
	}
	if int64(r.First)+int64(node) > int64(r.Last) {
		return 0, false
	}
	port := r.First + int(node)
	for _, taken := range t.cfg.NodePorts {
		if taken == port {
			return 0, false
		}
	}
	return port, true
}

func boundPort(listener net.Listener, port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	_, bound, err := splitAddress(listener.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("address of listener: %w", err)
	}
	return bound, nil
}

// discovered takes note of the whole cluster as one broker sees it.
func (t *topology) discovered(found []broker) {
	t.mu.Lock()
	clear(t.failed)
	t.mu.Unlock()
	live := make([]int32, 0, len(found))
	for _, b := range found {
		host, port, err := splitAddress(b.upstream)
		if err != nil {
			continue
		}
		t.learn(b.node, host, int32(port))
		live = append(live, b.node)
	}
	slices.Sort(live)
	t.live.Store(&live)
}

// candidates gives the live brokers in the order in which a bootstrap
// connection should try them: each begins with another one.
func (t *topology) candidates() []broker {
	live := *t.live.Load()
	brokers := make([]broker, 0, len(live))
	first := int(t.turn.Add(1))
	for i := range live {
		if b, ok := t.lookup(live[(first+i)%len(live)]); ok {
			brokers = append(brokers, b)
		}
	}
	return brokers
}

// close ends the opening of listeners.
func (t *topology) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
