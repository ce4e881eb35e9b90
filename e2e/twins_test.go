package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A weakening makes a twin: a run of `offsetproxy verify` on proxies from which one
// protection was taken away. It must show a promise broken. The same run with
// everything in place must be clean, so that it is the protection that makes the
// difference.
type weakening struct {
	name string
	load load
	// without are the flags that take it away, and second those that do that to
	// another one that holds as well: then the run is clean with the first of the
	// two in place too.
	without, second []string
	// kind is the violation that must be seen, among others perhaps.
	kind string
}

// inFrontOfBrokers is held by the run that stands at the one address at which the
// brokers' relays are.
var inFrontOfBrokers sync.Mutex

// load is what twins have to cope with.
type load struct {
	name                string
	proxies, partitions int
	verify              []string
	lasts               string // default: twinTime
	// last are flags for the last of the proxies alone.
	last []string
	// answersLost: between clients and proxies answers get lost. stalled: between
	// proxies and brokers each request is held up for a random while, so that they
	// arrive in another order than they were sent in.
	answersLost, stalled bool
}

var (
	// raceLoad is nothing but writers that race through two proxies.
	raceLoad = load{
		name: "race", proxies: 2, partitions: 4,
		verify: []string{"--writers", "24", "--max-records", "2"},
	}
	// lossLoad has all writers send the same again after a loss.
	lossLoad = load{
		name: "loss", proxies: 1, partitions: 4, answersLost: true,
		verify: []string{"--writers", "16", "--habits", "insisting,restamping", "--end-share", "0"},
	}
	// orderLoad begins many partitions with writers that expect the place behind
	// the one that others are about to get.
	orderLoad = load{
		name: "order", proxies: 1, partitions: 32, stalled: true,
		verify: []string{
			"--writers", "96", "--max-records", "1", "--habits", "once",
			"--end-share", "0", "--ahead-share", "0.9", "--request-timeout", "5s",
		},
	}
)

var weakenings = []weakening{
	{"no fence: check, then forward", raceLoad, []string{"--unsafe"}, nil, "success misplaced"},
	{"a duplicate passes for an append", raceLoad, []string{"--without-guard", "append-time"}, nil, "success missing"},
	// What is sent on a predicted end can only arrive before what is to bring the
	// end there, and land in its place, while the broker has no state of the fence.
	// Nothing uncommitted is built on before such state was seen: the guard witness.
	{
		"two in flight on the predicted end", orderLoad,
		[]string{"--without-guard", "one-in-flight"}, []string{"--without-guard", "witness"}, "unknown misplaced",
	},
	{"no comparison before taken", lossLoad, []string{"--without-guard", "identity"}, nil, "taken, yet in the log"},
}

// Each run is short; one that shows nothing is repeated.
const (
	twinTime = "3s"
	twinRuns = 5
)

// TestTwins takes away one protection after the other, with proxies and topics of
// its own for each.
func TestTwins(t *testing.T) {
	requireKafka(t)
	proof := proofProgram(t)
	for _, l := range []load{raceLoad, lossLoad, orderLoad} {
		t.Run("all protections, "+l.name, func(t *testing.T) {
			t.Parallel()
			l.mustBeClean(t, proof, "twin-none-"+l.name)
		})
	}
	for i, one := range weakenings {
		if one.second != nil {
			t.Run(one.name+", but for that", func(t *testing.T) {
				t.Parallel()
				one.load.mustBeClean(t, proof, fmt.Sprintf("twin-%d-second", i), one.second...)
			})
		}
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			r := one.load.start(t, proof, slices.Concat(one.without, one.second)...)
			v := r.verifyAgain(t, fmt.Sprintf("twin-%d", i), func(v twinVerdict) bool { return v.Kinds[one.kind] > 0 })
			if v.Kinds[one.kind] == 0 {
				t.Errorf("no violation %q: the protection is not needed, or the check would not notice", one.kind)
			}
		})
	}
}

// mustBeClean wants a run to which nothing happens.
func (l load) mustBeClean(t *testing.T, program, topic string, flags ...string) {
	t.Helper()
	r := l.start(t, program, flags...)
	v := r.verifyAgain(t, topic, func(v twinVerdict) bool { return !v.Verified || v.OK > 0 })
	if !v.Verified {
		t.Errorf("%d violations: %+v", v.ViolationsTotal, v.Violations[:min(5, len(v.Violations))])
	}
	r.mustHaveActed(t)
}

// twinRun is a load that is there.
type twinRun struct {
	load       load
	proxies    []*proxyProcess
	bootstraps []string
	history    string // of the last verify
	relays     []*relay
	held       *stalls
}

