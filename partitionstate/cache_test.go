package partitionstate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func key(i int) Key { return Key{Topic: "t", Partition: int32(i)} }

func newCache(t interface{ Fatalf(string, ...any) }, size int, onEvict func(Key)) *Cache {
	c, err := NewCache(size, onEvict)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// The cache against a list in order of use.
func TestCacheAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 3
		var evicted, want []Key
		c := newCache(t, size, func(k Key) { evicted = append(evicted, k) })
		var idle []Key // oldest first
		held := map[Key]*State{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := key(rapid.IntRange(0, 5).Draw(t, "key"))
			if s, ok := held[k]; ok {
				c.Put(k, s)
				delete(held, k)
				idle = append(idle, k)
				if len(idle) > size {
					want, idle = append(want, idle[0]), idle[1:]
				}
			} else {
				s := c.Take(k)
				known := slices.Contains(idle, k)
				if got := s.LowerBound() == Offset(k.Partition)+1; got != known {
					t.Fatalf("%v: got its state %v, want %v", k, got, known)
				}
				s.SeeCommitted(1, Offset(k.Partition)+1, 0)
				held[k] = s
				idle = slices.DeleteFunc(idle, func(o Key) bool { return o == k })
			}
			if got := c.idle.Len(); got != len(idle) {
				t.Fatalf("got %d idle, want %d", got, len(idle))
			}
			if !slices.Equal(evicted, want) {
				t.Fatalf("evicted %v, want %v", evicted, want)
			}
		}
	})
}

func TestCacheKeysHaveTopicIDs(t *testing.T) {
	c := newCache(t, 2, nil)
	s := c.Take(key(0))
	s.SeeCommitted(1, 7, 0)
	c.Put(key(0), s)
	again := key(0)
	again.ID[0] = 1 // deleted and created anew
	if got := c.Take(again).LowerBound(); got != 0 {
		t.Errorf("got committed %d of the topic that was there before", got)
	}
	c.Put(key(1), new(State))
	c.Put(key(2), new(State)) // evicts without a callback
	if got := c.Take(key(0)).LowerBound(); got != 0 {
		t.Errorf("got committed %d after eviction, want 0", got)
	}
}

func TestCachePutShrinks(t *testing.T) {
	c := newCache(t, 1, nil)
	s := c.Take(key(0))
	s.Learned(0, run(0, 100))
	c.Put(key(0), s)
	if _, ok := c.Take(key(0)).Known(0, 100); ok {
		t.Error("an idle state keeps as much as one in use")
	}
}

func TestNewCacheRefusesNoRoom(t *testing.T) {
	if _, err := NewCache(0, nil); err == nil {
		t.Error("got a cache for no partitions")
	}
}
