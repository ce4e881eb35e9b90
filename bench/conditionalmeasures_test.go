package main

import (
	"testing"
	"time"
)

// TestConditionalMeasuresHaveFiguresOfAllWays takes them on a broker that does not
// fence: races for its places are lost, and must be seen to be.
func TestConditionalMeasuresHaveFiguresOfAllWays(t *testing.T) {
	c := unfenced(t)
	r := &run{
		targets: []*target{{name: "direct", address: c.ListenAddrs()[0]}, {name: "fenced", address: c.ListenAddrs()[0], conditional: true}},
		seconds: 20 * time.Millisecond, prefix: "bench", volume: volume{many: 100}, log: t.Logf,
	}
	for _, m := range []measure{conditionalOneMeasure, pipelineMeasure(5, 10), pipelineMeasure(1, 50), manyMeasure, endMeasure, compressedMeasure("lz4"), compressedMeasure("snappy"), compressedMeasure("zstd")} {
		t.Run(m.name, func(t *testing.T) {
			taken, err := take(t.Context(), r, m, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range taken.Ways {
				if len(w.Figures) == 0 || w.Figures[0].Median <= 0 {
					t.Errorf("%s of %s: %+v", m.name, w.Name, w.Figures)
				}
			}
		})
	}
	if _, err := take(t.Context(), r, raceMeasure(4), 1); err == nil {
		t.Error("the writers of a race without a fence were all told the truth")
	}
}

func TestRatiosBesideOtherWays(t *testing.T) {
	ways := []way{{name: "a"}, {name: "b", beside: []string{"c", "nobody"}}, {name: "c"}}
	one := func(v float64) sample { return sample{{"rate", "1/s", higher, v}} }
	got := besides(ways, [][]sample{{one(1), one(1)}, {one(6), one(4)}, {one(3), one(4)}})
	if len(got) != 1 || got[0].Way != "b" || got[0].Of != "c" || got[0].Min != 1 || got[0].Max != 2 || got[0].Median != 1.5 {
		t.Errorf("got %+v", got)
	}
}
