package main

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

var errGather = errors.New("gather")

// TestScrapesShareGatherings: however many scrape while metrics are gathered, they are
// gathered once more for all of them, and for nobody from before they have asked.
func TestScrapesShareGatherings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gathered, at int // at is what there is to see
		goOn := make(chan struct{})
		s := shareGatherings(func() (int, error) {
			gathered++
			seen := at
			<-goOn
			return seen, errGather
		})
		var all sync.WaitGroup
		scrape := func(want int) {
			all.Go(func() {
				if got, err := s.Gather(); got != want || !errors.Is(err, errGather) {
					t.Errorf("got what there was at %d, err %v; want at %d, err %v", got, err, want, errGather)
				}
			})
			synctest.Wait()
		}
		at = 1
		scrape(1)
		at = 2
		for range 50 {
			scrape(2)
		}
		goOn <- struct{}{}
		goOn <- struct{}{}
		all.Wait()
		if gathered != 2 {
			t.Errorf("got %d gatherings for the first scrape and for 50 at once, want 2", gathered)
		}
		at = 3
		scrape(3)
		goOn <- struct{}{}
		all.Wait()
	})
}
