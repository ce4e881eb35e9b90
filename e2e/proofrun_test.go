package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A proof has `offsetproxy verify` write through three proxies and judge what it
// was told, while everything fails that may: brokers and proxies are killed and
// frozen, leaders and replicas move, clocks jump, rules are read anew, and relays
// on both sides of each proxy cut, hold back and double what passes. No condition
// of ARCHITECTURE.md is broken: one broker at a time, and no unclean election.
const proofProxies = 3

// proofPlan is what a proof is to be; the environment says what differs from its
// zero value's.
type proofPlan struct {
	seed       uint64
	duration   time.Duration
	partitions int32
	writers    int
	oneIn      int           // Produce requests is disturbed, on each side
	calm       time.Duration // mean time between two faults of brokers, and of proxies
	longest    time.Duration // that a request is held up
	flags      []string      // of the proxies
	dir        string        // keeps what the run leaves
	kept       bool          // also when nothing is wrong
}

// planProof reads the environment: OFFSETPROXY_PROOF_SECONDS, _SEED (to have the
// same faults again), _ONE_IN, _PAUSE_MS, _HOLD_MS, _PARTITIONS, _WRITERS, _DIR, which
// keeps the history, and _FLAGS, more for the proxies: with --unsafe it must fail.
func planProof(t *testing.T) proofPlan {
	t.Helper()
	number := func(name string, standard uint64) uint64 {
		text := os.Getenv("OFFSETPROXY_PROOF_" + name)
		if text == "" {
			return standard
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OFFSETPROXY_PROOF_%s: %v", name, err)
		}
		return n
	}
	plan := proofPlan{
		seed:       number("SEED", uint64(time.Now().UnixNano())),
		duration:   time.Duration(number("SECONDS", 30)) * time.Second,
		partitions: int32(number("PARTITIONS", 24)),
		writers:    int(number("WRITERS", 192)),
		oneIn:      int(number("ONE_IN", 120)),
		calm:       time.Duration(number("PAUSE_MS", 1_000)) * time.Millisecond,
		longest:    time.Duration(number("HOLD_MS", 8_000)) * time.Millisecond,
		flags:      strings.Fields(os.Getenv("OFFSETPROXY_PROOF_FLAGS")),
	}
	parent := os.Getenv("OFFSETPROXY_PROOF_DIR")
	if plan.kept = parent != ""; !plan.kept {
		parent = filepath.Join("..", ".cache", "proof")
	}
	dir, err := filepath.Abs(filepath.Join(parent, strconv.FormatUint(plan.seed, 10)))
	if err != nil {
		t.Fatal(err)
	}
	plan.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return plan
}

// proof is one run.
type proof struct {
	proofPlan
	t       *testing.T
	topic   string
	log     *faultLog
	brokers faultScript
	proxies []*provenProxy
	relays  []*relay
	rogues  []*mischief
	twins   twinLog
}

// startProof starts the relays and proxies and creates the topic.
func startProof(t *testing.T, plan proofPlan, topic string) *proof {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() && !plan.kept {
			_ = os.RemoveAll(plan.dir)
		}
	})
	p := &proof{
		proofPlan: plan, t: t, topic: topic,
		log:     newFaultLog(t, filepath.Join(plan.dir, "faults.jsonl")),
		brokers: faultScript{t: t, cluster: brokers.kafka, admin: adminAt(t, brokers.addresses()...), topic: topic},
	}
	t.Logf("seed %d: %d partitions, %d writers, %v", plan.seed, plan.partitions, plan.writers, plan.duration)
	toBrokers := p.newRogue("between proxies and brokers", 0)
	p.relays = append(p.relays, standBefore(t, brokers.kafka.RelayedPorts(), toBrokers.judge(nil)))
	for i := range proofProxies {
		one := newProvenProxy(t, p, i)
		if err := one.run(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { one.end(t) })
		p.proxies = append(p.proxies, one)
	}
	toProxies := p.newRogue("between clients and proxies", 1)
	for i, one := range p.proxies {
		waitFor(t, "proxy at "+one.bootstrap, time.Minute, one.ready)
		p.relays = append(p.relays, standBefore(t, one.allPorts(), toProxies.judge(p.twinOf(i))))
	}
	createTopic(t, p.brokers.admin, topic, plan.partitions)
	return p
}

