package verify

import (
	"errors"
	"io"
	"time"

	"github.com/anishathalye/porcupine"
)

// Linearizable is the answer to check (e).
type Linearizable string

// The answers. NotDecided: the exact check says yes, and porcupine had not the time to
// say so too.
const (
	Yes        Linearizable = "yes"
	No         Linearizable = "no"
	NotDecided Linearizable = "not decided"
)

// Verdict is all that a history says.
type Verdict struct {
	*Report
	// Linearizable is what both judges say.
	Linearizable Linearizable
	// Judged and Pieces are how many pieces porcupine has judged, and there are.
	Judged, Pieces int
	// Operations of the linearizability checks: Effects took effect, Bounds told an end.
	Effects, Bounds int

	lines []timeline
}

// Verified tells whether nothing is wrong.
func (v *Verdict) Verified() bool { return v.Total == 0 }

// Judge checks everything. Porcupine has the time that is given to it; without any
// it is not asked. The history must be complete.
func Judge(h *History, budget time.Duration) *Verdict {
	c := newChecker(h)
	c.check()
	v := &Verdict{Report: c.report, Linearizable: Yes, lines: c.timelines()}
	until := time.Now().Add(budget)
	for i := range v.lines {
		l := &v.lines[i]
		v.Effects, v.Bounds = v.Effects+len(l.effects), v.Bounds+len(l.bounds)
		breach := l.linearize()
		if breach != nil {
			v.Linearizable = No
			c.violate(Order, l.partition, breach.at, "%s.", breach.what)
			continue
		}
		result, judged, pieces := l.judge(time.Until(until))
		v.Judged, v.Pieces = v.Judged+judged, v.Pieces+pieces
		switch {
		case result == porcupine.Illegal:
			v.Linearizable = No
			c.violate(Order, l.partition, NoOffset, "porcupine finds no order of what was told, and the exact check finds one: one of them is wrong.")
		case result == porcupine.Unknown && v.Linearizable == Yes:
			v.Linearizable = NotDecided
		}
	}
	return v
}

// ErrNothingWrong means that there is nothing to draw.
var ErrNothingWrong = errors.New("nothing is wrong")

// Draw writes porcupine's page of the surroundings of the first violation. Errors:
// ErrNothingWrong, and those of out.
func (v *Verdict) Draw(out io.Writer) error {
	if len(v.Violations) == 0 {
		return ErrNothingWrong
	}
	first := v.Violations[0]
	for _, other := range v.Violations {
		if first.Offset == NoOffset {
			first = other
		}
	}
	return v.lines[first.Partition].draw(out, first)
}
