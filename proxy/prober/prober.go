package prober

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Topic names a topic. Where ID is not zero it is used as well, so that a
// topic deleted and created again under the same name is told apart
// (KIP-516): in Fetch, and whenever the leader epoch is asked for, which is at
// least every Config.EpochMaxAge.
type Topic struct {
	Name string
	ID   [16]byte
}

// A Pool holds the control connections, one for each broker, opened when
// first needed. Its methods may be called from any number of goroutines.
//
// A call whose context ends returns at once, with the context's cause. What it
// had on the wire stays there: the connection remains usable, and the answers
// are dropped when they come. If they do not come within the request timeout,
// the connection is closed.
type Pool struct {
	cfg    Config
	ctx    context.Context // parent of dials; ends with Run
	cancel context.CancelFunc
	epochs *lru.Cache[epochKey, knownEpoch]

	sessions atomic.Uint64 // counts connections

	// wg counts dials and connection loops. It grows only under mu while
	// closed is false, or from a goroutine that it counts, so that the Wait
	// in Run misses none.
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	slots  map[int32]*slot
	asks   map[topicAskKey]*topicAsks
}

// slot is the place of one broker's connection.
type slot struct {
	ready chan struct{} // closed by connect when err is final
	conn  *conn         // guarded by Pool.mu until ready, then constant
	err   error         // written before ready is closed
}

// gone reports whether the slot's connection failed to open or has died.
func (s *slot) gone() bool {
	select {
	case <-s.ready:
		return s.err != nil || s.conn.isDead()
	default:
		return false
	}
}

// expired reports whether the slot's connection lives, and is not to be used
// any more.
func (s *slot) expired(now time.Time) bool {
	select {
	case <-s.ready:
		return s.err == nil && !s.conn.useUntil.IsZero() && now.After(s.conn.useUntil)
	default:
		return false
	}
}

// New returns a Pool that has opened nothing yet. It panics on a Config
// without Dial or FenceID, or with a negative bound.
func New(cfg Config) *Pool {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		panic(err)
	}
	epochs, err := lru.New[epochKey, knownEpoch](cfg.Epochs)
	if err != nil {
		panic(err) // only for a size that validate refuses
	}
	p := &Pool{cfg: cfg, epochs: epochs, slots: make(map[int32]*slot), asks: make(map[topicAskKey]*topicAsks)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Run waits until ctx ends, then closes all connections, fails the calls that
// wait on them with ErrClosed, and returns nil when every goroutine of the
// Pool is gone. Calls work before Run as well, but only Run cleans up.
func (p *Pool) Run(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	p.closed = true
	var conns []*conn
	for _, s := range p.slots {
		if s.conn != nil {
			conns = append(conns, s.conn)
		}
	}
	p.mu.Unlock()
	p.cancel()
	for _, c := range conns {
		c.fail(ErrClosed)
	}
	p.wg.Wait()
	return nil
}

// connection returns the open connection to a broker, dialling if there is
// none. Concurrent callers share one dial, which goes on when one of them
// gives up.
func (p *Pool) connection(ctx context.Context, node int32) (*conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	s := p.slots[node]
	if s != nil && s.expired(time.Now()) {
		old := s.conn
		p.wg.Go(func() { old.retire(p.ctx) })
		s = nil
	}
	if s == nil || s.gone() {
		s = &slot{ready: make(chan struct{})}
		p.slots[node] = s
		p.wg.Go(func() { p.connect(node, s) })
	}
	p.mu.Unlock()
	select {
	case <-s.ready:
		return s.conn, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connect fills a slot and starts the loops of its connection.
func (p *Pool) connect(node int32, s *slot) {
	defer close(s.ready)
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.RequestTimeout)
	defer cancel()
	nc, err := p.cfg.Dial(ctx, node)
	if err != nil {
		s.err = p.dialError(node, err)
		return
	}
	c := newConn(node, nc, Session(p.sessions.Add(1)), p.cfg)
	if p.cfg.StateFrom != AsProbed {
		c.assumed.Store(&assumption{source: p.cfg.StateFrom})
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		s.conn = c
	}
	p.mu.Unlock()
	if closed {
		c.fail(ErrClosed)
		s.err = ErrClosed
		return
	}
	p.wg.Go(c.writeLoop)
	p.wg.Go(c.readLoop)
	if err := c.negotiate(ctx); err != nil {
		s.err = p.dialError(node, err)
		c.fail(s.err)
		return
	}
	p.cfg.Logger.Debug("control connection open", "node", node)
}

// dialError is what the callers that wait for a failed dial get.
func (p *Pool) dialError(node int32, err error) error {
	if p.ctx.Err() != nil {
		return ErrClosed
	}
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	return fmt.Errorf("dial broker %d: %w: %w", node, ErrUnreachable, err)
}
