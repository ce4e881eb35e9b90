package partitionstate

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSequenceWrap(t *testing.T) {
	for _, c := range []struct {
		from Sequence
		n    int
		want Sequence
	}{
		{0, 0, 0}, {0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1}, {5, math.MaxInt32, 4},
		{0, -1, math.MaxInt32}, {3, -3, 0}, {1, -1 << 31, 1},
	} {
		if got := c.from.Plus(c.n); got != c.want {
			t.Errorf("%d plus %d: got %d, want %d", c.from, c.n, got, c.want)
		}
	}
}

func TestSequenceAfter(t *testing.T) {
	for last, want := range map[int32]Sequence{-1: 0, 0: 1, 7: 8, math.MaxInt32: 0} {
		if got := SequenceAfter(last); got != want {
			t.Errorf("after %d: got %d, want %d", last, got, want)
		}
	}
}

func TestArmingSequenceIsTheOffsetModulo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset")
		want := new(big.Int).Mod(big.NewInt(o), big.NewInt(1<<31)).Int64()
		if got := ArmingSequence(Offset(o)); int64(got) != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}

// An append of n at an aligned view leaves an aligned view.
func TestAlignedStaysAligned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := View{Next: Offset(rapid.Int64Range(0, 1<<40).Draw(t, "next"))}
		_, base := v.Stamp()
		n := rapid.IntRange(1, math.MaxInt32).Draw(t, "n")
		after := View{Next: v.Next + Offset(n), HasState: true, Sequence: base.Plus(n)}
		if !v.Aligned() || !after.Aligned() {
			t.Fatalf("got unaligned: %v, then %v", v, after)
		}
		drifted := View{Next: after.Next + 1, HasState: true, Sequence: after.Sequence}
		if drifted.Aligned() {
			t.Fatalf("got aligned after a foreign append: %v", drifted)
		}
	})
}

func TestSequenceAtFollowsTheBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := Unsettled{Expected: 1000, BaseSequence: Sequence(rapid.Int32Range(0, math.MaxInt32).Draw(t, "base"))}
		d := rapid.IntRange(-1000, 1000).Draw(t, "distance")
		got := u.SequenceAt(u.Expected + Offset(d))
		if got < 0 {
			t.Fatalf("got %d", got)
		}
		// Forward from there it is d records back to the base.
		if d <= 0 && got.Plus(-d) != u.BaseSequence || d > 0 && u.BaseSequence.Plus(d) != got {
			t.Fatalf("%d from %d: got %d", d, u.BaseSequence, got)
		}
	})
}

func TestTimes(t *testing.T) {
	at := Instant(5)
	if got, want := at.Add(time.Second).Sub(at), time.Second; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	for _, c := range []struct {
		t, u Timestamp
		want time.Duration
	}{
		{1500, 500, time.Second},
		{500, 1500, -time.Second},
		{Timestamp(most), 0, time.Duration(most) * time.Millisecond},
		{-Timestamp(most), 0, -time.Duration(most) * time.Millisecond},
		// A record may carry any timestamp; beyond 292 years it wrapped.
		{Timestamp(most) + 1, 0, math.MaxInt64},
		{math.MaxInt64, -1, math.MaxInt64},
		{math.MaxInt64, math.MinInt64, math.MaxInt64},
		{0, Timestamp(most) + 1, math.MinInt64},
		{-1, math.MaxInt64, math.MinInt64},
		{math.MinInt64, math.MaxInt64, math.MinInt64},
	} {
		if got := c.t.Sub(c.u); got != c.want {
			t.Errorf("from %d to %d: got %v, want %v", c.u, c.t, got, c.want)
		}
	}
}
