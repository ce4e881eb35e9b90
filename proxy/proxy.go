package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Proxy relays between Kafka clients and one cluster. Its methods may be
// called concurrently.
type Proxy struct {
	cfg      Config
	metrics  *metrics
	topology *topology
	rules    *currentRules
	fencing  *fencing
	pipes    pipes

	wake  chan struct{} // capacity 1: a discovery is wanted; never closed
	ready chan struct{} // closed by markReady
	once  sync.Once

	wg sync.WaitGroup // everything that Run starts

	lastConn  atomic.Int64 // id of the newest connection
	memory    *budgets
	addresses *addressCounts
	reached   reachBook
	status    statusTaker
	since     ps.Instant // of New

	accepting atomic.Int64 // accept loops that run
	reach     atomic.Pointer[lookout]
	leaving   atomic.Bool // Run's context has ended

	mu        sync.Mutex
	running   bool
	drained   drained
	draining  bool
	listeners []net.Listener
	conns     map[*conn]struct{}
}

// New checks the configuration and returns a Proxy that does nothing yet. The
// error wraps ErrConfig and names the field, or comes from the meter.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Meter, cfg.MetricTopics)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg:     cfg,
		metrics: m,
		wake:    make(chan struct{}, 1),
		ready:   make(chan struct{}),
		conns:   map[*conn]struct{}{},

		addresses: newAddressCounts(cfg.MaxConnectionsPerAddress),
		memory:    newBudgets(cfg.MaxBufferedBytes, m),
		since:     instant(),
	}
	p.topology = newTopology(&p.cfg, newEntrances(&p.cfg))
	p.rules = newCurrentRules(&p.cfg, m)
	if p.fencing, err = newFencing(&p.cfg, p.rules, p, m); err != nil {
		return nil, err
	}
	m.proxy.Store(p)
	return p, nil
}

// Run listens and serves until ctx ends, then drains: it takes no more
// connections and requests, answers what is pending for up to DrainTimeout,
// and closes the rest. It returns when everything it started is gone: nil
// after a drain, a *DrainError if that cut requests off, another error if it could
// not listen. It may be called once.
func (p *Proxy) Run(ctx context.Context) error {
	p.mu.Lock()
	again := p.running
	p.running = true
	p.mu.Unlock()
	if again {
		return errors.New("proxy: Run was called before")
	}
	defer p.pipes.close()

	bootstrap, err := p.openEntrances()
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	p.topology.serve = func(l net.Listener, e *entrance, node int32) { p.serve(serving, l, e, node) }
	for i, listener := range bootstrap {
		p.serve(serving, listener, p.topology.entrances[i], unknownNode)
	}
	p.wg.Go(func() { p.discoverLoop(serving) })

	endFencing := p.untilLast(p.fencing.run)
	endHits := p.untilLast(func(ctx context.Context) { p.metrics.limits.run(ctx, &p.cfg) })
	<-ctx.Done()
	p.leave()
	stop()
	err = p.drain()
	endFencing()
	endHits()
	return err
}

// openEntrances listens for clients that bootstrap, at all entrances or at none.
func (p *Proxy) openEntrances() ([]net.Listener, error) {
	var open []net.Listener
	for _, e := range p.topology.entrances {
		listener, err := e.open(p.cfg.ListenFunc)
		if err != nil {
			for _, l := range open {
				_ = l.Close()
			}
			return nil, err
		}
		open = append(open, listener)
	}
	return open, nil
}

// untilLast runs something until the function it returns is called, after the last
// connection has ended.
func (p *Proxy) untilLast(run func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Ready is closed when the proxy listens, a broker has answered, and at least
// one broker has its listener open.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

func (p *Proxy) markReady() { p.once.Do(func() { close(p.ready) }) }

// Addr is the bound address that clients of the first listener bootstrap from;
// empty before Run listens.
func (p *Proxy) Addr() string { return p.topology.entrances[0].address() }

// BrokerAddrs gives the host:port that clients of the first listener are told for
// each broker, by node id.
func (p *Proxy) BrokerAddrs() map[int32]string { return p.brokersAt(p.topology.entrances[0]) }

// Serving tells where clients are served.
type Serving struct {
	// Name is Listener.Name.
	Name string
	// Addr is the bound address that clients bootstrap from.
	Addr string
	// Brokers is the host:port that clients are told for each broker, by node id.
	Brokers map[int32]string
}

// Serving gives all listeners, in the order of Config.AllListeners.
func (p *Proxy) Serving() []Serving {
	var all []Serving
	for _, e := range p.topology.entrances {
		all = append(all, Serving{e.Name, e.address(), p.brokersAt(e)})
	}
	return all
}

func (p *Proxy) brokersAt(e *entrance) map[int32]string {
	addresses := map[int32]string{}
	for node, b := range *p.topology.known.Load() {
		if at, ok := b.atEntrance(e); ok {
			addresses[node] = at.String()
		}
	}
	return addresses
}
