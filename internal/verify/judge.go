package verify

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// pieceSize is about how many operations porcupine gets at once. What it remembers
// grows with the square of this.
const pieceSize = 800

// endModel is what porcupine is told of a partition: its end, which appends move
// and others bound from below.
func endModel(begin Offset) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(state, input, _ any) (bool, any) {
			end := state.(Offset)
			switch o := input.(type) {
			case *effect:
				return end == o.offset && !o.misplaced, o.offset + o.records
			case *bound:
				return end >= o.end, state
			}
			panic("verify: an operation of no kind")
		},
		Hash:              func(state any) uint64 { return uint64(state.(Offset)) },
		DescribeOperation: func(input, _ any) string { return describeOperation(input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("end %d", state.(Offset)) },
	}
}

func describeOperation(input any) string {
	switch o := input.(type) {
	case *effect:
		if o.records == 1 {
			return fmt.Sprintf("append %v at %d", o.id, o.offset)
		}
		return fmt.Sprintf("append %v at %d to %d", o.id, o.offset, o.offset+o.records-1)
	case *bound:
		if o.why == OK {
			return fmt.Sprintf("read: end ≥ %d", o.end)
		}
		return fmt.Sprintf("append %v %v: end ≥ %d", o.id, o.why, o.end)
	}
	return ""
}

// piece is a part of a timeline that can be judged by itself.
type piece struct {
	begin   Offset
	effects []effect
	bounds  []bound
	// from is the earliest moment at which the log can have ended at begin.
	from Moment
}

// pieces cuts a timeline at ends that the log must have had. What happens in a piece
// can only happen after all that made the end at which it begins, and that is
// all that pieces have to do with each other: the whole is linearizable if
// and only if each is.
func (l *timeline) pieces(size int) []piece {
	var pieces []piece
	p := piece{begin: l.begin}
	effects, bounds := l.effects, l.bounds
	end, latest := l.begin, Moment(0)
	for len(effects) > 0 {
		n, m := 0, 0
		for n < len(effects) && n+m < size {
			latest = max(latest, effects[n].call)
			end += effects[n].records
			n++
			for m < len(bounds) && bounds[m].end <= end {
				m++
			}
		}
		if n == len(effects) {
			m = len(bounds)
		}
		p.effects, p.bounds = effects[:n], bounds[:m]
		pieces = append(pieces, p)
		effects, bounds = effects[n:], bounds[m:]
		p = piece{begin: end, from: latest}
	}
	if len(bounds) > 0 {
		p.bounds = bounds
		pieces = append(pieces, p)
	}
	return pieces
}

// operations gives porcupine what it takes; false: something was answered before it can have
// happened.
func (p *piece) operations() ([]porcupine.Operation, bool) {
	operations := make([]porcupine.Operation, 0, len(p.effects)+len(p.bounds))
	for i := range p.effects {
		e := &p.effects[i]
		if e.done < p.from {
			return nil, false
		}
		operations = append(operations, porcupine.Operation{Input: e, Call: int64(max(e.call, p.from)), Return: int64(e.done)})
	}
	for i := range p.bounds {
		b := &p.bounds[i]
		if b.end <= p.begin {
			continue // it held from the start
		}
		if b.done < p.from {
			return nil, false
		}
		operations = append(operations, porcupine.Operation{Input: b, Call: int64(max(b.call, p.from)), Return: int64(b.done)})
	}
	return operations, true
}

// judge has porcupine check a timeline within a time, and tells how many of its pieces
// are judged.
func (l *timeline) judge(budget time.Duration) (result porcupine.CheckResult, judged, of int) {
	pieces := l.pieces(pieceSize)
	until := time.Now().Add(budget)
	for i := range pieces {
		left := time.Until(until)
		if left <= 0 {
			return porcupine.Unknown, i, len(pieces)
		}
		operations, possible := pieces[i].operations()
		if !possible {
			return porcupine.Illegal, i + 1, len(pieces)
		}
		switch r := porcupine.CheckOperationsTimeout(endModel(pieces[i].begin), operations, left); r {
		case porcupine.Illegal:
			return r, i + 1, len(pieces)
		case porcupine.Unknown:
			return r, i, len(pieces)
		}
	}
	return porcupine.Ok, len(pieces), len(pieces)
}
