package e2e

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Two proxies and four writers are the least that shows every race: between
// writers of one proxy, and between proxies that do not know of each other.
const (
	raceProxies = 2
	raceWriters = 4
)

// newContest starts the proxies and makes the topic, through one of them.
func newContest(t *testing.T, topic string, places int64, flags ...string) *contest {
	t.Helper()
	return newConfiguredContest(t, topic, places, nil, flags...)
}

// newConfiguredContest is newContest with settings of the topic.
func newConfiguredContest(t *testing.T, topic string, places int64, configs map[string]*string, flags ...string) *contest {
	t.Helper()
	c := &contest{topic: topic, places: places, writers: raceWriters}
	for range raceProxies {
		c.proxies = append(c.proxies, startProxy(t, append([]string{"--require", topic}, flags...)...))
	}
	createConfiguredTopic(t, adminAt(t, c.proxies[0].bootstrap), topic, 1, configs)
	return c
}

// checkPlaces fails the test for each violation, up to ten.
func (c *contest) checkPlaces(t *testing.T) {
	t.Helper()
	violations := checkLog(readLog(t, c.topic, 0), c.attempts, 0, c.places)
	for _, violation := range violations[:min(10, len(violations))] {
		t.Error(violation)
	}
	if len(violations) > 0 {
		t.Errorf("%d violations in all", len(violations))
	}
}

func needsFence(t *testing.T) {
	t.Helper()
	if direct {
		t.Skip("nothing checks conditions without a proxy")
	}
}

func TestRacingWritersGetEachPlaceOnce(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	places := int64(1_000) // without the fence each of a few hundred has a victim
	if longRuns {
		places = 50_000
	}
	c := newContest(t, "race", places)
	c.run(t, 2*time.Minute+time.Duration(places)*60*time.Millisecond)
	c.checkPlaces(t)
}

// TestRaceWithoutTheFenceIsLost shows that the race is one: proxies that only
// check and forward must be caught by the same check.
func TestRaceWithoutTheFenceIsLost(t *testing.T) {
	requireKafka(t)
	places := int64(500) // nearly each of which has a victim
	topic := "race-unsafe"
	c := newContest(t, topic, places, "--unsafe")
	c.run(t, 5*time.Minute)
	violations := checkLog(readLog(t, topic, 0), c.attempts, 0, places)
	t.Logf("%d violations", len(violations))
	if len(violations) == 0 {
		t.Error("the race had no victim, so it proves nothing about the fence")
	}
}

// TestRacesSurviveALostLeader moves the leader by a reassignment, kills the new
// leader in mid-run, revives it and moves the leader back, all while writers
// race: on one topic those that expect an offset, on another all kinds.
func TestRacesSurviveALostLeader(t *testing.T) {
	cluster := requireKafka(t)
	needsFence(t)
	places := int64(1_000)
	if longRuns {
		places = 20_000
	}
	races := []*contest{
		{topic: "race-faults", places: places, writers: raceWriters},
		{topic: "enforce-faults", places: places, writers: 2, anywhere: 4},
	}
	for range raceProxies {
		p := startProxy(t, "--require", races[0].topic, "--enforce", races[1].topic)
		for _, c := range races {
			c.proxies = append(c.proxies, p)
		}
	}
	faults := faultScript{t: t, cluster: cluster, admin: adminAt(t, brokers.addresses()...)}
	for _, c := range races {
		createPlaced(t, c.topic, nil, 1, 2, 3) // one leader for both
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	played := make(chan error, 1) // one send, by the script
	go func() { played <- faults.play(ctx, races...) }()
	var group sync.WaitGroup
	for _, c := range races {
		group.Go(func() {
			c.run(t, 5*time.Minute)
			if c.highest < places {
				cancel() // the writers gave up, so the script's next place never comes
			}
		})
	}
	group.Wait()
	if err := <-played; err != nil {
		t.Error(err)
	}
	for _, c := range races {
		c.checkPlaces(t)
	}
}
