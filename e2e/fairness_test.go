package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// rivalry is a contest without a last place: writers that send again at once, with
// the next offset that they were told, through proxies that do not know of each
// other. What counts is who wins.
type rivalry struct {
	try      int // how often it was run before
	proxies  int
	replicas int16
	late     time.Duration // how much later than the others the last proxy's writers begin
	trip     time.Duration // of a writer's way to its proxy and back, besides what is real
	writers  int           // in all, spread over the proxies
	atEnd    bool          // they say "end" in place of an offset
	places   int64         // after which it is over; 0: only when its time is
}

// rivals are the writers of one proxy together.
type rivals struct {
	wins, rounds int
	together     int // wins while all took part
	longestOfOne int // most rounds that one of them lost in a row
	longestOfAll int // most places in a row that none of them got
}

func (r rivalry) String() string {
	kind := "conditional"
	if r.atEnd {
		kind = "end"
	}
	return fmt.Sprintf("%s, %d replicas, %d proxies, %v late, %v away", kind, r.replicas, r.proxies, r.late, r.trip)
}

// rivalWin is a place that was won.
type rivalWin struct {
	place int64
	proxy int
	at    time.Duration
}

// run lets writers race on a topic of its own for so long, all of them.
func (r rivalry) run(t *testing.T, proxies []*proxyProcess, lasts time.Duration) []rivals {
	t.Helper()
	topic := strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprintf("shared %d of %v %d", r.writers, r, r.try))
	createReplicatedTopic(t, adminAt(t, brokers.addresses()...), topic, 1, r.replicas, nil)
	ctx, cancel := context.WithTimeout(t.Context(), r.late+lasts)
	defer cancel()
	all := make([]rivals, r.proxies)
	var wins []rivalWin
	var mu sync.Mutex // guards both
	var group sync.WaitGroup
	began := time.Now()
	c := &contest{topic: topic}
	if r.atEnd {
		c.batch = func(_ attempt, record rawRecord) []byte {
			return encodeBatch(rawRecord{value: record.value, headers: []rawHeader{{"expected-offset", "end"}}})
		}
	}
	for id := range r.writers {
		proxy := id % r.proxies
		w := writer{contest: c, id: id, bootstrap: proxies[proxy].bootstrap}
		group.Go(func() {
			defer w.hangUp()
			if proxy == r.proxies-1 {
				pause(ctx, r.late)
			}
			won, rounds, longest := w.rival(ctx, t, r)
			mu.Lock()
			defer mu.Unlock()
			all[proxy].rounds += rounds
			all[proxy].longestOfOne = max(all[proxy].longestOfOne, longest)
			for place, at := range won {
				wins = append(wins, rivalWin{place, proxy, at.Sub(began)})
			}
		})
	}
	group.Wait()
	r.count(all, wins)
	r.report(t, all, min(lasts, time.Since(began)-r.late))
	return all
}

