package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// faultScript disturbs the brokers under a topic, and their leadership.
type faultScript struct {
	t       *testing.T
	cluster *kafkacluster.Cluster
	admin   *kadm.Client
	topic   string
}

var errLeadersApart = errors.New("the topics have different leaders, so that not all can be killed at once")

// play takes its cues from how far the writers of all races are. The topics of these
// must have the same replicas in the same order, and so the same leader.
func (f faultScript) play(ctx context.Context, races ...*contest) error {
	var killed kafkacluster.NodeID
	move := func() error {
		leaders := map[int32]bool{}
		for _, c := range races {
			f.topic = c.topic
			if err := f.moveLeaders(ctx, 0); err != nil {
				return err
			}
			partition, err := f.partition(ctx)
			if err != nil {
				return err
			}
			leaders[partition.Leader] = true
		}
		if len(leaders) > 1 {
			return errLeadersApart
		}
		return nil
	}
	for i, step := range []func() error{
		move,
		func() (err error) { killed, err = f.killLeader(ctx); return err },
		func() error { return f.cluster.Revive(ctx, killed) },
		move,
	} {
		for _, c := range races {
			select {
			case <-c.reached(c.places * int64(i+1) / 5):
			case <-ctx.Done():
				return fmt.Errorf("fault %d never had its turn: %w", i, ctx.Err())
			}
		}
		if err := step(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	return nil
}

var errNotListed = errors.New("partition is not listed")

// partition is the topic's first.
func (f faultScript) partition(ctx context.Context) (kadm.PartitionDetail, error) {
	all, err := f.partitions(ctx)
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	partition, ok := all[0]
	if !ok {
		return kadm.PartitionDetail{}, errNotListed
	}
	return partition, nil
}

func (f faultScript) partitions(ctx context.Context) (kadm.PartitionDetails, error) {
	topics, err := f.admin.ListTopics(ctx, f.topic)
	if err != nil {
		return nil, err
	}
	return topics[f.topic].Partitions, topics[f.topic].Err
}

// faultPatience is for how long a fault may take to be made, or to end, where brokers
// are slow to start on a machine that has much to do.
const faultPatience = 2 * time.Minute

// toldPartitions asks until the brokers answer: one may just have gone.
func (f faultScript) toldPartitions(ctx context.Context) (kadm.PartitionDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	for {
		all, err := f.partitions(ctx)
		if err == nil || ctx.Err() != nil {
			return all, err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// moveLeaders puts another replica first in these partitions and has it elected.
func (f faultScript) moveLeaders(ctx context.Context, partitions ...int32) error {
	all, err := f.toldPartitions(ctx)
	if err != nil {
		return err
	}
	wanted := map[int32][]int32{}
	for _, p := range partitions {
		replicas := all[p].Replicas
		if len(replicas) < 2 {
			return fmt.Errorf("partition %d has replicas %v: %w", p, replicas, errNotListed)
		}
		order := append(slices.Clone(replicas[1:]), replicas[0])
		for order[0] == all[p].Leader {
			order = append(order[1:], order[0])
		}
		wanted[p] = order
	}
	if err := f.assign(ctx, wanted); err != nil {
		return err
	}
	return f.elect(ctx, wanted)
}

// assign gives partitions these replicas, in this order. The controller may be about
// to change.
func (f faultScript) assign(ctx context.Context, replicas map[int32][]int32) error {
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	for {
		err := f.tryAssign(ctx, replicas)
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (f faultScript) tryAssign(ctx context.Context, replicas map[int32][]int32) error {
	var assignment kadm.AlterPartitionAssignmentsReq
	for p, order := range replicas {
		assignment.Assign(f.topic, p, order)
	}
	moved, err := f.admin.AlterPartitionAssignments(ctx, assignment)
	if err != nil {
		return err
	}
	if err := moved.Error(); err != nil {
		return fmt.Errorf("reassign to %v: %w", replicas, err)
	}
	return nil
}

// elect retries until the first of the wanted replicas leads each partition: it
// may have to catch up before.
func (f faultScript) elect(ctx context.Context, wanted map[int32][]int32) error {
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	for {
		_, electErr := f.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{f.topic: setOf(wanted)})
		all, err := f.partitions(ctx)
		var missing []int32
		for p, order := range wanted {
			if err == nil && all[p].Leader != order[0] {
				missing = append(missing, p)
			}
		}
		if err == nil && len(missing) == 0 {
			f.t.Logf("leaders moved: %v", wanted)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("partitions %v are not led by the first of %v: %w", missing, wanted, errors.Join(electErr, err, ctx.Err()))
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func setOf[V any](partitions map[int32]V) map[int32]struct{} {
	set := map[int32]struct{}{}
	for p := range maps.Keys(partitions) {
		set[p] = struct{}{}
	}
	return set
}

func (f faultScript) killLeader(ctx context.Context) (kafkacluster.NodeID, error) {
	partition, err := f.partition(ctx)
	if err != nil {
		return 0, err
	}
	leader := kafkacluster.NodeID(partition.Leader)
	f.t.Logf("leader %d is killed", leader)
	return leader, f.cluster.Kill(leader)
}

// freezeLeader holds the leader still for a while.
func (f faultScript) freezeLeader(ctx context.Context, d time.Duration) error {
	partition, err := f.partition(ctx)
	if err != nil || partition.Leader < 0 {
		return err
	}
	leader := kafkacluster.NodeID(partition.Leader)
	f.t.Logf("leader %d is frozen", leader)
	if err := f.cluster.Pause(leader); err != nil {
		return err
	}
	time.Sleep(d)
	return f.cluster.Resume(leader)
}

// awaitWhole waits until every partition has a leader and all its replicas in
// sync.
func (f faultScript) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	for {
		all, err := f.partitions(ctx)
		var sick []kadm.PartitionDetail
		for _, p := range all {
			if p.Leader < 0 || len(p.Replicas) < brokerCount || len(p.ISR) < len(p.Replicas) {
				sick = append(sick, p)
			}
		}
		if err == nil && len(all) > 0 && len(sick) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("partitions do not become whole: %+v: %w", sick, errors.Join(err, ctx.Err()))
		}
		pause(ctx, 100*time.Millisecond)
	}
}
