package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestBrokersThatForgetTooSoon: topics on them are not served, in words.
func TestBrokersThatForgetTooSoon(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	const topic, key = "forgetful", "producer.id.expiration.ms"
	admin := adminAt(t, brokers.addresses()...)
	createTopic(t, admin, topic, 1)
	// 10 minutes outlive the other tests' fences, and are too short.
	setBrokers(t, admin, key, new("600000"))
	t.Cleanup(func() { setBrokers(t, admin, key, nil) })
	p := startProxy(t, "--require", topic)
	conn := dialLeader(t, p, topic)
	answer, err := conn.produce(topic, 0, encodeBatch(conditional(0, "x")))
	if err != nil {
		t.Fatal(err)
	}
	got := toldOf(answer)
	if got.code != kerr.PolicyViolation.Code || got.offset != -1 ||
		!strings.HasPrefix(got.message, "topic is not served: ") || !strings.Contains(got.message, key) {
		t.Errorf("got %+v, want POLICY_VIOLATION that names %s", got, key)
	}
	mustHold(t, topic)
}

// setBrokers sets a configuration of the whole cluster, nil for the default,
// and waits until every broker has it.
func setBrokers(t *testing.T, admin *kadm.Client, key string, value *string) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value}
	if value == nil {
		change.Op = kadm.DeleteConfig
	}
	// In a cleanup the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	changed, err := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{change})
	if err != nil || len(changed) != 1 || changed[0].Err != nil {
		t.Fatalf("set %s: %v, %+v", key, err, changed)
	}
	waitFor(t, key+" of the brokers", 30*time.Second, func() error {
		configs, err := admin.DescribeBrokerConfigs(ctx, 1, 2, 3)
		if err != nil {
			return err
		}
		for _, broker := range configs {
			for _, config := range broker.Configs {
				if config.Key == key && (value == nil) != (config.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig) {
					return fmt.Errorf("broker %s has %s from %v", broker.Name, config.MaybeValue(), config.Source)
				}
			}
		}
		return nil
	})
}

// TestWhyBrokersMustNotForgetTooSoon takes away the check by asserting of the
// brokers what is not true: a proxy that was frozen goes on by what it knew, which
// the broker has forgotten, and its append lands elsewhere than promised.
func TestWhyBrokersMustNotForgetTooSoon(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	const key = "producer.id.expiration.ms"
	admin := adminAt(t, brokers.addresses()...)
	t.Run("brokers that remember", func(t *testing.T) {
		if got := appendOfAFrozenProxy(t, program, "remembered", func(string) {}); got != takenAt(1, 2) {
			t.Errorf("got %+v, want %+v", got, takenAt(1, 2))
		}
		mustHold(t, "remembered", "a", "b")
	})
	t.Run("brokers that forget", func(t *testing.T) {
		setBrokers(t, admin, key, new("1000"))
		t.Cleanup(func() { setBrokers(t, admin, key, nil) })
		got := appendOfAFrozenProxy(t, program, "forgotten", func(topic string) { awaitForgotten(t, admin, topic) })
		if want := violationAt(1, 2); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		mustHold(t, "forgotten", "a", "b", "late")
	})
}

// appendOfAFrozenProxy freezes a proxy of that program after it has learnt where a topic ends,
// appends through another one, calls meanwhile, and has the first append there.
func appendOfAFrozenProxy(t *testing.T, program, topic string, meanwhile func(topic string), more ...string) told {
	t.Helper()
	flags := []string{"--require", topic, "--assert-producer-id-expiration", "24h", "--assert-connections-max-idle", "10m"}
	fast, frozen := startProxy(t, flags...), startProgram(t, program, append(flags, more...)...)
	createTopic(t, adminAt(t, fast.bootstrap), topic, 1)
	toFast, toFrozen := dialLeader(t, fast, topic), dialLeader(t, frozen, topic)
	toFast.mustTell(t, topic, encodeBatch(conditional(0, "a")), wonAt(0))
	toFrozen.mustTell(t, topic, encodeBatch(conditional(0, "x")), takenAt(0, 1))
	process := frozen.cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) }) // a stopped one would not end
	toFast.mustTell(t, topic, encodeBatch(conditional(1, "b")), wonAt(1))
	meanwhile(topic)
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var got told
	waitFor(t, "a verdict", time.Minute, func() error {
		answer, err := toFrozen.produce(topic, 0, encodeBatch(conditional(1, "late")))
		if err != nil {
			t.Fatal(err)
		}
		if got = toldOf(answer); got.code == kerr.NotLeaderForPartition.Code {
			return kerr.NotLeaderForPartition // the machine may be slow to wake
		}
		return nil
	})
	return got
}

// awaitForgotten waits until the leader of a topic's partition 0 knows no producer.
func awaitForgotten(t *testing.T, admin *kadm.Client, topic string) {
	t.Helper()
	waitFor(t, "producers of "+topic+" are forgotten", time.Minute, func() error {
		described, err := admin.DescribeProducers(t.Context(), kadm.TopicsSet{topic: {0: {}}})
		if err != nil {
			return err
		}
		partition := described[topic].Partitions[0]
		if partition.Err != nil || len(partition.ActiveProducers) > 0 {
			return fmt.Errorf("%v, %d producers", partition.Err, len(partition.ActiveProducers))
		}
		return nil
	})
}
