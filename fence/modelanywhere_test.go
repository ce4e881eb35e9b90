package fence

import "testing"

// newTwinsWorld is a world of one proxy whose writers without conditions write
// equal records, so that the log alone does not tell which of them wrote one.
func newTwinsWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, false)
	w.proxies = w.proxies[:1]
	for _, cl := range w.clients {
		cl.proxy = 0
		if cl.atEnd = cl.atEnd || seed%2 == 0; cl.atEnd {
			cl.appendID, cl.twin = false, true
		}
	}
	return w
}

// TestTwinsAnywhereGetAPlaceEach: of writers whose records are equal and may lie
// anywhere, no two are told of one and the same record.
func TestTwinsAnywhereGetAPlaceEach(t *testing.T) {
	schedules := uint64(4000)
	if raceEnabled || testing.Short() {
		schedules = 400
	}
	for seed := *modelSeed; seed < *modelSeed+schedules; seed++ {
		w := newTwinsWorld(seed, 0)
		if w.run(); w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, newTwinsWorld(seed, 0).explain())
		}
	}
	for seed := *modelSeed; seed < *modelSeed+schedules; seed++ {
		w := newTwinsWorld(seed, guardClaim)
		if w.run(); w.failure != "" {
			t.Logf("without the guard, seed %d: %s", seed, w.failure)
			return
		}
	}
	t.Error("nothing goes wrong without the guard")
}

// newCrowdedWorld is one in which few transmissions may be of unknown fate.
func newCrowdedWorld(seed uint64, broken guard) *modelWorld {
	w := newModelWorld(seed, broken, false)
	w.cfg.MaxUnsettled = 2 + int(seed%3)
	return w
}

// TestWhatIsUnknownDoesNotCloseAPartition: however many transmissions are of
// unknown fate, a partition can be written again when their bytes are gone.
func TestWhatIsUnknownDoesNotCloseAPartition(t *testing.T) {
	schedules := uint64(4000)
	if raceEnabled || testing.Short() {
		schedules = 400
	}
	for seed := *modelSeed; seed < *modelSeed+schedules; seed++ {
		w := newCrowdedWorld(seed, 0)
		if w.run(); w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, newCrowdedWorld(seed, 0).explain())
		}
	}
	for seed := uint64(903_100); seed < 905_000; seed++ {
		w := newCrowdedWorld(seed, guardRoom)
		if w.run(); w.failure != "" {
			t.Logf("without the guard, seed %d: %s", seed, w.failure)
			return
		}
	}
	t.Error("nothing goes wrong without the guard")
}
