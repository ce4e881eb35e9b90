package e2e

import (
	"testing"
	"time"
)

// TestProxyThatWasSuspended: while a proxy is suspended the broker forgets the
// fence. Afterwards the proxy must know how long it was away, or its append lands
// elsewhere than promised. A broker that forgets within a second, and clocks that
// jump, stand for a day.
func TestProxyThatWasSuspended(t *testing.T) {
	requireKafka(t)
	proof := proofProgram(t)
	const key, away = "producer.id.expiration.ms", 25 * time.Hour
	admin := adminAt(t, brokers.addresses()...)
	setBrokers(t, admin, key, new("1000"))
	t.Cleanup(func() { setBrokers(t, admin, key, nil) }) // when all of them have ended
	for _, one := range []struct {
		topic string
		flags []string
		jump  time.Duration
		want  told
		holds []string
	}{
		{"suspended", nil, away, takenAt(1, 2), []string{"a", "b"}},
		{"suspended-unguarded", []string{"--without-guard", "view-age"}, away, violationAt(1, 2), []string{"a", "b", "late"}},
		{"suspended-unnoticed", nil, 0, violationAt(1, 2), []string{"a", "b", "late"}},
	} {
		t.Run(one.topic, func(t *testing.T) {
			t.Parallel() // it waits for what brokers forget
			clock := newClockControl(t)
			got := appendOfAFrozenProxy(t, proof, one.topic, func(topic string) {
				awaitForgotten(t, admin, topic)
				// Its wall clock is set as soon as it wakes; the batch's timestamp is of
				// then, too.
				if err := clock.jump(one.jump, 0); err != nil {
					t.Fatal(err)
				}
			}, append(one.flags, "--clock-control", string(clock))...)
			if got != one.want {
				t.Errorf("got %+v, want %+v", got, one.want)
			}
			mustHold(t, one.topic, one.holds...)
		})
	}
}
