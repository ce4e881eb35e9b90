package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// Kinds of faults of processes and of the cluster.
const (
	brokerKilled    = "broker killed and revived"
	brokerFrozen    = "broker frozen beyond its session"
	brokerHeld      = "broker frozen within its session"
	leadersMoved    = "leaders moved by the order of replicas"
	leadersElected  = "preferred leaders elected"
	replicasChanged = "replicas taken away and given back"
	proxyKilled     = "proxy killed and started again"
	proxyFrozen     = "proxy frozen"
	proxyReloaded   = "rules read anew"
	clockForward    = "clocks jumped forwards"
	clockBack       = "wall clock jumped back"
)

// brokerSession is broker.session.timeout.ms of the clusters here.
const brokerSession = 6 * time.Second

// proofKinds are what a proof has to have seen.
func proofKinds() []string {
	kinds := []string{
		brokerKilled, brokerFrozen, brokerHeld, leadersMoved, leadersElected, replicasChanged,
		proxyKilled, proxyFrozen, proxyReloaded, clockForward, clockBack,
		"between clients and proxies: sent twice", "between clients and proxies: sent twice (another proxy)",
	}
	for d := letPass + 1; d < deeds; d++ {
		if d != duplicate {
			kinds = append(kinds, "between clients and proxies: "+d.String(), "between proxies and brokers: "+d.String())
		}
	}
	return kinds
}

// between draws a time.
func between(draw *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(draw.Int64N(int64(most-least)))
}

// brokerDeck are the faults of brokers. One of them at a time, and each waits
// until all replicas are in sync: fewer would be no fault but an outage.
func (p *proof) brokerDeck() []misfortune {
	frozen := func(kind string, least, most time.Duration) misfortune {
		return func(ctx context.Context, draw *rand.Rand) error {
			node, d := p.anyBroker(draw), between(draw, least, most)
			p.log.note(kind, "broker %d for %v", node, d)
			if err := p.brokers.cluster.Pause(node); err != nil {
				return err
			}
			time.Sleep(d)
			if err := p.brokers.cluster.Resume(node); err != nil {
				return err
			}
			return p.recover(ctx)
		}
	}
	return []misfortune{
		p.killBroker, frozen(brokerFrozen, brokerSession+time.Second, brokerSession+4*time.Second),
		frozen(brokerHeld, time.Second, brokerSession-2*time.Second), p.moveSome, p.moveSome, p.changeReplicas,
	}
}

func (p *proof) anyBroker(draw *rand.Rand) kafkacluster.NodeID {
	return kafkacluster.NodeID(1 + draw.IntN(brokerCount))
}

func (p *proof) killBroker(ctx context.Context, draw *rand.Rand) error {
	node, d := p.anyBroker(draw), between(draw, 0, 6*time.Second)
	p.log.note(brokerKilled, "broker %d for %v", node, d)
	if err := p.brokers.cluster.Kill(node); err != nil {
		return err
	}
	time.Sleep(d)
	if err := p.brokers.cluster.Revive(ctx, node); err != nil {
		return err
	}
	return p.recover(ctx)
}

// recover waits until all is in sync, and gives each partition to the first of
// its replicas again.
func (p *proof) recover(ctx context.Context) error {
	if err := p.brokers.awaitWhole(ctx); err != nil {
		return err
	}
	all, err := p.brokers.toldPartitions(ctx)
	if err != nil {
		return err
	}
	moved := map[int32][]int32{}
	for _, one := range all {
		if one.Leader != one.Replicas[0] {
			moved[one.Partition] = one.Replicas
		}
	}
	if len(moved) == 0 {
		return nil
	}
	p.log.note(leadersElected, "%v", moved)
	return p.brokers.elect(ctx, moved)
}

// some draws a third of the partitions.
func (p *proof) some(draw *rand.Rand) []int32 {
	var all []int32
	for one := range p.partitions {
		all = append(all, one)
	}
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+len(all)/3]
}

func (p *proof) moveSome(ctx context.Context, draw *rand.Rand) error {
	some := p.some(draw)
	p.log.note(leadersMoved, "partitions %v", some)
	return p.brokers.moveLeaders(ctx, some...)
}

