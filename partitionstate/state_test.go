package partitionstate

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const age = time.Minute

func at(seconds int) Instant { return Instant(time.Duration(seconds) * time.Second) }

func wantView(t *testing.T, s *State, next Offset, epoch LeaderEpoch) {
	t.Helper()
	if v, ok := s.View(); !ok || v.Next != next || v.LeaderEpoch != epoch {
		t.Errorf("got view %v (%v), want next %d in epoch %d", v, ok, next, epoch)
	}
}

func TestZeroStateKnowsNothing(t *testing.T) {
	var s State
	if _, ok := s.View(); ok {
		t.Error("got a view")
	}
	if _, ok := s.CommittedEnd(0, age); ok {
		t.Error("got a committed end")
	}
	if _, ok := s.Witnessed(0, age); ok {
		t.Error("got witnessed state")
	}
	if _, ok := s.Known(0, 1); ok {
		t.Error("got a record")
	}
}

func TestCommittedEndAges(t *testing.T) {
	var s State
	s.SeeCommitted(at(11), 5, at(10))
	for _, c := range []struct {
		now  Instant
		want bool
	}{{at(10), true}, {at(70) - 1, true}, {at(70), false}} {
		if end, ok := s.CommittedEnd(c.now, age); ok != c.want || ok && end != 5 {
			t.Errorf("at %d: got %d %v, want %v", c.now, end, ok, c.want)
		}
	}
	// A smaller end confirms nothing; the same end does, and it never goes back.
	s.SeeCommitted(at(50), 4, at(50))
	if _, ok := s.CommittedEnd(at(70), age); ok {
		t.Error("a smaller end has made it younger")
	}
	s.SeeCommitted(at(51), 5, at(51))
	if end, ok := s.CommittedEnd(at(110), age); !ok || end != 5 {
		t.Errorf("got %d %v, want 5", end, ok)
	}
	if got := s.LowerBound(); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
}

func TestAcknowledgedIsAView(t *testing.T) {
	var s State
	s.Acknowledged(at(12), Append{
		At: 5, Records: run(5, 7), Epoch: 3, BaseSequence: 1<<31 - 1, MaxTimestamp: 99, Leader: 2, LeaderEpoch: 4, SentAt: at(10),
	})
	want := View{
		Leader: 2, LeaderEpoch: 4, Next: 7, HasState: true, Sequence: 1, Epoch: 3,
		StateTimestamp: 99, HighWatermark: 7, At: at(10),
	}
	if got, ok := s.View(); !ok || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if timestamp, ok := s.Witnessed(at(69), age); !ok || timestamp != 99 {
		t.Errorf("got state of %d witnessed: %v, want of 99", timestamp, ok)
	}
	if _, ok := s.Witnessed(at(70), age); ok {
		t.Error("witnessed must count from the sending")
	}
	if _, ok := s.Known(5, 7); !ok {
		t.Error("its records are not known")
	}
}

func TestAcknowledgementOfOlderEpoch(t *testing.T) {
	var s State
	s.ReadView(at(2), View{LeaderEpoch: 1, Next: 4, HighWatermark: 4, At: at(1)})
	s.Acknowledged(at(3), Append{At: 4, Records: run(4, 5), LeaderEpoch: 0, SentAt: at(0)})
	// The view of the newer epoch ends before what is committed now.
	if v, ok := s.View(); ok {
		t.Errorf("got view %v, want none", v)
	}
	if got := s.LowerBound(); got != 5 {
		t.Errorf("got committed %d, want 5", got)
	}
}

func TestAcknowledgementBehindTheCommittedEnd(t *testing.T) {
	var s State
	s.SeeCommitted(at(2), 9, at(1))
	s.Acknowledged(at(3), Append{At: 4, Records: run(4, 5), SentAt: at(0)})
	if v, ok := s.View(); ok {
		t.Errorf("got view %v, want none", v)
	}
	if got := s.LowerBound(); got != 9 {
		t.Errorf("got committed %d, want 9", got)
	}
}

