package main

import (
	"slices"
	"time"
)

// better says which values of a figure are the good ones.
type better string

const (
	higher better = "higher"
	lower  better = "lower"
)

// figure is one number that a sample gives.
type figure struct {
	name   string // for people, such as "p50"; the same in every round and way
	unit   string
	better better
	value  float64
}

// sample is what was measured of one way in one round. The first figure is what
// the measure is about.
type sample []figure

// series is one figure of one way over the rounds.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Better better    `json:"better"`
	Values []float64 `json:"values"` // by round
	spread
	// Ratio is of what was measured of the first way in the same round; nil
	// where that has no such figure, and for the first way itself.
	Ratio *spread `json:"ratio,omitempty"`
}

// spread is a median and its range.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf is the zero spread for no values.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// pairedRatio is the spread of the ratios of what was measured in one round, or
// nil if there is nothing to divide by.
func pairedRatio(values, base []float64) *spread {
	if len(values) != len(base) || len(base) == 0 || slices.Contains(base, 0) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / base[i]
	}
	s := spreadOf(ratios)
	return &s
}

// quantile of sorted values: the least that a share q of them does not exceed.
func quantile[T float64 | time.Duration](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	at := int(q * float64(len(sorted)))
	return sorted[min(at, len(sorted)-1)]
}
