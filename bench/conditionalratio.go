package main

import (
	"fmt"
	"io"
)

// beside is the ratio of a way's first figure to that of a way that is not the
// first, within rounds.
type beside struct {
	Way    string `json:"way"`
	Of     string `json:"of"`
	Figure string `json:"figure"`
	spread
}

// besides are the ratios that the ways ask for; of ways that are not there, none.
func besides(ways []way, samples [][]sample) []beside {
	var out []beside
	for i, w := range ways {
		for _, name := range w.beside {
			for j, other := range ways {
				if other.name != name || len(samples[i]) == 0 {
					continue
				}
				first := samples[i][0][0]
				if ratio := pairedRatio(valuesOf(samples[i], first), valuesOf(samples[j], first)); ratio != nil {
					out = append(out, beside{w.name, name, first.name, *ratio})
				}
			}
		}
	}
	return out
}

// writeBesides prints a line for each.
func writeBesides(w io.Writer, all []beside) {
	for _, b := range all {
		fmt.Fprintf(w, "  %s of %s is %s of that of %s\n", b.Figure, b.Way, b.render(), b.Of)
	}
}
