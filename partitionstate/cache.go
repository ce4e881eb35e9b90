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
// of the view. Partitions with work in progress, or with transmissions of
// unknown fate, are never in it; their holder takes them out with Take and
// brings them back with Put. Safe for concurrent use, but calls for one key
// must not overlap: there may be only one holder of a state.
type Cache struct {
	idle *lru.Cache[Key, *State]
}

// NewCache makes a cache for up to size partitions; size ≥ 1. onEvict, which
// may be nil, is called for each state that is pushed out by a newer one, from
// within Put.
func NewCache(size int, onEvict func(Key)) (*Cache, error) {
	c, err := lru.NewWithEvict(size, func(k Key, s *State) {
		if onEvict != nil && s != nil {
			onEvict(k)
		}
	})
	if err != nil {
		return nil, err
	}
	return &Cache{idle: c}, nil
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
	return s
}

// Put gives back a state that nothing is in flight for.
func (c *Cache) Put(k Key, s *State) {
	s.Idle()
	c.idle.Add(k, s)
}
