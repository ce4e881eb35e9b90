package proxy

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// change puts one rule for the topic "changed" in force.
func (r *fencedRig) change(mode Mode) {
	r.t.Helper()
	if err := r.ChangeRules([]Rule{{Topics: "changed", Mode: mode}}, ModeOff); err != nil {
		r.t.Fatal(err)
	}
}

// changingRig is a rig in which only the topic "changed" has a rule.
func changingRig(t *testing.T, mode Mode) (*fencedRig, *leader) {
	t.Helper()
	l := newLeader(t, "changed")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, Rules: []Rule{{Topics: "changed", Mode: mode}}})
	return r, l
}

func changed(partition int32, batch []byte) part {
	return part{topic: "changed", partition: partition, records: batch}
}

// A request of two partitions, between which the rules change, is judged by those
// that it began with. The twin takes them for each partition.
func TestARequestIsJudgedByOneSetOfRules(t *testing.T) {
	for name, again := range map[string]bool{"taken once": false, "taken twice": true} {
		t.Run(name, func(t *testing.T) {
			r, _ := changingRig(t, ModeRequire)
			client := r.dial()
			wantResult(t, resultsOf(client.produce(9, -1, changed(0, conditional(0, "a"))))[0], 0, 0, "")
			seen := 0
			r.fencing.retake = func(b *ruleBook) *ruleBook {
				if seen++; seen == 2 {
					r.change(ModeOff)
				}
				if again {
					return r.rules.inForce()
				}
				return b
			}
			got := resultsOf(client.produce(9, -1, changed(1, plain("b")), changed(2, plain("c"))))
			const refused = "the topic requires an expected-offset header on every record"
			wantResult(t, got[0], 87, -1, refused)
			if again {
				wantResult(t, got[1], 0, 0, "") // half by the old, half by the new ones
			} else {
				wantResult(t, got[1], 87, -1, refused)
			}
		})
	}
}

// dontSettle has the rules in force wait for nothing that was judged before.
func (r *fencedRig) dontSettle() {
	b := r.rules.inForce()
	b.settledAt.Store(int64(b.from))
	b.earlier.Store(nil)
}

// frozen holds Produce requests back at the broker, those with a stamp and those
// without apart.
type frozen struct {
	stamped, plain     chan struct{} // closed to let them go on
	sawStamped, sawOne sync.Once
	stampedIn, plainIn chan struct{} // closed when the first of them has arrived
}

func freeze(l *leader) *frozen {
	f := &frozen{stamped: make(chan struct{}), plain: make(chan struct{}), stampedIn: make(chan struct{}), plainIn: make(chan struct{})}
	l.hook(func(r *kmsg.ProduceRequest) fate {
		if headerOf(l.t.(*testing.T), r.Topics[0].Partitions[0].Records).ProducerID == defaultFenceID {
			f.sawStamped.Do(func() { close(f.stampedIn) })
			l.wait(f.stamped)
		} else {
			f.sawOne.Do(func() { close(f.plainIn) })
			l.wait(f.plain)
		}
		return fateAnswer
	})
	return f
}

// hold waits until a batch that expects offset 0 under the rule that has begun waits
// for what was judged before; not protected, until it has been sent.
func (f *frozen) hold(r *fencedRig, protected bool) {
	r.t.Helper()
	if protected {
		r.awaitTaken(1)
		close(f.stamped)
	} else {
		<-f.stampedIn
	}
}

// wantLater is how that batch ends when another without a stamp got the offset: it is
// refused; not protected, it is appended behind.
func (f *frozen) wantLater(t *testing.T, client *fencedClient, id int32, protected bool) {
	t.Helper()
	if protected {
		wantResult(t, resultsOf(client.expect(id, 9))[0], 1, -1, "expected-offset taken: expected=0 next=1")
		return
	}
	close(f.stamped)
	wantResult(t, resultsOf(client.expect(id, 9))[0], -1, -1, "appended at 1, expected 0: another writer bypasses the proxy")
}

// awaitTaken waits until so many requests are judged by the rules in force.
func (r *fencedRig) awaitTaken(n int64) {
	r.t.Helper()
	r.await("requests are judged by the rules in force", func() bool { return r.rules.inForce().inWork.Load() > n })
}

