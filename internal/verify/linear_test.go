package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"
)

// drawTimeline makes a timeline of something that may have happened: appends at moments
// of their own with answers around them, and ends that were true at theirs.
func drawTimeline(t *rapid.T) timeline {
	l := timeline{begin: Offset(rapid.IntRange(0, 3).Draw(t, "begin"))}
	end, now := l.begin, Moment(10)
	type instant struct {
		at  Moment
		end Offset
	}
	truth := []instant{{0, end}}
	for range rapid.IntRange(0, 9).Draw(t, "effects") {
		now += Moment(rapid.IntRange(0, 6).Draw(t, "gap"))
		e := effect{offset: end, records: Offset(rapid.IntRange(1, 3).Draw(t, "records"))}
		e.call = max(0, now-Moment(rapid.IntRange(0, 12).Draw(t, "before")))
		e.done = now + Moment(rapid.IntRange(0, 12).Draw(t, "after"))
		if rapid.IntRange(0, 4).Draw(t, "doubt") == 0 {
			e.done = Never
		}
		end += e.records
		truth = append(truth, instant{now, end})
		l.effects = append(l.effects, e)
	}
	for range rapid.IntRange(0, 6).Draw(t, "bounds") {
		seen := rapid.SampledFrom(truth).Draw(t, "truth")
		at := seen.at + Moment(rapid.IntRange(0, 9).Draw(t, "later"))
		l.bounds = append(l.bounds, bound{
			end:  max(0, seen.end-Offset(rapid.IntRange(0, 2).Draw(t, "lag"))),
			call: max(0, at-Moment(rapid.IntRange(0, 9).Draw(t, "asked"))), done: at + Moment(rapid.IntRange(0, 9).Draw(t, "answered")),
			why: Taken,
		})
	}
	return l
}

// spoil changes a few numbers, which may make it impossible.
func spoil(t *rapid.T, l *timeline) {
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		if len(l.effects) > 0 && rapid.Bool().Draw(t, "effect") {
			e := &l.effects[rapid.IntRange(0, len(l.effects)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				e.offset += Offset(rapid.IntRange(-1, 2).Draw(t, "offset"))
			case 1:
				e.records++
			case 4:
				e.misplaced = true
			case 2:
				e.call = min(e.done, e.call+Moment(rapid.IntRange(0, 30).Draw(t, "call")))
			default:
				e.done = max(e.call, min(e.done, 200)-Moment(rapid.IntRange(0, 30).Draw(t, "done")))
			}
		} else if len(l.bounds) > 0 {
			b := &l.bounds[rapid.IntRange(0, len(l.bounds)-1).Draw(t, "bound")]
			b.end += Offset(rapid.IntRange(0, 5).Draw(t, "end"))
		}
	}
}

// sorted puts a timeline into the order that timelines have.
func (l timeline) sorted() timeline {
	slices.SortStableFunc(l.effects, func(a, b effect) int { return int(a.offset - b.offset) })
	slices.SortStableFunc(l.bounds, func(a, b bound) int { return int(a.end - b.end) })
	return l
}

// askPorcupine has it judge a timeline in pieces of a size; 0: whole.
func (l *timeline) askPorcupine(size int) bool {
	if size == 0 {
		size = len(l.effects) + len(l.bounds) + 1
	}
	for _, p := range l.pieces(size) {
		operations, possible := p.operations()
		if !possible || !porcupine.CheckOperations(endModel(p.begin), operations) {
			return false
		}
	}
	return true
}

// TestTheExactCheckAgreesWithPorcupine on what may have happened, and on what was
// spoilt; so does porcupine with itself where it gets pieces.
func TestTheExactCheckAgreesWithPorcupine(t *testing.T) {
	possible, impossible := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawTimeline(t)
		if spoilt := rapid.Bool().Draw(t, "spoilt"); spoilt {
			spoil(t, &l)
		} else if breach := l.sorted(); breach.linearize() != nil {
			t.Fatalf("what may have happened is impossible: %s", breach.linearize().what)
		}
		l = l.sorted()
		breach := l.linearize()
		for size := range 4 {
			if got := l.askPorcupine(size); got != (breach == nil) {
				t.Fatalf("pieces of %d: porcupine says %v, the exact check %+v", size, got, breach)
			}
		}
		if breach == nil {
			possible++
		} else {
			impossible++
		}
	})
	if possible == 0 || impossible == 0 {
		t.Errorf("%d possible and %d impossible timelines were seen", possible, impossible)
	}
}

// TestWithoutTimeNothingIsClaimed: porcupine is not said to have agreed.
func TestWithoutTimeNothingIsClaimed(t *testing.T) {
	if v := Judge(good().History, 0); v.Linearizable != NotDecided || !v.Verified() || v.Judged != 0 {
		t.Errorf("got %q, verified %v, %d judged", v.Linearizable, v.Verified(), v.Judged)
	}
}

// TestALongTimelineIsJudged, whose pieces must not grow with it.
func TestALongTimelineIsJudged(t *testing.T) {
	l := timeline{}
	for i := range Offset(50_000) {
		at := Moment(i) * 10
		l.effects = append(l.effects, effect{offset: i, records: 1, call: at, done: at + 25})
		l.bounds = append(l.bounds, bound{end: i + 1, call: at, done: at + 300, why: Taken})
	}
	if breach := l.linearize(); breach != nil {
		t.Errorf("got a breach: %s", breach.what)
	}
	if result, judged, of := l.judge(time.Minute); result != porcupine.Ok || judged != of || of < 100 {
		t.Errorf("got %v, %d of %d", result, judged, of)
	}
	l.effects[40_000].done = l.effects[40_000].call
	l.effects[39_990].call += 5_000
	if breach := l.linearize(); breach == nil || breach.at > 40_000 || breach.at < 39_990 {
		t.Errorf("got breach %+v", breach)
	}
	// It may not get through all that it can try, but it must not agree.
	if result, _, _ := l.judge(time.Second); result == porcupine.Ok {
		t.Errorf("got %v", result)
	}
}
