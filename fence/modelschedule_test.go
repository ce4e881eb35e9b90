package fence

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// modelWorlds are the kinds of worlds that there are, by name: a schedule says which
// it is of.
var modelWorlds = map[string]func(seed uint64, broken guard) *modelWorld{
	"any":               func(seed uint64, broken guard) *modelWorld { return newModelWorld(seed, broken, false) },
	"plain":             func(seed uint64, broken guard) *modelWorld { return newModelWorld(seed, broken, true) },
	"idempotent":        newIdempotentWorld,
	"scarce":            newScarceWorld,
	"bypassed":          newBypassedWorld,
	"equals":            newTwinsWorld,
	"crowded":           newCrowdedWorld,
	"varied":            newVariedWorld,
	"varied idempotent": newVariedIdempotentWorld,
	"varied scarce":     newVariedScarceWorld,
	"unfenced":          newUnfencedWorld,
	"late":              newLateWorld,
	"reading":           newReadingWorld,
	"predicting":        newPredictingWorld,
	"tails":             newTailsWorld,
}

// schedule is a run of a world that can be run again, as it was or in part.
type schedule struct {
	world  string
	seed   uint64 // of what the world is like
	broken guard
	breach breach // what fails; empty: nothing
	// steps are what each step draws.
	steps [][]int64
	// calm is the step from which on there are no faults any more, and what is
	// behind the last step is drawn anew until all is decided; −1: the run ends with
	// the last step.
	calm int
}

// record runs the schedule of a seed and keeps it up to the failure, if there is one.
func record(world string, seed uint64, broken guard) (s schedule, failed bool) {
	w := modelWorlds[world](seed, broken)
	kept := newRecording()
	w.attach(kept)
	w.run()
	s = schedule{world: world, seed: seed, broken: broken, breach: w.breach, steps: kept.steps, calm: -1}
	if w.calmAt > 0 {
		s.calm = w.calmAt
	}
	return s, w.failure != ""
}

// replay runs the schedule again; trace may be nil.
func (s *schedule) replay(trace func(w *modelWorld, line string)) *modelWorld {
	w := modelWorlds[s.world](s.seed, s.broken)
	w.attach(newReplay(s.steps))
	if trace != nil {
		w.traced = true
		w.trace = func(format string, args ...any) { trace(w, fmt.Sprintf(format, args...)) }
	}
	n := s.calm
	if n < 0 {
		n = len(s.steps)
	}
	for w.failure == "" && w.steps < n {
		w.step()
	}
	if w.failure == "" && s.calm >= 0 {
		w.settleDown()
	}
	return w
}

const (
	traceHead = 400 // lines that a trace has at most before it leaves some out
	traceTail = 60  // … and those that it ends with
)

// trace tells a schedule step by step.
func (s *schedule) trace() string {
	var head, tail []string
	start, left, step := modelStart, 0, -1
	w := s.replay(func(w *modelWorld, line string) {
		number := "    "
		if w.steps != step {
			step = w.steps
			number = fmt.Sprintf("%4d", step)
		}
		line = fmt.Sprintf("%s %9.3f  %s", number, w.now.Sub(start).Seconds(), line)
		if len(head) < traceHead {
			head = append(head, line)
			return
		}
		if tail = append(tail, line); len(tail) > traceTail {
			tail = tail[1:]
			left++
		}
	})
	if left > 0 {
		head = append(head, fmt.Sprintf("     … %d lines …", left))
	}
	return strings.Join(append(head, tail...), "\n") + "\n=> " + w.failure
}

// String is the schedule in one line, for testdata/schedules.
func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s | %d | %s | %s |", s.world, s.seed, s.broken, s.breach)
	for i, step := range s.steps {
		if i == s.calm {
			b.WriteString(" calm;")
		}
		for _, v := range step {
			fmt.Fprintf(&b, " %d", v)
		}
		b.WriteByte(';')
	}
	if s.calm == len(s.steps) {
		b.WriteString(" calm;")
	}
	return b.String()
}

