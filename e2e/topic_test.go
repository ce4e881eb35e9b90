package e2e

import (
	"context"
	"fmt"
	"strings"
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
