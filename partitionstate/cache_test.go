package partitionstate

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func key(i int) Key { return Key{Topic: "t", Partition: int32(i)} }

func newCache(t interface{ Fatalf(string, ...any) }, size int, onEvict func(Key, int)) *Cache {
	c, err := NewCache(size, 100, onEvict)
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
		c := newCache(t, size, func(k Key, _ int) { evicted = append(evicted, k) })
		var idle []Key // oldest first
		held := map[Key]*State{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := key(rapid.IntRange(0, 5).Draw(t, "key"))
			if s, ok := held[k]; ok {
				c.Put(1, k, s)
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
	c.Put(1, key(0), s)
	again := key(0)
	again.ID[0] = 1 // deleted and created anew
	if got := c.Take(again).LowerBound(); got != 0 {
		t.Errorf("got committed %d of the topic that was there before", got)
	}
	c.Put(1, key(1), new(State))
	c.Put(1, key(2), new(State)) // evicts without a callback
	if got := c.Take(key(0)).LowerBound(); got != 0 {
		t.Errorf("got committed %d after eviction, want 0", got)
	}
}

func TestCachePutShrinks(t *testing.T) {
	c := newCache(t, 1, nil)
	s := c.Take(key(0))
	s.Learned(0, run(0, 100))
	c.Put(1, key(0), s)
	if _, ok := c.Take(key(0)).Known(0, 100); ok {
		t.Error("an idle state keeps as much as one in use")
	}
}

func TestNewCacheRefusesNoRoom(t *testing.T) {
	if _, err := NewCache(0, 1, nil); err == nil {
		t.Error("got a cache for no partitions")
	}
}

// Idle states are bounded by their virtual producer states, too: many partitions
// with many clients each would cost as much as they like.
func TestCacheBoundsProducers(t *testing.T) {
	evicted := map[Key]int{}
	c, err := NewCache(1000, 10, func(k Key, producers int) { evicted[k] = producers })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s := c.Take(key(i))
		for id := range ProducerID(4) {
			s.AddProducer(1, id, time.Minute, 100)
		}
		c.Put(1, key(i), s)
	}
	if got := c.Producers(); got != 8 {
		t.Errorf("got %d producer states, want those of two partitions", got)
	}
	if len(evicted) != 3 || evicted[key(0)] != 4 || evicted[key(2)] != 4 {
		t.Errorf("evicted %v, want the three partitions unused for longest, with 4 each", evicted)
	}
	if got := c.Take(key(4)).Producers(); got != 4 {
		t.Errorf("got %d producer states of the newest partition, want 4", got)
	}
	if got := c.Producers(); got != 4 {
		t.Errorf("got %d producer states after one partition was taken out, want 4", got)
	}
	s := c.Take(key(3))
	if got := s.Producers(); got != 4 {
		t.Errorf("got %d producer states, want 4", got)
	}
	c.Put(Instant(time.Hour), key(3), s)
	if got := c.Producers(); got != 0 {
		t.Errorf("got %d producer states that nobody used for an hour", got)
	}
}