// parseSchedule reads what String wrote.
func parseSchedule(line string) (s schedule, err error) {
	parts := strings.Split(line, "|")
	if len(parts) != 5 {
		return s, fmt.Errorf("%d parts, want 5", len(parts))
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	s = schedule{world: parts[0], breach: breach(parts[3]), calm: -1}
	if modelWorlds[s.world] == nil {
		return s, fmt.Errorf("no world %q", s.world)
	}
	if s.seed, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, err
	}
	if s.broken, err = parseGuards(parts[2]); err != nil {
		return s, err
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(parts[4], ";"), ";") {
		if strings.TrimSpace(text) == "calm" {
			s.calm = len(s.steps)
			continue
		}
		var step []int64
		for v := range strings.FieldsSeq(text) {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 {
				return s, fmt.Errorf("step %d: %q is no draw", len(s.steps), v)
			}
			step = append(step, n)
		}
		s.steps = append(s.steps, step)
	}
	return s, nil
}

// String names the guards that are taken away.
func (g guard) String() string {
	var all []string
	for name, one := range guardNames() {
		if g&one != 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "+")
}

// parseGuards reads what String wrote.
func parseGuards(text string) (g guard, err error) {
	if text == "" {
		return 0, nil
	}
	for name := range strings.SplitSeq(text, "+") {
		one := guardNamed(name)
		if one == 0 {
			return 0, fmt.Errorf("no guard %q", name)
		}
		g |= one
	}
	return g, nil
}

// TestSchedules runs the schedules that were found and minimised, each of which
// names the guard that it needs. Without it the schedule breaks the promise that it
// names, and with all guards in place it breaks none.
//
// A schedule says which numbers are drawn, so that a change of the model can make
// another of it. With -model.refind others are then looked for, from its seed on,
// and written down in its place.
func TestSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no schedules: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			for i, line := range lines {
				if line == "" || line[0] == '#' {
					continue
				}
				s, err := parseSchedule(line)
				if err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				if w := s.replay(nil); w.breach != s.breach && *modelRefind {
					s = refind(t, s)
					lines[i] = s.String()
				}
				s.check(t)
			}
			if *modelRefind {
				if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// check holds a stored schedule to what it says.
func (s schedule) check(t *testing.T) {
	t.Helper()
	if w := s.replay(nil); w.breach != s.breach {
		t.Errorf("without %v: got %q (%s), want %q; see -model.refind", s.broken, w.breach, w.failure, s.breach)
	} else {
		t.Logf("without %v, %d steps: %s", s.broken, len(s.steps), w.failure)
	}
	if testing.Verbose() {
		t.Log(s.trace())
	}
	if s.broken == 0 {
		return // its world has no fence
	}
	whole := s
	whole.broken, whole.breach = 0, ""
	if whole.calm < 0 {
		whole.calm = len(whole.steps)
	}
	if w := whole.replay(nil); w.failure != "" {
		t.Errorf("with all guards: %s\n%s", w.failure, whole.trace())
	}
}

// refind looks for a schedule that breaks the same promise without the same guard.
func refind(t *testing.T, s schedule) schedule {
	t.Helper()
	seed, found := find(s.seed, searched, func(seed uint64) bool {
		w := modelWorlds[s.world](seed, s.broken)
		w.run()
		return w.breach == s.breach
	})
	if !found {
		t.Fatalf("without %v nothing is %s", s.broken, s.breach)
	}
	s, _ = record(s.world, seed, s.broken)
	return minimise(s, time.Now().Add(minimising))
}

// minimising bounds the time that it takes in tests which fail.
const minimising = 20 * time.Second

// fails reports the failure of a seed as few steps as are needed for it.
func fails(t *testing.T, world string, seed uint64, broken guard) {
	t.Helper()
	s, failed := record(world, seed, broken)
	if !failed {
		t.Fatalf("%s, seed %d: failed, and not when it was run again", world, seed)
	}
	all := len(s.steps)
	s = minimise(s, time.Now().Add(minimising))
	t.Fatalf("%s, seed %d: %s\n%d of %d steps are enough:\n%s\nas a line for testdata/schedules:\n%s",
		world, seed, s.breach, len(s.steps), all, s.trace(), s.String())
}
