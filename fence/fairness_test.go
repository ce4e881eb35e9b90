package fence

import (
	"fmt"
	"testing"
	"time"
)

// testFairness is what the proxy uses.
var testFairness = Fairness{ContendedFor: time.Second, Turn: 20 * time.Millisecond, TurnAlone: 250 * time.Millisecond, TellWithin: 100 * time.Millisecond}

// contentionSetting is brokers and clients of some kind. Those that starve leave
// nearly nothing to some proxy unless the others pause.
type contentionSetting struct {
	name    string
	times   contentionTimes
	starves bool
}

var contentionSettings = []contentionSetting{
	{"one replica", contentionTimes{link: 100 * time.Microsecond, work: 200 * time.Microsecond, client: 50 * time.Microsecond, chance: 0.1}, true},
	{"one replica, clients away", contentionTimes{link: 100 * time.Microsecond, work: 200 * time.Microsecond, client: time.Millisecond, chance: 0.1}, true},
	{"one replica, all away", contentionTimes{link: 500 * time.Microsecond, work: 200 * time.Microsecond, client: time.Millisecond, chance: 0.3}, true},
	{"three replicas", contentionTimes{link: 100 * time.Microsecond, work: 200 * time.Microsecond, replicate: 1500 * time.Microsecond, client: 50 * time.Microsecond, chance: 0.1}, true},
	{"three replicas, clients away", contentionTimes{link: 100 * time.Microsecond, work: 200 * time.Microsecond, replicate: 1500 * time.Microsecond, client: time.Millisecond, chance: 0.1}, false},
	{"three replicas, much chance", contentionTimes{link: 300 * time.Microsecond, work: 300 * time.Microsecond, replicate: 3 * time.Millisecond, client: 300 * time.Microsecond, chance: 0.5}, false},
}

// someSettings leaves out most under the race detector, which makes them slow and
// has nothing to find: there is one goroutine.
func someSettings() []contentionSetting {
	if raceEnabled {
		return contentionSettings[:1]
	}
	return contentionSettings
}

// lasting is a time to measure for.
func lasting(d time.Duration) time.Duration {
	if raceEnabled {
		return d / 4
	}
	return d
}

// spread is n writers over so many proxies.
func spread(n, proxies int) []int {
	all := make([]int, proxies)
	for i := range n {
		all[i%proxies]++
	}
	return all
}

// writersKind is a way of writing, for TestModelProxiesShareAPartition. So many
// writers have the broker always at work, whatever proxy they write through.
type writersKind struct {
	name  string
	n     int
	atEnd func(proxy, writer int) bool
	// unlike: the proxies' writers differ, and some would win more than others if
	// each had a broker of its own.
	unlike bool
	// share of an even one and total, of what one gets alone, that are wanted. Where
	// both kinds are mixed it is not as much: those at the end are always ready to
	// use up a turn, and those with conditions lose their place to them.
	share, total float64
	lasts        time.Duration
	// starves: nearly nothing is left to some proxy unless the others pause.
	starves bool
}

var writersOf = []writersKind{
	{"conditional", 6, func(int, int) bool { return false }, false, 0.5, 0.9, 10 * time.Second, true},
	{"at the end", 24, func(int, int) bool { return true }, false, 0.5, 0.9, 10 * time.Second, false},
	{"every other at the end", 24, func(_, writer int) bool { return writer%2 == 1 }, false, 0.5, 0.25, 4 * time.Second, false},
	{"one proxy's conditional, the others' at the end", 6, func(proxy, _ int) bool { return proxy > 0 }, true, 0.2, 0.9, 10 * time.Second, false}, // 0.21 to 0.41, by the seed
}

// TestModelProxiesShareAPartition: each of two or three gets at least half of an even
// share, also one that comes late, and all together at least nine tenths of what
// one gets alone, if all their writers have conditions or none has. Where they write
// in unlike ways a share is of what a proxy gets alone, and none is starved. Without
// pauses those with conditions are, among each other.
func TestModelProxiesShareAPartition(t *testing.T) {
	for _, s := range someSettings() {
		for _, kind := range writersOf {
			if raceEnabled && kind.unlike {
				continue // what is measured in a shorter time varies much
			}
			t.Run(s.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				kind.measure(t, s)
			})
		}
	}
}

// measure runs two and three proxies, and each of them alone.
func (kind *writersKind) measure(t *testing.T, s contentionSetting) {
	lasts := lasting(kind.lasts)
	start := func(f Fairness, late time.Duration, first int, spread []int) *contention {
		c := newContention(s.times, f, spread...)
		for i, p := range c.proxies {
			for j, w := range p.writers {
				w.atEnd = kind.atEnd(first+i, j)
			}
		}
		c.measure(late, lasts)
		return c
	}
	alone := start(testFairness, 0, 0, spread(kind.n, 1)).wins()
	for proxies := 2; proxies <= 3; proxies++ {
		all := spread(kind.n, proxies)
		var each []int // what each proxy gets alone
		for i, n := range all {
			each = append(each, start(testFairness, 0, i, []int{n}).wins())
		}
		smallest := func(c *contention) float64 {
			if !kind.unlike {
				return c.smallestShare()
			}
			least := 1.0
			for i, p := range c.proxies {
				least = min(least, float64(p.wins()*proxies)/float64(each[i]))
			}
			return least
		}
		for _, late := range []time.Duration{0, 3 * time.Second} {
			name := fmt.Sprintf("%s, %s, %d proxies, %v late", s.name, kind.name, proxies, late)
			c := start(testFairness, late, 0, all)
			share, total := smallest(c), float64(c.wins())/float64(alone)
			if share < kind.share {
				t.Errorf("%s: the smallest share is %.2f of an even one; shares %.2f", name, share, c.shares())
			}
			if total < kind.total {
				t.Errorf("%s: all got %.2f of what one gets alone", name, total)
			}
			without := smallest(start(Fairness{}, late, 0, all))
			if s.starves && kind.starves && without > 0.1 {
				t.Errorf("%s: the smallest share is %.2f without pauses, so that the setting proves nothing", name, without)
			}
			t.Logf("%s: shares %.2f, total %.2f of one alone; the smallest of an even share %.2f, and %.2f without pauses",
				name, c.shares(), total, share, without)
		}
	}
}

