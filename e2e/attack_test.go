package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An attack has writers of all habits write one partition through two proxies, with
// a rogue between these and the brokers, while processes are frozen and the leader
// moves. In the end the log is held against what was told.
const (
	attackTime  = 12 * time.Second
	attackOneIn = 15
)

// attackDuration is for how long the attack goes on.
func attackDuration() time.Duration {
	if s := os.Getenv("OFFSETPROXY_ATTACK_SECONDS"); s != "" {
		n, _ := strconv.Atoi(s)
		return time.Duration(n) * time.Second
	}
	if longRuns {
		return 10 * attackTime
	}
	return attackTime
}

// attack runs one and returns what is wrong.
func attack(t *testing.T, topic string, seed uint64, duration time.Duration, flags ...string) []string {
	t.Helper()
	var proxies []*attackedProxy
	rogue := &mischief{one: attackOneIn, rng: rand.New(rand.NewPCG(seed, 0))}
	between := standBefore(t, brokers.kafka.RelayedPorts(), rogue.judge(nil))
	for range 2 {
		p := &attackedProxy{proxyProcess: newProxyProcess(t)}
		p.flags = append([]string{
			"--bootstrap", strings.Join(between.addresses(), ","), "--listen", p.bootstrap,
			"--broker-ports", p.brokerPorts(), "--broker-kind", brokers.kind(), "--enforce", topic,
		}, flags...)
		p.start(t, program, p.flags...)
		proxies = append(proxies, p)
	}
	createTopic(t, adminAt(t, brokers.addresses()...), topic, 1)
	log := &attacked{topic: topic}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var group sync.WaitGroup
	for i := range 2 * int(habits) {
		w := &attackWriter{log: log, id: i, habit: habit(i % int(habits)), at: i / int(habits)}
		for _, p := range proxies {
			w.bootstraps = append(w.bootstraps, p.bootstrap)
		}
		if w.habit == remembering {
			w.at = 0 // the other proxy dies, and forgets it
		}
		group.Go(func() {
			if err := w.run(ctx); err != nil {
				t.Errorf("writer %d: %v", w.id, err)
			}
		})
	}
	for i := range 2 {
		group.Go(func() {
			if err := log.franzWriter(ctx, 100+i, proxies[0].bootstrap); err != nil {
				t.Errorf("franz-go: %v", err)
			}
		})
	}
	attackProcesses(ctx, t, topic, seed, proxies)
	group.Wait()
	did := rogue.end()
	between.settle()
	t.Logf("passed %d, disturbed %v", did[letPass], did[1:])
	counts := map[string]map[outcome]int{}
	for _, a := range log.attempts {
		kind := "franz"
		if a.writer < 100 {
			kind = habit(a.writer % int(habits)).String()
		}
		if counts[kind] == nil {
			counts[kind] = map[outcome]int{}
		}
		counts[kind][a.outcome]++
	}
	stored := readLog(t, topic, 0)
	t.Logf("%d records, %d transmissions, %d attempts: %v", len(stored), log.transmissions, len(log.attempts), counts)
	return checkLog(stored, log.attempts, 0, int64(len(stored)))
}

// attackedProxy is a proxy that can be killed and started again.
type attackedProxy struct {
	*proxyProcess
	flags []string
}

// attackProcesses kills the second proxy, freezes both and the leader and moves the leader, until ctx
// ends.
func attackProcesses(ctx context.Context, t *testing.T, topic string, seed uint64, proxies []*attackedProxy) {
	rng := rand.New(rand.NewPCG(seed, 7))
	faults := faultScript{t: t, cluster: brokers.kafka, admin: adminAt(t, brokers.addresses()...), topic: topic}
	for pause(ctx, time.Second); ctx.Err() == nil; pause(ctx, time.Duration(rng.Int64N(int64(2*time.Second)))) {
		switch r := rng.IntN(10); {
		case r < 1:
			t.Log("a proxy is killed")
			proxies[1].kill(t)
			proxies[1].start(t, program, proxies[1].flags...)
		case r < 6:
			p := proxies[rng.IntN(len(proxies))].cmd.Process
			_ = p.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			_ = p.Signal(syscall.SIGCONT)
		case r < 8:
			if err := faults.moveLeaders(ctx, 0); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		default:
			if err := faults.freezeLeader(ctx, time.Second+time.Duration(rng.Int64N(int64(7*time.Second)))); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}
}

// TestAttack disturbs all that can be disturbed without breaking a condition that
// the promises hold under.
func TestAttack(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	violations := attack(t, "attack", seed, attackDuration())
	for _, v := range violations[:min(10, len(violations))] {
		t.Error(v)
	}
}

// TestAttackWithoutTheFenceSucceeds is its twin.
func TestAttackWithoutTheFenceSucceeds(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	violations := attack(t, "attack-unsafe", 1, attackTime/4, "--unsafe")
	t.Logf("%d violations", len(violations))
	if len(violations) == 0 {
		t.Error("the attack had no victim, so it proves nothing about the fence")
	}
}