func TestAppendedElsewhereDropsTheView(t *testing.T) {
	var s State
	s.ReadView(at(1), View{Next: 5, HighWatermark: 5, At: at(0)})
	s.AppendedElsewhere(at(2), 8, 2, at(1))
	if _, ok := s.View(); ok {
		t.Error("the view is still there")
	}
	if got := s.LowerBound(); got != 10 {
		t.Errorf("got committed %d, want 10", got)
	}
}

func TestUncleanElection(t *testing.T) {
	var s State
	s.Acknowledged(at(2), Append{At: 5, Records: run(5, 9), LeaderEpoch: 1, SentAt: at(1)})
	if s.ReadView(at(3), View{LeaderEpoch: 1, Next: 6, HighWatermark: NoOffset, At: at(3)}) {
		t.Error("the same leader cannot have a shorter log")
	}
	if s.ReadView(at(3), View{LeaderEpoch: 2, Next: 6, HighWatermark: NoOffset, At: at(2)}) {
		t.Error("begun no later than the acknowledgement came: may be of before")
	}
	if !s.ReadView(at(4), View{LeaderEpoch: 2, Next: 6, HighWatermark: 6, At: at(3)}) {
		t.Error("begun afterwards: the log is shorter now")
	}
	wantView(t, &s, 6, 2)
	if got := s.LowerBound(); got != 6 {
		t.Errorf("got committed %d, want 6", got)
	}
	if _, ok := s.Known(5, 6); ok {
		t.Error("records of before are still known")
	}
}

func TestWitness(t *testing.T) {
	view := func(next, hw Offset, state bool, epoch LeaderEpoch, seconds int) View {
		return View{LeaderEpoch: epoch, Next: next, HighWatermark: hw, HasState: state, At: at(seconds)}
	}
	for _, c := range []struct {
		name  string
		views []View
		want  bool
	}{
		{"committed state", []View{view(6, 6, true, 0, 1)}, true},
		{"high watermark read later", []View{view(6, 8, true, 0, 1)}, true},
		{"uncommitted state", []View{view(6, 5, true, 0, 1)}, false},
		{"high watermark unknown", []View{view(6, NoOffset, true, 0, 1)}, false},
		{"no state", []View{view(6, 6, false, 0, 1)}, false},
		{"reached later", []View{view(6, 5, true, 0, 1), view(8, 6, true, 0, 2)}, true},
		{"the first end counts", []View{view(6, 5, true, 0, 1), view(8, 5, true, 0, 2), view(9, 6, true, 0, 3)}, true},
		{"reached in another epoch", []View{view(6, 5, true, 0, 1), view(8, 6, true, 1, 2)}, false},
		{"and then in this one", []View{view(6, 5, true, 0, 1), view(8, 6, true, 1, 2), view(9, 8, true, 1, 3)}, true},
		{"a deposed leader's does not count", []View{view(6, 5, true, 1, 1), view(6, 6, true, 0, 2)}, false},
		{"gone meanwhile", []View{view(6, 5, true, 0, 1), view(6, 5, false, 0, 2), view(6, 6, false, 0, 3)}, false},
		{"gone afterwards", []View{view(6, 6, true, 0, 1), view(7, 6, false, 0, 2)}, false},
		{"an older view's lack of state is of before", []View{view(6, 6, true, 0, 2), view(6, 6, false, 0, 1)}, true},
	} {
		var s State
		for _, v := range c.views {
			s.ReadView(v.At, v)
		}
		if _, got := s.Witnessed(at(5), age); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// history is what leaders of a partition without unclean elections could have
// said at each time.
type history struct {
	pairs []View
	ends  []Offset // committed, at the same times
}

func drawHistory(t *rapid.T) history {
	var h history
	var epoch LeaderEpoch
	var end, committed Offset
	for i := range rapid.IntRange(1, 30).Draw(t, "length") {
		switch rapid.IntRange(0, 5).Draw(t, "event") {
		case 0: // elected: the uncommitted tail may go
			epoch++
			end = committed + Offset(rapid.IntRange(0, int(end-committed)).Draw(t, "tail"))
		case 1, 2:
			end += Offset(rapid.IntRange(1, 3).Draw(t, "append"))
		case 3, 4:
			committed += Offset(rapid.IntRange(0, int(end-committed)).Draw(t, "commit"))
		}
		h.pairs = append(h.pairs, View{LeaderEpoch: epoch, Next: end, HasState: true, At: at(i)})
		h.ends = append(h.ends, committed)
	}
	return h
}

// Views come in any order and late; what is kept is what a naive memory of all
// of them would choose.
func TestReadViewAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		n := len(h.pairs)
		var s State
		var taken []View // not stale when they came
		var committed Offset
		var known bool
		var epoch LeaderEpoch = -1
		for range rapid.IntRange(1, 20).Draw(t, "views") {
			i := rapid.IntRange(0, n-1).Draw(t, "pair at")
			v := h.pairs[i]
			v.HighWatermark = NoOffset
			if rapid.IntRange(0, 3).Draw(t, "knows") > 0 {
				v.HighWatermark = h.ends[rapid.IntRange(i, n-1).Draw(t, "high watermark at")]
				committed, known = max(committed, v.HighWatermark), true
			}
			fresh := v.LeaderEpoch >= epoch && v.Next >= committed
			if fresh {
				taken, epoch = append(taken, v), v.LeaderEpoch
			}
			// It arrives after all of the history, so that no view is begun
			// after another arrived.
			accepted := s.ReadView(at(n), v)
			if accepted && !fresh {
				t.Fatalf("accepted %v at committed %d, epoch %d", v, committed, epoch)
			}
			if got := s.LowerBound(); got != committed {
				t.Fatalf("got committed %d, want %d", got, committed)
			}
			if _, ok := s.CommittedEnd(at(n), time.Hour); ok != known {
				t.Fatalf("got committed end known %v, want %v", ok, known)
			}
			best, ok := bestOf(taken, epoch, committed)
			got, has := s.View()
			if has != ok || ok && (got.Next != best.Next || got.LeaderEpoch != best.LeaderEpoch || got.At != best.At) {
				t.Fatalf("got %v (%v), want %v (%v)", got, has, best, ok)
			}
		}
	})
}

