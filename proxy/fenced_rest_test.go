package proxy

import "testing"

// A proxy without a rule has nothing to look after, and does not wake up for it
// until a rule comes.
func TestProxyWithoutRulesRests(t *testing.T) {
	l := newLeader(t, "fenced")
	r := startRuled(t, Config{Bootstrap: []string{l.server.Addr()}, ProbeTopic: "probe"})
	if !r.fencing.resting() {
		t.Error("got work to do without a rule")
	}
	known := func() bool {
		_, ok := r.fencing.kinds.peek(0, 0)
		return ok
	}
	if known() {
		t.Fatal("the broker was probed already, so that this test proves nothing")
	}
	if err := r.ChangeRules([]Rule{{Topics: "fenced*", Mode: ModeRequire}}, ModeOff); err != nil {
		t.Fatal(err)
	}
	if r.fencing.resting() {
		t.Error("got nothing to do with a rule")
	}
	r.await("the broker is probed", known)
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
	if err := r.ChangeRules(nil, ModeOff); err != nil {
		t.Fatal(err)
	}
	// Lanes that are left are put away.
	r.await("it rests again", r.fencing.resting)
}
