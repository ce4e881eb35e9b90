package main

import (
	"math"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 4}, spread{4, 1, 9}},
		{[]float64{4, 1, 2, 3}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: got %v, want %v", c.values, got, c.want)
		}
	}
}

// Ratios are of values of one round, so a machine that was slow in one of them
// does not show.
func TestPairedRatio(t *testing.T) {
	got := pairedRatio([]float64{50, 5, 40}, []float64{100, 10, 50})
	if want := (spread{.5, .5, .8}); got == nil || *got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, base := range [][]float64{nil, {1, 2}, {1, 0, 2}} {
		if got := pairedRatio([]float64{1, 2, 3}, base); got != nil {
			t.Errorf("base %v: got %v, want none", base, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for q, want := range map[float64]time.Duration{0: 1, .5: 51, .99: 100, .999: 100, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("%v: got %d, want %d", q, got, want)
		}
	}
	if got := quantile([]float64(nil), .5); got != 0 {
		t.Errorf("of nothing: got %v", got)
	}
}

func TestUsageIsOfAProcessOnly(t *testing.T) {
	u := usage{cpu: time.Second, waits: 10, reads: 2, writes: 3}
	if got := u.perGB(1); got != nil {
		t.Errorf("without a process: got %v", got)
	}
	u.known = true
	if got, want := u.perGB(2e9)[0], (figure{"CPU", "s/GB", lower, .5}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	got := u.perRequest(5)
	want := sample{{"CPU", "µs/request", lower, 200_000}, {"waits", "1/request", lower, 2}, {"calls", "1/request", lower, 1}}
	for i := range want {
		if math.Abs(got[i].value-want[i].value) > 1e-9 || got[i].unit != want[i].unit {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}
