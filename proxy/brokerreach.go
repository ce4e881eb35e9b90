package proxy

import (
	"context"
	"sync"
	"time"
)

// reachBook remembers how the last connections to brokers went. Its methods may be
// called concurrently.
type reachBook struct {
	mu    sync.Mutex
	known map[int32]brokerReach
}

// brokerReach is how they went with one broker. The zero value: none was tried.
type brokerReach struct {
	reached, failed time.Time
	failure         string
}

// tried notes that a connection to a broker that is served was opened, or not. What
// ctx has ended tells nothing of the broker.
func (b *reachBook) tried(ctx context.Context, node int32, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	at := wall().UTC()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.known[node]
	if err == nil {
		r.reached, r.failure = at, ""
	} else {
		r.failed, r.failure = at, shortened(err.Error())
	}
	if b.known == nil {
		b.known = map[int32]brokerReach{}
	}
	b.known[node] = r
}

func (b *reachBook) of(node int32) brokerReach {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[node]
}