// TestModelPausesCostLittleAlone: nobody notices them.
func TestModelPausesCostLittleAlone(t *testing.T) {
	for _, s := range someSettings() {
		for _, writers := range []int{1, 6} {
			with, without := newContention(s.times, testFairness, writers), newContention(s.times, Fairness{TellWithin: testFairness.TellWithin}, writers)
			with.measure(0, lasting(20*time.Second))
			without.measure(0, lasting(20*time.Second))
			if got := float64(with.wins()) / float64(without.wins()); got < 0.985 {
				t.Errorf("%s, %d writers: got %.3f of what is got without pauses", s.name, writers, got)
			}
			if got, want := with.slowest(0.99), without.slowest(0.99); got > want+want/20 {
				t.Errorf("%s, %d writers: the 99th percentile is %v, and %v without pauses", s.name, writers, got, want)
			}
		}
	}
}

// TestModelProxyFurtherFromTheBrokerHasItsTurns: its own appends take longer, so that
// it would lose each place at once to one that is near.
func TestModelProxyFurtherFromTheBrokerHasItsTurns(t *testing.T) {
	times := contentionTimes{work: 150 * time.Microsecond, replicate: 1500 * time.Microsecond, client: 50 * time.Microsecond, chance: 0.1}
	measure := func(f Fairness, links ...time.Duration) *contention {
		c := newContention(times, f, spread(3*len(links), len(links))...)
		for i, p := range c.proxies {
			p.link = links[i] * time.Microsecond
		}
		c.measure(0, 10*time.Second)
		return c
	}
	// It has half of the time: what that comes to depends on the ways.
	if got := measure(testFairness, 50, 500).smallestShare(); got < 0.4 {
		t.Errorf("of two, the further one got %.2f of an even share", got)
	}
	if got := measure(testFairness, 50, 500, 1000).smallestShare(); got < 0.05 {
		t.Errorf("of three, the furthest got %.2f of an even share", got)
	}
	if got := measure(Fairness{}, 50, 500, 1000).smallestShare(); got > 0.01 {
		t.Errorf("of three, the furthest got %.2f of an even share without pauses", got)
	}
}

// TestModelProxyWithFarClientsIsNotShutOut: they need a hundred times as long as those
// of the other proxy.
func TestModelProxyWithFarClientsIsNotShutOut(t *testing.T) {
	if raceEnabled {
		t.Skip("takes long")
	}
	measure := func(f Fairness) int {
		c := newContention(contentionSettings[0].times, f, 3, 3)
		c.proxies[1].client = 5 * time.Millisecond
		c.measure(0, 40*time.Second)
		return c.proxies[1].wins()
	}
	if got := measure(testFairness); got < 30 {
		t.Errorf("got %d places in 40 s", got)
	}
	if got := measure(Fairness{}); got > 0 {
		t.Errorf("got %d places in 40 s without pauses", got)
	}
}

// TestModelEveryWriterOfAProxyWins: of fifty on one partition, none loses more places
// in a row than are bearable. Who answers first, or is nearest, must not win for
// ever.
func TestModelEveryWriterOfAProxyWins(t *testing.T) {
	const writers = 50
	const bound = 2*writers + 8 + writers // patience, and others who lost as often
	measure := func(chance float64, change func(*contentionWriter)) *contention {
		times := contentionSettings[0].times
		times.chance = chance
		c := newContention(times, testFairness, writers)
		for _, w := range c.proxies[0].writers {
			change(w)
		}
		c.measure(0, lasting(2*time.Second))
		return c
	}
	for _, chance := range []float64{0, 0.1, 0.5} {
		if got := measure(chance, func(*contentionWriter) {}).worst(); got > bound {
			t.Errorf("by chance of %v: one lost %d places in a row, want at most %d", chance, got, bound)
		}
		if got := measure(chance, func(w *contentionWriter) { w.id = 0 }).worst(); got <= bound {
			t.Errorf("by chance of %v: one lost %d places in a row where nobody is waited for, so that it proves nothing", chance, got)
		}
	}
	// Batches without a condition always have a place; those with one must find
	// theirs free.
	unconditional := func(w *contentionWriter) { w.atEnd = w.id > 2 }
	if got := measure(0.1, unconditional).worst(); got > bound {
		t.Errorf("among unconditional ones: one lost %d places in a row, want at most %d", got, bound)
	}
	unknown := func(w *contentionWriter) {
		unconditional(w)
		w.id = 0
	}
	if got := measure(0.1, unknown).worst(); got <= bound {
		t.Errorf("among unconditional ones: one lost %d places in a row where nobody is waited for", got)
	}
}