// A batch without a stamp is on its way when its topic comes under a rule. What is
// fenced waits for it; without that (the twin) it lands between the view and the
// batch that was stamped by it.
func TestARuleBeginsBehindWhatIsOnItsWay(t *testing.T) {
	for name, protected := range map[string]bool{"waited for": true, "not waited for": false} {
		t.Run(name, func(t *testing.T) {
			r, l := changingRig(t, ModeOff)
			f := freeze(l)
			before, after := r.dial(), r.dial()
			first := before.send(produceOf(9, -1, changed(0, plain("a"))))
			<-f.plainIn
			r.change(ModeRequire)
			if !protected {
				r.dontSettle()
			}
			second := after.send(produceOf(9, -1, changed(0, conditional(0, "b"))))
			f.hold(r, protected)
			close(f.plain)
			wantResult(t, resultsOf(before.expect(first, 9))[0], 0, 0, "")
			f.wantLater(t, after, second, protected)
		})
	}
}

// The same when the rule ends: what was promised an offset gets it, before others
// write without a stamp.
func TestARuleEndsBehindWhatIsOnItsWay(t *testing.T) {
	for name, protected := range map[string]bool{"waited for": true, "not waited for": false} {
		t.Run(name, func(t *testing.T) {
			r, l := changingRig(t, ModeRequire)
			f := freeze(l)
			before, after := r.dial(), r.dial()
			first := before.send(produceOf(9, -1, changed(0, conditional(0, "a"))))
			<-f.stampedIn
			r.change(ModeOff)
			if !protected {
				r.dontSettle()
			}
			close(f.plain)
			second := after.send(produceOf(9, -1, changed(0, plain("b"))))
			if protected {
				r.awaitTaken(1)
				close(f.stamped)
				wantResult(t, resultsOf(before.expect(first, 9))[0], 0, 0, "")
				wantResult(t, resultsOf(after.expect(second, 9))[0], 0, 1, "")
				return
			}
			wantResult(t, resultsOf(after.expect(second, 9))[0], 0, 0, "")
			close(f.stamped)
			wantResult(t, resultsOf(before.expect(first, 9))[0], -1, -1, "appended at 1, expected 0: another writer bypasses the proxy")
		})
	}
}

// What was on its way when its connection broke may arrive when its topic has come
// under a rule. It is waited for as if the connection held; without that (the twin) it
// lands between the view and the batch that was stamped by it.
func TestARuleBeginsBehindALostConnection(t *testing.T) {
	for name, protected := range map[string]bool{"waited for": true, "not waited for": false} {
		t.Run(name, func(t *testing.T) {
			r, l := changingRig(t, ModeOff)
			f := freeze(l)
			before := r.rules.inForce()
			passed := make(chan func(), 1) // ends the wait for what is lost; one send
			r.rules.after = func(d time.Duration, end func()) {
				if d != settleMax {
					t.Errorf("what is lost is waited for %v, want %v", d, settleMax)
				}
				if !protected {
					end()
				}
				passed <- end
			}
			r.dial().send(produceOf(9, -1, changed(0, plain("a"))))
			<-f.plainIn
			l.cut()
			end := <-passed
			r.change(ModeRequire)
			if got := before.over(); got == protected {
				t.Errorf("what was judged by the earlier rules is over: %v", got)
			}
			client := r.dial()
			second := client.send(produceOf(9, -1, changed(0, conditional(0, "b"))))
			f.hold(r, protected)
			close(f.plain)
			r.await("what was lost has arrived", func() bool { return len(l.values("changed", 0)) == 1 })
			if protected {
				end()
			}
			f.wantLater(t, client, second, protected)
		})
	}
}

// The same when a rule ends: a stamped batch whose connection broke is waited for.
func TestARuleEndsBehindALostConnection(t *testing.T) {
	r, l := changingRig(t, ModeRequire)
	f := freeze(l)
	before := r.rules.inForce()
	passed := make(chan func(), 1)
	r.rules.after = func(_ time.Duration, end func()) { passed <- end }
	r.dial().send(produceOf(9, -1, changed(0, conditional(0, "a"))))
	<-f.stampedIn
	l.cut()
	r.change(ModeOff)
	close(f.stamped)
	end := <-passed
	if before.over() {
		t.Error("a stamped batch that may still arrive is not waited for")
	}
	end()
	if !before.over() {
		t.Error("it is waited for when its time has passed")
	}
}

