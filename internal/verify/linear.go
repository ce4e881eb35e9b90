package verify

import "fmt"

// breach is why a timeline is not linearizable.
type breach struct {
	// at is the end of the log that cannot have come about in time.
	at Offset
	// what says it in words.
	what string
}

// linearize decides exactly whether a timeline is linearizable; nil: it is. Effects
// must happen in the order of their offsets, so it is best that each happens as
// early as it can: when it is called, but not before the one that it follows. Who was
// told of an end only asks that it had come about by the time of the answer; that end
// may have been long before.
func (l *timeline) linearize() *breach {
	end, now := l.begin, Moment(0)
	bounds := l.bounds
	for len(bounds) > 0 && bounds[0].end <= end {
		bounds = bounds[1:]
	}
	for i := range l.effects {
		e := &l.effects[i]
		if e.misplaced {
			return &breach{e.offset, fmt.Sprintf("append %v was acknowledged, and not at the offset that it expected", e.id)}
		}
		if e.offset != end {
			return &breach{e.offset, fmt.Sprintf("append %v took effect at offset %d, and what took effect before it ends at %d", e.id, e.offset, end)}
		}
		now = max(now, e.call)
		end += e.records
		if now > e.done {
			return &breach{e.offset, fmt.Sprintf("append %v was acknowledged at offset %d by %v, and what lies before it was sent only at %v", e.id, e.offset, e.done, now)}
		}
		for len(bounds) > 0 && bounds[0].end <= end {
			if b := bounds[0]; now > b.done {
				return &breach{e.offset, fmt.Sprintf("%s told at %v that the log ended at %d, and what lies before that was sent only at %v", b.who(), b.done, b.end, now)}
			}
			bounds = bounds[1:]
		}
	}
	if len(bounds) > 0 {
		b := bounds[0]
		return &breach{b.end, fmt.Sprintf("%s told at %v that the log ended at %d, and what took effect ends at %d", b.who(), b.done, b.end, end)}
	}
	return nil
}

func (b *bound) who() string {
	if b.why == OK {
		return "a reader was"
	}
	return fmt.Sprintf("the writer of append %v was", b.id)
}
