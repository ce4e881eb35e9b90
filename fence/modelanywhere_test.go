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
	sweep(t, "equals", schedulesOf(4000, 400))
	breaksWithout(t, "equals", guardClaim, 1, anothersSuccess)
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
	sweep(t, "crowded", schedulesOf(4000, 400))
	breaksWithout(t, "crowded", guardRoom, 903_100, stuck)
}
