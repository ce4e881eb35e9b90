package fence

import (
	"slices"
	"testing"
	"time"
)

// minimiser takes away from a schedule what its failure does not need.
type minimiser struct {
	best  schedule
	until time.Time
	runs  int
}

// minimise makes a schedule with the same kind of failure of as few steps as it
// finds until then, and with small numbers.
func minimise(s schedule, until time.Time) schedule {
	m := &minimiser{best: s, until: until}
	m.truncate()
	for before := -1; before != m.size() && !m.late(); {
		before = m.size()
		for chunk := max(1, len(m.best.steps)/2); chunk > 0; chunk /= 2 {
			m.remove(chunk)
		}
		m.shrink()
	}
	return m.best
}

// size is what gets smaller.
func (m *minimiser) size() int {
	n := 1000 * len(m.best.steps)
	for _, step := range m.best.steps {
		n += len(step)
	}
	return n
}

func (m *minimiser) late() bool { return !time.Now().Before(m.until) }

// try takes over a schedule that fails in the same way.
func (m *minimiser) try(s schedule) bool {
	if m.late() {
		return false
	}
	m.runs++
	w := s.replay(nil)
	if w.failure == "" || w.breach != s.breach {
		return false
	}
	if w.steps < len(s.steps) {
		s.steps = s.steps[:w.steps]
	}
	if s.calm >= w.steps {
		s.calm = -1 // it failed before
	}
	m.best = s
	return true
}

// truncate leaves out what comes after the failure, and what is drawn when all is
// calm if it fails then whatever is drawn.
func (m *minimiser) truncate() {
	s := m.best
	if s.calm >= 0 && s.calm < len(s.steps) {
		s.steps = s.steps[:s.calm]
		if m.try(s) {
			return
		}
	}
	m.try(m.best)
}

// without is the schedule less the steps from … to−1.
func (s schedule) without(from, to int) schedule {
	switch {
	case s.calm >= to:
		s.calm -= to - from
	case s.calm > from:
		s.calm = from
	}
	s.steps = slices.Concat(s.steps[:from], s.steps[to:])
	return s
}

// remove tries to do without so many steps at once, from the last on.
func (m *minimiser) remove(chunk int) {
	for from := len(m.best.steps) - chunk; from > -chunk; from -= chunk {
		from = min(from, len(m.best.steps)-1)
		lo, hi := max(from, 0), min(from+chunk, len(m.best.steps))
		if lo < hi {
			m.try(m.best.without(lo, hi))
		}
	}
}

// shrink tries smaller numbers; zeros at the end of a step are left out.
func (m *minimiser) shrink() {
	for i := range m.best.steps {
		for j := len(m.best.steps[i]) - 1; j >= 0; j-- {
			if i >= len(m.best.steps) || j >= len(m.best.steps[i]) {
				return // it fails earlier now
			}
			if m.best.steps[i][j] != 0 && !m.draw(i, j, 0) {
				m.round(i, j)
			}
		}
	}
	for i, step := range m.best.steps {
		for len(step) > 0 && step[len(step)-1] == 0 {
			step = step[:len(step)-1]
		}
		m.best.steps[i] = step
	}
}

// round tries a number with fewer digits, which is most often a time.
func (m *minimiser) round(i, j int) {
	for unit := int64(1_000_000_000); unit >= 1000; unit /= 10 {
		v := m.best.steps[i][j]
		if v > unit && v%unit == 0 || v > unit && m.draw(i, j, v/unit*unit) {
			return
		}
	}
}

// draw tries v for the j-th number of step i.
func (m *minimiser) draw(i, j int, v int64) bool {
	s := m.best
	s.steps = slices.Clone(s.steps)
	s.steps[i] = slices.Clone(s.steps[i])
	s.steps[i][j] = v
	before := len(m.best.steps)
	return m.try(s) && len(m.best.steps) == before
}

// TestMinimise: of schedules that fail without a guard few steps are left, which
// fail in the same way, and are the same when they are written down and read again.
func TestMinimise(t *testing.T) {
	for _, c := range []struct {
		world string
		seed  uint64
		guard guard
		most  int
	}{
		{"plain", 22055, guardArming, 40},
		{"plain", 4, guardIdentity, 40},
		{"plain", 6203, guardViewAge, 40},
		{"idempotent", 3032, guardChainEpoch, 40},
		{"equals", 22, guardClaim, 40},
	} {
		if raceEnabled && c.world != "plain" {
			continue
		}
		s, failed := record(c.world, c.seed, c.guard)
		if !failed {
			t.Errorf("%s, seed %d without %v: nothing fails", c.world, c.seed, c.guard)
			continue
		}
		all := len(s.steps)
		begun := time.Now()
		s = minimise(s, begun.Add(minimising))
		t.Logf("%s, seed %d without %v: %d of %d steps in %v", c.world, c.seed, c.guard, len(s.steps), all, time.Since(begun))
		if len(s.steps) > c.most {
			t.Errorf("%s, seed %d without %v: %d of %d steps are left, want at most %d", c.world, c.seed, c.guard, len(s.steps), all, c.most)
		}
		read, err := parseSchedule(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if w := read.replay(nil); w.breach != s.breach || read.String() != s.String() {
			t.Errorf("%v\nfails by %q after it was written and read, want %q", s, w.breach, s.breach)
		}
		if testing.Verbose() {
			t.Logf("\n%s\n%s", s.trace(), s.String())
		}
	}
}
