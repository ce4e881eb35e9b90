package verify

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// pictureEffects is how many appends a picture shows before and behind its
	// offset.
	pictureEffects = 12
	// pictureBounds is how many refusals and reads it shows at most.
	pictureBounds = 40
	pictureTime   = 2 * time.Second
)

// window is the part of a timeline around an offset.
func (l *timeline) window(at Offset) piece {
	middle := slices.IndexFunc(l.effects, func(e effect) bool { return e.offset+e.records > at })
	if middle < 0 {
		middle = len(l.effects)
	}
	from, to := max(0, middle-pictureEffects), min(len(l.effects), middle+pictureEffects)
	w := piece{begin: l.begin, effects: slices.Clone(l.effects[from:to])}
	if from > 0 {
		w.begin = l.effects[from-1].offset + l.effects[from-1].records
	}
	near := func(b bound) Offset { return max(b.end-at, at-b.end) }
	for _, b := range l.bounds {
		if b.end > w.begin && (to == len(l.effects) || b.end <= l.effects[to].offset) {
			w.bounds = append(w.bounds, b)
		}
	}
	slices.SortStableFunc(w.bounds, func(a, b bound) int { return int(near(a) - near(b)) })
	w.bounds = w.bounds[:min(len(w.bounds), pictureBounds)]
	return w
}

// draw writes porcupine's page of a timeline around an offset, with what is wrong
// there as an annotation.
func (l *timeline) draw(out io.Writer, v Violation) error {
	w := l.window(v.Offset)
	operations, _ := w.operations()
	first, last := Never, Moment(0)
	for _, o := range operations {
		first, last = min(first, Moment(o.Call)), max(last, Moment(o.Call))
		if o.Return != int64(Never) {
			last = max(last, Moment(o.Return))
		}
	}
	if len(operations) == 0 {
		first = 0
	}
	for i := range operations {
		operations[i].Return = min(operations[i].Return, int64(last)+1)
	}
	lanes(operations)
	model := endModel(w.begin)
	_, info := porcupine.CheckOperationsVerbose(model, operations, pictureTime)
	info.AddAnnotations([]porcupine.Annotation{{
		Tag: "what is wrong", Start: int64(first), End: int64(last) + 1,
		Description: string(v.Kind), Details: v.Text, BackgroundColor: "#ffd0d0",
	}})
	if err := porcupine.Visualize(model, info, out); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// lanes gives operations that overlap rows of their own.
func lanes(operations []porcupine.Operation) {
	slices.SortStableFunc(operations, func(a, b porcupine.Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
	var until []int64
	for i := range operations {
		o := &operations[i]
		lane := slices.IndexFunc(until, func(end int64) bool { return end < o.Call })
		if lane < 0 {
			lane = len(until)
			until = append(until, 0)
		}
		until[lane], o.ClientId = o.Return, lane
	}
}