// changeReplicas takes a replica from some partitions, the leader perhaps, and
// gives them a new one there: what it had is gone.
func (p *proof) changeReplicas(ctx context.Context, draw *rand.Rand) error {
	some := p.some(draw)
	all, err := p.brokers.toldPartitions(ctx)
	if err != nil {
		return err
	}
	fewer, again := map[int32][]int32{}, map[int32][]int32{}
	for _, one := range some {
		replicas := slices.Clone(all[one].Replicas)
		draw.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
		fewer[one], again[one] = replicas[1:], replicas
	}
	p.log.note(replicasChanged, "%v", fewer)
	if err := p.brokers.assign(ctx, fewer); err != nil {
		return err
	}
	if err := p.awaitReplicas(ctx, fewer); err != nil {
		return err
	}
	time.Sleep(between(draw, 0, 2*time.Second))
	if err := p.brokers.assign(ctx, again); err != nil {
		return err
	}
	if err := p.awaitReplicas(ctx, again); err != nil {
		return err
	}
	return p.recover(ctx)
}

var errNotAssigned = errors.New("partition has other replicas than assigned")

func (p *proof) awaitReplicas(ctx context.Context, wanted map[int32][]int32) error {
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	for {
		all, err := p.brokers.partitions(ctx)
		for one, replicas := range wanted {
			if err == nil && (len(all[one].Replicas) != len(replicas) || len(all[one].ISR) != len(replicas)) {
				err = fmt.Errorf("%d has %v, in sync %v: %w", one, all[one].Replicas, all[one].ISR, errNotAssigned)
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// proxyDeck are the faults of proxies, one at a time.
func (p *proof) proxyDeck() []misfortune {
	jumping := p.proxies[proofProxies-1]
	return []misfortune{
		p.killProxy, p.freezeProxy, p.freezeProxy, p.freezeProxy, p.reloadProxy,
		func(_ context.Context, draw *rand.Rand) error {
			boot, wall := between(draw, 0, 2*time.Minute), between(draw, 0, 4*time.Minute)-jumping.ahead
			if wall < 0 || draw.IntN(2) == 0 {
				wall = 0
			}
			p.log.note(clockForward, "boot by %v, wall by %v", boot, wall)
			jumping.ahead += wall
			return jumping.jump(boot, wall)
		},
		func(_ context.Context, draw *rand.Rand) error {
			wall := -between(draw, 0, 4*time.Minute) - jumping.ahead
			if wall > 0 {
				wall = -time.Second
			}
			p.log.note(clockBack, "wall by %v", wall)
			jumping.ahead += wall
			return jumping.jump(0, wall)
		},
	}
}

// proxyPatience is for how long a proxy may take to start or to do as it is told,
// while brokers are away and the machine is busy.
const proxyPatience = 90 * time.Second

// tryUntil repeats what may fail while a proxy starts.
func tryUntil(limit time.Duration, do func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// jump has its clocks jump.
func (o *provenProxy) jump(boot, wall time.Duration) error {
	return tryUntil(proxyPatience, func() error { return o.clock.jump(boot, wall) })
}

func (p *proof) anyProxy(draw *rand.Rand) (int, *provenProxy) {
	i := draw.IntN(len(p.proxies))
	return i, p.proxies[i]
}

func (p *proof) killProxy(_ context.Context, draw *rand.Rand) error {
	i, one := p.anyProxy(draw)
	d := between(draw, 0, 3*time.Second)
	p.log.note(proxyKilled, "proxy %d for %v", i, d)
	if err := one.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-one.ended
	time.Sleep(d)
	one.ahead = 0
	if err := one.run(); err != nil {
		return err
	}
	return tryUntil(proxyPatience, func() error {
		conn, err := dialRaw(one.bootstrap)
		if err == nil {
			conn.close()
		}
		return err
	})
}

// freezeProxy keeps a proxy still for longer than others need to overtake it, with
// its sockets open.
func (p *proof) freezeProxy(_ context.Context, draw *rand.Rand) error {
	i, one := p.anyProxy(draw)
	d := between(draw, 500*time.Millisecond, 6*time.Second)
	p.log.note(proxyFrozen, "proxy %d for %v", i, d)
	if err := one.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return one.signal(syscall.SIGCONT)
}

var errNotReloaded = errors.New("rules were not read anew")

// reloadProxy has a proxy read its rules anew: one differs, which concerns no topic
// that there is.
func (p *proof) reloadProxy(_ context.Context, draw *rand.Rand) error {
	i, one := p.anyProxy(draw)
	if err := one.write(); err != nil {
		return err
	}
	p.log.note(proxyReloaded, "proxy %d", i)
	_, said := one.output.lines(0)
	if err := one.signal(syscall.SIGHUP); err != nil {
		return err
	}
	return tryUntil(proxyPatience, func() error {
		lines, _ := one.output.lines(said)
		if !strings.Contains(strings.Join(lines, "\n"), "other rules are in force") {
			return errNotReloaded
		}
		return nil
	})
}
