package main

import "sync"

// sharedGatherer gathers metrics once at a time, for all who have asked before it began:
// however many scrape, they take no more than one processor from the proxy for it, and
// what each gets was gathered after it has asked. F is what Prometheus gathers. It may be
// used concurrently.
type sharedGatherer[F any] struct {
	gather func() (F, error)

	mu   sync.Mutex
	next *gathering[F] // that has not begun; nil: nobody waits for one
	last chan struct{} // done of the one that was begun or waits last
}

func shareGatherings[F any](gather func() (F, error)) *sharedGatherer[F] {
	return &sharedGatherer[F]{gather: gather}
}

// gathering is what was gathered; nobody changes it.
type gathering[F any] struct {
	done     chan struct{} // closed once the rest is there
	families F
	err      error
}

// Gather gives what was gathered, which must not be changed.
func (s *sharedGatherer[F]) Gather() (F, error) {
	s.mu.Lock()
	g, before := s.next, s.last
	if g != nil {
		s.mu.Unlock()
		<-g.done
		return g.families, g.err
	}
	g = &gathering[F]{done: make(chan struct{})}
	s.next, s.last = g, g.done
	s.mu.Unlock()
	defer close(g.done)
	if before != nil {
		<-before
	}
	s.mu.Lock()
	s.next = nil // whoever comes from now on has seen more
	s.mu.Unlock()
	g.families, g.err = s.gather()
	return g.families, g.err
}
