package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestTopicMadeAnew starts from 0 again, for a proxy that knew the old one, once
// what is known of the old one is too old: a topic deleted and made again within
// that age is a condition of the fence that does not hold.
func TestTopicMadeAnew(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "made-anew"
	p := startProxy(t, "--require", topic, "--view-max-age", "2s")
	admin := adminAt(t, brokers.addresses()...)
	createTopic(t, admin, topic, 1)
	conn := dialLeader(t, p, topic)
	for i := range int64(3) {
		conn.mustTell(t, topic, encodeBatch(conditional(i, fmt.Sprintf("old-%d", i))), wonAt(i))
	}
	recreateTopic(t, admin, topic)
	began := time.Now()
	conn = dialLeader(t, p, topic)
	waitFor(t, "append at 0 of the new topic", 15*time.Second, func() error {
		answer, err := conn.produce(topic, 0, encodeBatch(conditional(0, "new-0")))
		if err != nil {
			return err
		}
		if got := toldOf(answer); got != wonAt(0) {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	t.Logf("after %v", time.Since(began).Round(time.Millisecond))
	conn.mustTell(t, topic, encodeBatch(conditional(1, "new-1")), wonAt(1))
	conn.mustTell(t, topic, encodeBatch(conditional(0, "x")), takenAt(0, 2))
	mustHold(t, topic, "new-0", "new-1")
}

// recreateTopic deletes a topic and makes it again, empty.
func recreateTopic(t *testing.T, admin *kadm.Client, name string) {
	t.Helper()
	deleted, err := admin.DeleteTopic(t.Context(), name)
	if err != nil || deleted.Err != nil {
		t.Fatalf("delete %s: %v, %v", name, err, deleted.Err)
	}
	waitFor(t, "creation of "+name+" anew", 30*time.Second, func() error {
		created, err := admin.CreateTopic(t.Context(), 1, brokerCount, nil, name)
		return errors.Join(err, created.Err)
	})
	awaitLeaders(t, name, 1, deleted.ID)
}