// What was known of a partition before its rule ended is not sent on when it has
// begun anew: meanwhile others have written there.
func TestAViewDoesNotOutliveItsRule(t *testing.T) {
	for name, protected := range map[string]bool{"read anew": true, "kept": false} {
		t.Run(name, func(t *testing.T) {
			r, l := changingRig(t, ModeRequire)
			client := r.dial()
			to := func(batch []byte) result {
				t.Helper()
				return resultsOf(client.produce(9, -1, changed(0, batch)))[0]
			}
			wantResult(t, to(conditional(0, "a")), 0, 0, "")
			r.change(ModeObserve)
			wantResult(t, to(plain("b")), 0, 1, "")
			r.change(ModeEnforce)
			if !protected {
				r.rules.inForce().past = nil
			}
			if protected {
				wantResult(t, to(conditional(1, "c")), 1, -1, "expected-offset taken: expected=1 next=2")
				wantResult(t, to(conditional(2, "d")), 0, 2, "")
				return
			}
			wantResult(t, to(conditional(1, "c")), -1, -1, "appended at 2, expected 1: another writer bypasses the proxy")
			if got, want := l.values("changed", 0), []string{"a", "b", "c"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
		})
	}
}

// A change of all else leaves views, connections and what clients were told.
func TestOtherChangesOfARuleLeaveWhatIsKnown(t *testing.T) {
	r, l := changingRig(t, ModeEnforce)
	client := r.dial()
	to := func(batch []byte) result {
		t.Helper()
		return resultsOf(client.produce(9, -1, changed(0, batch)))[0]
	}
	change := func(options RuleOptions) {
		t.Helper()
		if err := r.ChangeRules([]Rule{{Topics: "changed", Mode: ModeRequire, Options: options}}, ModeOff); err != nil {
			t.Fatal(err)
		}
	}
	first := func() []byte { return sequenced(0, 0, identified(0, "a")) }
	wantResult(t, to(first()), 0, 0, "")
	views := l.count(kmsg.OffsetForLeaderEpoch)
	change(RuleOptions{})
	wantResult(t, to(sequenced(0, 1, conditional(1, "b"))), 0, 1, "")
	if got := l.count(kmsg.OffsetForLeaderEpoch); got != views {
		t.Errorf("the view was read again: %d requests, want %d", got, views)
	}
	change(RuleOptions{AppendIDHeader: "once", ErrorCode: 44})
	wantResult(t, to(first()), 0, 0, "") // known although its id has another name
	wantResult(t, to(sequenced(0, 2, conditional(1, "c"))), 44, -1, "expected-offset taken: expected=1 next=2")
}

// A configuration that is read again and says the same leaves everything: no topic
// is taken to have changed sides, and what is known of it is used.
func TestEqualRulesChangeNothing(t *testing.T) {
	r, l := changingRig(t, ModeRequire)
	client := r.dial()
	wantResult(t, resultsOf(client.produce(9, -1, changed(0, conditional(0, "a"))))[0], 0, 0, "")
	before, views := r.rules.inForce(), l.count(kmsg.OffsetForLeaderEpoch)
	for name, rule := range map[string]Rule{
		"the same":        {Topics: "changed", Mode: ModeRequire},
		"with a default":  {Topics: "changed", Mode: ModeRequire, Options: RuleOptions{AppendIDHeader: "append-id", ErrorCode: 1}},
		"its own default": {Topics: "changed", Mode: ModeRequire, Options: RuleOptions{}.inForce()},
	} {
		if err := r.ChangeRules([]Rule{rule}, ModeOff); err != nil {
			t.Fatal(err)
		}
		if r.rules.inForce() != before {
			t.Errorf("%s: other rules are in force", name)
		}
	}
	wantResult(t, resultsOf(client.produce(9, -1, changed(0, conditional(1, "b"))))[0], 0, 1, "")
	if got := l.count(kmsg.OffsetForLeaderEpoch); got != views {
		t.Errorf("the view was read again: %d requests, want %d", got, views)
	}
	for name, other := range map[string]struct {
		rules     []Rule
		otherwise Mode
	}{
		"another option":  {[]Rule{{Topics: "changed", Mode: ModeRequire, Options: RuleOptions{ErrorCode: 44}}}, ModeOff},
		"another default": {[]Rule{{Topics: "changed", Mode: ModeRequire}}, ModeObserve},
		"another pattern": {[]Rule{{TopicsRegexp: "changed", Mode: ModeRequire}}, ModeOff},
		"one more":        {[]Rule{{Topics: "changed", Mode: ModeRequire}, {Topics: "x", Mode: ModeOff}}, ModeOff},
	} {
		before := r.rules.inForce()
		if err := r.ChangeRules(other.rules, other.otherwise); err != nil {
			t.Fatal(err)
		}
		if r.rules.inForce() == before {
			t.Errorf("%s: nothing has changed", name)
		}
	}
}

// An idempotent client's pipeline is not split between broker and fence: the
// connection on which it wrote ends in order, and it comes back.
func TestAnIdempotentClientComesBackWhenARuleBeginsOrEnds(t *testing.T) {
	r, _ := changingRig(t, ModeOff)
	for i, mode := range []Mode{ModeEnforce, ModeOff, ModeEnforce} {
		client := r.dial()
		wantResult(t, resultsOf(client.produce(9, -1, changed(int32(i), sequenced(0, 0, plain("a")))))[0], 0, 0, "")
		other := r.dial()
		wantResult(t, resultsOf(other.produce(9, -1, changed(3, plain("other"))))[0], 0, int64(2*i), "")
		r.change(mode)
		// What it sends to other topics meanwhile does not hide it.
		client.produce(9, -1, part{topic: "elsewhere", records: plain("x")})
		wantResult(t, resultsOf(client.produce(9, -1, changed(int32(i), sequenced(0, 1, plain("b")))))[0], 6, -1,
			"not appended, send again: the topic's rule has changed")
		client.ExpectClosed()
		client = r.dial()
		wantResult(t, resultsOf(client.produce(9, -1, changed(int32(i), sequenced(0, 1, plain("b")))))[0], 0, 1, "")
		// One that is not idempotent notices nothing.
		wantResult(t, resultsOf(other.produce(9, -1, changed(3, plain("other"))))[0], 0, int64(2*i+1), "")
	}
}

// Requests that are never answered are not waited for without end.
func TestARuleBeginsAtLast(t *testing.T) {
	r, l := changingRig(t, ModeOff)
	f := freeze(l)
	r.dial().send(produceOf(9, -1, changed(0, plain("a"))))
	<-f.plainIn
	before := r.rules.inForce()
	r.change(ModeRequire)
	close(f.stamped)
	if r.rules.inForce().settled() {
		t.Error("settled while a request is not answered")
	}
	before.replacedAt.Store(int64(ps.Instant(before.replacedAt.Load()).Add(-settleMax)))
	wantResult(t, resultsOf(r.dial().produce(9, -1, changed(0, conditional(0, "b"))))[0], 0, 0, "")
	if !r.rules.inForce().settled() {
		t.Error("not settled when the wait is over")
	}
}

func TestABadRuleChangesNothing(t *testing.T) {
	r, _ := changingRig(t, ModeRequire)
	if err := r.ChangeRules([]Rule{{Topics: "changed", Mode: ModeOff}, {Topics: "["}}, ModeOff); err == nil {
		t.Error("no error")
	}
	wantResult(t, resultsOf(r.dial().produce(9, -1, changed(0, plain("a"))))[0], 87, -1,
		"the topic requires an expected-offset header on every record")
}

// Whatever is changed how often, what is kept of the past is bounded, and topics
// that never change sides are not touched.
func TestPastRulesAreBounded(t *testing.T) {
	r, _ := changingRig(t, ModeRequire)
	stays := Rule{Topics: "stays", Mode: ModeRequire}
	flip := func(mode Mode) *ruleBook {
		t.Helper()
		if err := r.ChangeRules([]Rule{stays, {Topics: "changed", Mode: mode}}, ModeOff); err != nil {
			t.Fatal(err)
		}
		return r.rules.inForce()
	}
	b := flip(ModeRequire)
	began := b.from
	for i := range 5 {
		b = flip(Mode(i % 2 * int(ModeRequire)))
	}
	if got := b.rule([]byte("stays")).since; got != began {
		t.Errorf("since %d, want %d, when its rule began", got, began)
	}
	if got := b.rule([]byte("changed")).since; got != b.from {
		t.Errorf("since %d, want %d", got, b.from)
	}
	for i := range 3 * erasKept {
		b = flip(Mode(i % 2 * int(ModeRequire)))
	}
	if len(b.past) > erasKept || len(b.unsettled()) > 1 {
		t.Errorf("%d eras and %d books are kept", len(b.past), len(b.unsettled()))
	}
	if got := b.rule([]byte("stays")).since; got != b.constant || got == 0 || got > b.past[len(b.past)-1].from {
		t.Errorf("since %d, want %d, from when all is known", got, b.constant)
	}
}
