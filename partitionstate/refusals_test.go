package partitionstate

import "testing"

// Each retry of a client is another batch, so rounds are the partition's.
func TestRefusalsCountAcrossBatches(t *testing.T) {
	view := func(next Offset, begun int) View { return View{Next: next, At: at(begun)} }
	var s State
	if s.RefusedInVain(view(5, 1), 1) {
		t.Error("got refused in vain without a refusal")
	}
	round := func(begun int, refused, then View) bool {
		s.Refused(at(begun), refused)
		return s.RefusedInVain(then, 3)
	}
	for i, c := range []struct {
		name          string
		refused, then View
		want          bool
	}{
		{"first", view(5, 0), view(5, 1), false},
		{"begun before the refusal: says nothing", view(5, 0), view(5, 0), false},
		{"second", view(5, 0), view(5, 3), false},
		{"third", view(5, 0), view(5, 4), true},
		{"fourth", view(5, 0), view(5, 5), true},
		{"another pair begins anew", view(5, 0), view(6, 6), false},
		{"first again", view(6, 0), view(6, 7), false},
	} {
		if got := round(i, c.refused, c.then); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	// The same view twice is one round.
	if s.RefusedInVain(view(6, 8), 2) {
		t.Error("a round was counted twice")
	}
	s.Accepted()
	for i := range 2 {
		if round(10+i, view(6, 0), view(6, 20)) {
			t.Error("what was before a success still counts")
		}
	}
	if !round(12, view(6, 0), view(6, 20)) {
		t.Error("three rounds after a success do not count")
	}
	// One is let through before the next counts.
	if s.RefusedInVain(view(6, 21), 3) {
		t.Error("nothing is tried any more")
	}
}