// rival sends until ctx ends or all places are full, and tells which places it won and when, how often it
// sent, and how often in a row in vain.
func (w *writer) rival(ctx context.Context, t *testing.T, r rivalry) (places map[int64]time.Time, rounds, longest int) {
	places = map[int64]time.Time{}
	next, losing := int64(0), 0
	for ctx.Err() == nil && (r.places == 0 || next < r.places) {
		if w.conn == nil && !w.connect() {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		pause(ctx, r.trip)
		a, following, err := w.attempt(next)
		if err != nil {
			t.Errorf("writer %d: %v", w.id, err)
			break
		}
		rounds++
		switch a.outcome {
		case won:
			places[a.offset] = time.Now()
			losing = -1
		case unknown, notWritten:
			w.hangUp()
		}
		losing++
		longest = max(longest, losing)
		next = following
	}
	return places, rounds, longest
}

// count adds up what each proxy won.
func (r rivalry) count(all []rivals, wins []rivalWin) {
	slices.SortFunc(wins, func(a, b rivalWin) int { return int(a.place - b.place) })
	last := make([]int64, len(all))
	for _, w := range wins {
		p := &all[w.proxy]
		p.wins++
		if w.at >= r.late {
			p.together++
		}
		p.longestOfAll = max(p.longestOfAll, int(w.place-last[w.proxy]))
		last[w.proxy] = w.place
	}
}

func (r rivalry) report(t *testing.T, all []rivals, lasts time.Duration) {
	t.Helper()
	var shares []string
	for i, share := range rivalShares(all) {
		shares = append(shares, fmt.Sprintf("%.0f%% (%d in a row lost by one writer, %d places by all)", 100*share, all[i].longestOfOne, all[i].longestOfAll))
	}
	t.Logf("%v: %.0f wins/s; %s", r, r.perSecond(all, lasts), strings.Join(shares, ", "))
}

// rivalShares are the proxies' of the places won while all took part.
func rivalShares(all []rivals) []float64 {
	total := 0
	for _, p := range all {
		total += p.together
	}
	var shares []float64
	for _, p := range all {
		shares = append(shares, float64(p.together)/float64(max(total, 1)))
	}
	return shares
}

// TestProxiesShareAPartition: none is starved by another that appends from
// acknowledgements while it must read views, nor one that comes late. How even
// the shares are, and what the pauses cost, is measured without chance in the
// fence's own tests, and shown here.
func TestProxiesShareAPartition(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	var proxies []*proxyProcess
	for range 3 {
		proxies = append(proxies, startProxy(t, "--require", "shared-*"))
	}
	// Fewer proxies, and those that begin together, have an easier time.
	races := []rivalry{{proxies: 3, replicas: 3, late: 2 * time.Second, writers: 6}}
	lasts := 5 * time.Second
	if longRuns {
		races, lasts = allRivalries(), 10*time.Second
	}
	table := []string{"writers, replicas, proxies, late, away | wins/s | of one proxy's | shares"}
	alone := map[rivalry]float64{}
	for _, r := range races {
		all := r.share(t, proxies, lasts)
		perSecond := r.perSecond(all, lasts)
		lone := r
		lone.proxies, lone.late = 1, 0
		if r.proxies == 1 {
			alone[lone] = perSecond
		}
		of := "not measured"
		if alone[lone] > 0 {
			of = fmt.Sprintf("%.2f", perSecond/alone[lone])
		}
		table = append(table, fmt.Sprintf("%v | %.0f | %s | %.2f", r, perSecond, of, rivalShares(all)))
	}
	t.Log(strings.Join(table, "\n"))
}

// allRivalries are those of the long run, each after that of a proxy alone.
func allRivalries() (all []rivalry) {
	const late = 3 * time.Second
	for _, trip := range []time.Duration{0, 3 * time.Millisecond} {
		for _, atEnd := range []bool{false, true} {
			for _, replicas := range []int16{1, 3} {
				r := rivalry{replicas: replicas, trip: trip, atEnd: atEnd, writers: 6}
				if atEnd {
					r.writers = 24 // so many that each proxy has always something to send
				}
				for _, with := range []rivalry{{proxies: 1}, {proxies: 2}, {proxies: 2, late: late}, {proxies: 3}, {proxies: 3, late: late}} {
					r.proxies, r.late = with.proxies, with.late
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// fairTries is how often shares are measured before they count as unfair: a
// machine with other things to do spoils a measurement, and a proxy that is
// starved is starved in each.
const fairTries = 3

// share runs the rivalry until no proxy has less than half of an even share.
func (r rivalry) share(t *testing.T, proxies []*proxyProcess, lasts time.Duration) (all []rivals) {
	t.Helper()
	least := 0.5 / float64(r.proxies)
	for try := range fairTries {
		r.try = try
		all = r.run(t, proxies, lasts)
		got := slices.Min(rivalShares(all))
		if got >= least {
			return all
		}
		t.Logf("%v: the smallest share is %.2f, want at least %.2f", r, got, least)
	}
	t.Errorf("%v: no share of at least %.2f for each in %d tries", r, least, fairTries)
	return all
}

// perSecond is how many places were won while all took part.
func (r rivalry) perSecond(all []rivals, lasts time.Duration) float64 {
	total := 0
	for _, p := range all {
		total += p.together
	}
	return float64(total) / lasts.Seconds()
}

// TestNoWriterOfAPartitionStarves: each of many wins within a bounded number of
// rounds, all through one proxy. By chance alone one of twenty loses as many in a row
// as are not allowed once in some ten thousand runs; one that is starved loses all.
func TestNoWriterOfAPartitionStarves(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	writers := 20
	if longRuns {
		writers = 50
	}
	p := startProxy(t, "--require", "shared-*")
	for _, replicas := range []int16{1, 3} {
		r := rivalry{proxies: 1, replicas: replicas, writers: writers, places: int64(20 * writers)}
		all := r.run(t, []*proxyProcess{p}, 2*time.Minute)
		if got, most := all[0].longestOfOne, 12*writers; got > most {
			t.Errorf("%v: one of %d writers lost %d races in a row, more than %d", r, writers, got, most)
		}
		if all[0].wins < int(r.places)/2 {
			t.Errorf("%v: %d wins, which show nothing", r, all[0].wins)
		}
	}
}