// newRogue is calm until the faults begin.
func (p *proof) newRogue(side string, stream uint64) *mischief {
	rogue := &mischief{
		side: side, one: p.oneIn, longest: p.longest, calm: true, log: p.log,
		rng: rand.New(rand.NewPCG(p.seed, stream)), answered: p.twins.add,
	}
	p.rogues = append(p.rogues, rogue)
	return rogue
}

// twinOf sends a copy of what goes to the i-th proxy there, or to another one,
// and there to the same broker.
func (p *proof) twinOf(i int) twinAddress {
	return func(draw *rand.Rand, port int, another bool) string {
		to := i
		if another {
			to = (i + 1 + draw.IntN(proofProxies-1)) % proofProxies
		}
		port += int(p.proxies[to].ports[0] - p.proxies[i].ports[0])
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
}

// disturb does all that is planned, until its time is over and each kind of fault
// has had its turn.
func (p *proof) disturb(ctx context.Context) {
	for _, rogue := range p.rogues {
		rogue.begin()
	}
	over := make(chan struct{}) // closed when the time is over
	timer := time.AfterFunc(p.duration, func() { close(over) })
	defer timer.Stop()
	var group sync.WaitGroup
	group.Go(func() { p.play(ctx, over, 100, p.brokerDeck()) })
	group.Go(func() { p.play(ctx, over, 101, p.proxyDeck()) })
	group.Wait()
	for _, rogue := range p.rogues {
		rogue.end()
	}
	for _, r := range p.relays {
		r.settle()
	}
}

// misfortune is one kind of fault. It returns when all runs again.
type misfortune func(ctx context.Context, draw *rand.Rand) error

// play goes through a deck again and again, in another order each time, at least
// once.
func (p *proof) play(ctx context.Context, over <-chan struct{}, stream uint64, deck []misfortune) {
	draw := rand.New(rand.NewPCG(p.seed, stream))
	for round := 0; ; round++ {
		draw.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, one := range deck {
			select {
			case <-time.After(time.Duration(draw.Int64N(2 * int64(p.calm)))):
			case <-ctx.Done():
				return
			}
			select {
			case <-over:
				if round > 0 {
					return
				}
			default:
			}
			if err := one(ctx, draw); err != nil && ctx.Err() == nil {
				p.t.Errorf("a fault could not be made, or ended: %v", err)
			}
		}
	}
}

// provenProxy is one of the proxies under proof.
type provenProxy struct {
	*proxyProcess
	program string
	file    string // its configuration
	flags   []string
	rules   string
	clock   clockControl // empty: it does not jump
	ahead   time.Duration

	harmless atomic.Int32 // counts changes of the rules
}

// newProvenProxy writes its configuration. The last has clocks that jump.
func newProvenProxy(t *testing.T, p *proof, i int) *provenProxy {
	t.Helper()
	one := &provenProxy{proxyProcess: newProxyProcess(t), program: program}
	one.file = filepath.Join(p.dir, fmt.Sprintf("proxy-%d.yaml", i))
	one.rules = fmt.Sprintf(`bootstrap: [%s]
listen: %s
advertised_host: %s
broker_ports: %s
rules:
  - topics: %s
    mode: require
`, strings.Join(p.relays[0].addresses(), ", "), one.bootstrap, relayHost, one.brokerPorts(), p.topic)
	one.flags = append([]string{"--config", one.file}, p.flags...)
	if i == proofProxies-1 {
		one.clock = newClockControl(t)
		one.program = proofProgram(t)
		one.flags = append(one.flags, "--clock-control", string(one.clock))
	}
	if err := one.write(); err != nil {
		t.Fatal(err)
	}
	return one
}

// write gives the file another rule that changes nothing for the topic.
func (o *provenProxy) write() error {
	harmless := fmt.Sprintf("  - topics: elsewhere-%d\n    mode: observe\n", o.harmless.Add(1))
	return os.WriteFile(o.file, []byte(o.rules+harmless), 0o600)
}

func (o *provenProxy) run() error { return o.launch(o.program, o.flags...) }

// end stops it in order, and keeps what it said.
func (o *provenProxy) end(t *testing.T) {
	o.stop(t)
	text, _ := o.output.lines(0)
	var all []byte
	for _, line := range text {
		all = append(append(all, line...), '\n')
	}
	if err := os.WriteFile(o.file+".log", all, 0o600); err != nil {
		t.Error(err)
	}
}

// signal reaches it if it runs.
func (o *provenProxy) signal(s syscall.Signal) error { return o.cmd.Process.Signal(s) }