func bestOf(views []View, epoch LeaderEpoch, committed Offset) (best View, ok bool) {
	for _, v := range views {
		if v.LeaderEpoch == epoch && v.Next >= committed && (!ok || v.Next > best.Next || v.Next == best.Next && v.At > best.At) {
			best, ok = v, true
		}
	}
	return best, ok
}

// A topic that was created anew under its name, in the same leader epoch.
func TestContradictsOnlyWithinTheEpoch(t *testing.T) {
	for _, c := range []struct {
		name  string
		next  Offset
		epoch LeaderEpoch
		begun Instant
		want  bool
	}{
		{"shorter than what was committed", 4, 1, at(12), true},
		{"as long", 5, 1, at(12), false},
		{"begun before that was learnt", 4, 1, at(11), false},
		{"of a newer epoch: an unclean election", 4, 2, at(12), false},
		{"of an older epoch: a deposed leader", 4, 0, at(12), false},
	} {
		var s State
		s.ReadView(at(10), View{LeaderEpoch: 1, Next: 3, HighWatermark: 3, At: at(10)})
		s.SeeCommitted(at(11), 5, at(10))
		if got := s.Contradicts(View{LeaderEpoch: c.epoch, Next: c.next, At: c.begun}); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if new(State).Contradicts(View{At: at(1)}) {
		t.Error("got a contradiction to nothing")
	}
}

// Far behind the end, or before what is remembered, a record would have to be read
// each time.
func TestOldOffsets(t *testing.T) {
	var s State
	if s.Old(0) {
		t.Error("old, though nothing is known of the end")
	}
	s.SeeCommitted(2, 10_000, 1)
	s.Learned(9_000, run(0, 100))
	for o, want := range map[Offset]bool{0: true, 10_000 - recentMax - 1: true, 8_999: true, 9_000: false, 9_500: false, 10_000: false} {
		if got := s.Old(o); got != want {
			t.Errorf("%d: got %v, want %v", o, got, want)
		}
	}
}
