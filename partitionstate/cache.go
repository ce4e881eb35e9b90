package partitionstate

import (
	lru "github.com/hashicorp/golang-lru/v2"
)

// Key names a partition of a topic. ID is the topic's id (KIP-516), zero where
// the brokers have none: a topic that is deleted and created again under its
// old name is another topic, with offsets and leader epochs of its own.
type Key struct {
	Topic     string
	ID        [16]byte
	Partition int32
}

// Cache keeps the states of idle partitions, bounded: when it is full, the
// one unused for longest is forgotten, which costs its next batch one reading
// of the view, and its idempotent clients the memory of their last batches.
// Partitions with work in progress, or with transmissions of unknown fate, are
// never in it; their holder takes them out with Take and brings them back with
// Put. Not for concurrent use.
type Cache struct {
	idle *lru.Cache[Key, *State]
	// producers counts the virtual producer states in idle, of which there may
	// be mostProducers.
	producers, mostProducers int
}

// NewCache makes a cache for up to size partitions with up to producers virtual
// producer states in all; both ≥ 1. onEvict, which may be nil, is called for each
// state that is pushed out by a newer one, from within Put, with the number of
// its virtual producer states.
func NewCache(size, producers int, onEvict func(k Key, producers int)) (*Cache, error) {
	c := &Cache{mostProducers: producers}
	var err error
	c.idle, err = lru.NewWithEvict(size, func(k Key, s *State) {
		if s == nil {
			return
		}
		c.producers -= s.Producers()
		if onEvict != nil {
			onEvict(k, s.Producers())
		}
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Take removes and returns the state of k, or a new one.
func (c *Cache) Take(k Key) *State {
	s, ok := c.idle.Peek(k)
	if !ok {
		return new(State)
	}
	// Emptied first, so that removing it does not count as an eviction.
	c.idle.Add(k, nil)
	c.idle.Remove(k)
	c.producers -= s.Producers()
	return s
}

// Put gives back, now, a state that nothing is in flight for.
func (c *Cache) Put(now Instant, k Key, s *State) {
	s.Idle(now)
	c.producers += s.Producers()
	c.idle.Add(k, s)
	for c.producers > c.mostProducers {
		if _, _, ok := c.idle.RemoveOldest(); !ok {
			return
		}
	}
}

// Len is the number of states in it.
func (c *Cache) Len() int { return c.idle.Len() }

// Producers is the number of virtual producer states in it.
func (c *Cache) Producers() int { return c.producers }
