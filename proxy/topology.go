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
	// at is what clients of each entrance are told, by its index. It is replaced,
	// never changed.
	at []endpoint
}

// endpoint is an address as clients are told it; the zero value: none.
type endpoint struct {
	host string
	port int32
}

// atEntrance gives the address that clients of an entrance are told; false if the
// broker has none there.
func (b *broker) atEntrance(e *entrance) (endpoint, bool) {
	if e.index >= len(b.at) || b.at[e.index].port == 0 {
		return endpoint{}, false
	}
	return b.at[e.index], true
}

// doorway is a broker at an entrance.
type doorway struct {
	node  int32
	index int // of the entrance
}

// topology knows the brokers of the cluster, by node id, and where each entrance
// serves them. Reading takes no lock; a broker that is seen for the
// first time gets its listeners before learn returns. A broker that was once
// known stays known: its port must not pass to another.
//
// All methods may be called concurrently.
type topology struct {
	cfg       *Config
	log       *slog.Logger
	entrances []*entrance
	// serve starts accepting on a broker's new listener. Set before use.
	serve func(listener net.Listener, e *entrance, node int32)

	known atomic.Pointer[map[int32]broker] // replaced, never changed
	live  atomic.Pointer[[]int32]          // node ids of the last discovery
	turn  atomic.Uint32                    // where bootstrap connections begin

	// mu makes learning one at a time. Opening a listener happens under it:
	// two answers that show the same new broker must not open two, and both
	// must wait until its port is known.
	mu     sync.Mutex
	closed bool
	hidden hidings
	failed map[doorway]bool // listening failed; tried again on discovery
}

func newTopology(cfg *Config, entrances []*entrance) *topology {
	t := &topology{cfg: cfg, log: cfg.Logger, entrances: entrances, hidden: hidings{}, failed: map[doorway]bool{}}
	t.known.Store(&map[int32]broker{})
	t.live.Store(&[]int32{})
	return t
}

// lookup gives the broker of a node id; false if it is served nowhere here.
func (t *topology) lookup(node int32) (broker, bool) {
	b, ok := (*t.known.Load())[node]
	return b, ok
}

// told gives the address of a node that clients of an entrance are told; false if
// it has none there.
func (t *topology) told(e *entrance, node int32) (endpoint, bool) {
	b, ok := t.lookup(node)
	if !ok {
		return endpoint{}, false
	}
	return b.atEntrance(e)
}

// servesAny reports whether any broker is served here.
func (t *topology) servesAny() bool { return len(*t.known.Load()) > 0 }

// learn takes note of a broker and its upstream address, from our own
// discovery or from an answer that is passing through, and opens its listeners
// if it is new. False if it is served nowhere here.
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
	default:
		if b.at, ok = t.openLocked(node, upstream, nil); !ok {
			return broker{}, false
		}
		b.node, b.upstream = node, upstream
		t.log.Info("broker found", "node", node, "upstream", upstream, "told", t.toldOf(b.at))
	}
	t.storeLocked(b)
	return b, true
}

func (t *topology) storeLocked(b broker) {
	next := maps.Clone(*t.known.Load())
	next[b.node] = b
	t.known.Store(&next)
}

// toldOf lists where a broker is, for the log.
func (t *topology) toldOf(at []endpoint) []string {
	var addresses []string
	for i, e := range t.entrances {
		if at[i].port != 0 {
			addresses = append(addresses, e.Name+"="+at[i].String())
		}
	}
	return addresses
}

// String is host:port.
func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(int(e.port))) }

// openLocked gives a node an address at each entrance that has none for it in
// before; false if it has none at any.
func (t *topology) openLocked(node int32, upstream string, before []endpoint) ([]endpoint, bool) {
	at, any := make([]endpoint, len(t.entrances)), false
	copy(at, before)
	for i, e := range t.entrances {
		if at[i].port == 0 {
			at[i] = t.openAtLocked(e, node, upstream)
		}
		any = any || at[i].port != 0
	}
	return at, any
}

// openAtLocked opens the listener of a node at an entrance, if it takes one.
func (t *topology) openAtLocked(e *entrance, node int32, upstream string) endpoint {
	if e.ServerNames != nil {
		return endpoint{host: e.ServerNames.host(node), port: e.namesPort()}
	}
	way := doorway{node, e.index}
	if t.closed || t.failed[way] {
		return endpoint{}
	}
	port, mapped := e.BrokerPort(node)
	if !mapped {
		if t.hidden.note(way, hiding{reason: hiddenNoPort, upstream: upstream}, instant()) {
			t.log.Warn("broker has no port here and is hidden from clients; widen the port range or map the node",
				"node", node, "listener", e.Name, "first_port", e.BrokerPorts.First, "last_port", e.BrokerPorts.Last)
		}
		return endpoint{}
	}
	listener, err := t.cfg.ListenFunc("tcp", net.JoinHostPort(e.host, strconv.Itoa(port)))
	if err == nil && port == 0 {
		if port, err = boundPort(listener); err != nil {
			_ = listener.Close()
		}
	}
	if err != nil {
		t.failed[way] = true
		of := failedHiding(upstream, port, err)
		if t.hidden.note(way, of, instant()) {
			t.log.Error("cannot listen for broker; it is hidden from clients", "node", node, "listener", e.Name, "port", port, "err", err, "advice", of.advice())
		}
		return endpoint{}
	}
	if _, was := t.hidden[way]; was {
		delete(t.hidden, way)
		t.log.Info("broker has its port now, and clients are told of it", "node", node, "listener", e.Name, "port", port)
	}
	t.serve(listener, e, node)
	return endpoint{host: e.AdvertisedHost, port: int32(port)}
}

func boundPort(listener net.Listener) (int, error) {
	_, bound, err := splitAddress(listener.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("address of listener: %w", err)
	}
	return bound, nil
}

// discovered takes note of the whole cluster as one broker sees it.
func (t *topology) discovered(found []broker) {
	t.retry()
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

// retry forgets what could not be listened on, and tries it again for brokers that
// are served at some entrance.
func (t *topology) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := t.failed
	t.failed = map[doorway]bool{}
	for way := range failed {
		if b, ok := t.lookup(way.node); ok {
			b.at, _ = t.openLocked(way.node, b.upstream, b.at)
			t.storeLocked(b)
		}
	}
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