// start starts proxies and relays.
func (l load) start(t *testing.T, program string, flags ...string) *twinRun {
	t.Helper()
	if l.stalled {
		inFrontOfBrokers.Lock()
		t.Cleanup(inFrontOfBrokers.Unlock) // after the relays have gone
	}
	r := &twinRun{load: l, held: &stalls{rng: rand.New(rand.NewPCG(1, 2))}}
	upstream := brokers.bootstrap
	if l.stalled {
		upstream = standBefore(t, brokers.kafka.RelayedPorts(), r.held.judge).bootstrap
	}
	for i := range l.proxies {
		p := newProxyProcess(t)
		own := []string{
			"--bootstrap", upstream, "--listen", p.bootstrap, "--broker-ports", p.brokerPorts(),
			"--broker-kind", brokers.kind(), "--require", "twin-*",
		}
		if l.answersLost {
			own = append(own, "--advertised-host", relayHost)
		}
		if i == l.proxies-1 {
			own = append(own, l.last...)
		}
		p.start(t, program, append(own, flags...)...)
		bootstrap := p.bootstrap
		if l.answersLost {
			lost := startRelay(t, p, func(produce int) deed {
				if produce%8 == 7 {
					return loseAnswer
				}
				return letPass
			})
			r.relays, bootstrap = append(r.relays, lost), lost.bootstrap
		}
		r.proxies, r.bootstraps = append(r.proxies, p), append(r.bootstraps, bootstrap)
	}
	return r
}

// mustHaveActed wants the relays to have disturbed something.
func (r *twinRun) mustHaveActed(t *testing.T) {
	t.Helper()
	for _, relay := range r.relays {
		if relay.done() == 0 {
			t.Error("no answer was lost, so that the run shows nothing")
		}
	}
	if r.load.stalled && r.held.count() == 0 {
		t.Error("no request was held up, so that the run shows nothing")
	}
}

// stalls holds up each Produce.
type stalls struct {
	mu  sync.Mutex
	rng *rand.Rand
	n   int
}

func (s *stalls) judge(one relayed) verdict {
	if one.produce < 0 {
		return verdict{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return verdict{deed: stall, after: time.Duration(s.rng.Int64N(int64(250 * time.Millisecond)))}
}

func (s *stalls) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// verifyAgain does so on one topic after the other until enough was seen, or it was
// tried often enough.
func (r *twinRun) verifyAgain(t *testing.T, topic string, enough func(twinVerdict) bool) twinVerdict {
	t.Helper()
	for run := 0; ; run++ {
		v := r.verify(t, fmt.Sprintf("%s-%d", topic, run))
		t.Log(v)
		if run == twinRuns-1 || enough(v) {
			return v
		}
	}
}

// twinVerdict is what `offsetproxy verify --output json` says.
type twinVerdict struct {
	Verified        bool            `json:"verified"`
	Violations      []twinViolation `json:"violations"`
	ViolationsTotal int             `json:"violations_total"`
	Kinds           map[string]int  `json:"violations_by_kind"`
	Operations      int             `json:"operations"`
	OK              int             `json:"ok"`
	Seconds         float64         `json:"seconds"`
	Linearizable    string          `json:"linearizable"`
}

type twinViolation struct {
	Text string `json:"text"`
}

func (v twinVerdict) String() string {
	text := fmt.Sprintf("%d operations, %d won, in %.1f s: %d violations, by kind %v, linearizable: %s",
		v.Operations, v.OK, v.Seconds, v.ViolationsTotal, v.Kinds, v.Linearizable)
	if len(v.Violations) > 0 {
		text += "; the first: " + v.Violations[0].Text
	}
	return text
}

// verify writes to a new topic and holds the log against what was told.
func (r *twinRun) verify(t *testing.T, topic string) twinVerdict {
	t.Helper()
	createTopic(t, adminAt(t, brokers.addresses()...), topic, int32(r.load.partitions))
	r.history = filepath.Join(t.TempDir(), "history.jsonl")
	args := append([]string{
		"verify", "--topic", topic, "--partitions", strconv.Itoa(r.load.partitions), "--for", cmp.Or(r.load.lasts, twinTime), "--seed", "1", "--output", "json", "--patience", "5s", "--settle", "1s",
		"--read-from", brokers.addresses()[0], "--history", r.history,
	}, r.load.verify...)
	for _, bootstrap := range r.bootstraps {
		args = append(args, "--bootstrap", bootstrap)
	}
	got := runProgram(t, args...)
	var v twinVerdict
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || got.status > 1 || v.Verified != (got.status == 0) {
		t.Fatalf("verify ended with status %d, %v, and said %.2000s%.2000s", got.status, err, got.stdout, got.stderr)
	}
	return v
}
