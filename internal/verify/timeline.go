package verify

import (
	"cmp"
	"slices"
)

// effect is an append that took effect: the log's end went from offset to
// offset + records, at some moment from call to done.
type effect struct {
	offset     Offset
	records    Offset
	call, done Moment
	id         AppendID
	// misplaced: it was told to lie elsewhere, which no log allows.
	misplaced bool
}

// bound is an answer from which an end is known: at some moment from call to done
// the log ended at end or behind it.
type bound struct {
	end        Offset
	call, done Moment
	// why is what was answered: Taken or NotReached; OK: a read.
	why Outcome
	id  AppendID // unless a read
}

// timeline is what writers of one partition were told, as operations on its end.
type timeline struct {
	partition Partition
	begin     Offset
	// effects are in the order of their offsets, bounds in that of their ends.
	effects []effect
	bounds  []bound
}

// timelines takes a history apart by partition. The log decides what is unknown: what
// is there took effect, from its start on; what is not never did. All else is as the
// writers were told. An append that expected an offset took effect there.
func (c *checker) timelines() []timeline {
	lines := make([]timeline, c.Partitions)
	for p := range lines {
		lines[p] = timeline{partition: Partition(p), begin: c.Logs[p].Begin}
		for _, r := range c.Reads[p] {
			lines[p].bounds = append(lines[p].bounds, bound{end: r.Offset, call: r.Start, done: r.End, why: OK})
		}
	}
	for writer, ops := range c.Ops {
		for number := range ops {
			op := &ops[number]
			lines[op.Partition].add(c, AppendID{int32(writer), AppendNumber(number)}, op)
		}
	}
	for p := range lines {
		l := &lines[p]
		slices.SortFunc(l.effects, func(a, b effect) int {
			return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.call, b.call))
		})
		slices.SortFunc(l.bounds, func(a, b bound) int {
			return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.done, b.done))
		})
	}
	return lines
}

// add takes one append in. Records of one append that were always sent in one
// batch are one effect; else, since it need not be known which batch they came in,
// each is one of its own.
func (l *timeline) add(c *checker, id AppendID, op *Op) {
	for i := range op.Tries {
		if t := &op.Tries[i]; t.Next != NoOffset {
			l.bounds = append(l.bounds, bound{t.Next, t.Start, t.End, t.Outcome, id})
		}
	}
	oneBatch := !slices.ContainsFunc(op.Tries, func(t Try) bool { return t.Records != op.Records })
	for place := range op.Records {
		f := op.fateOf(place)
		e := effect{records: 1, call: f.from, done: f.until, id: id}
		found := c.found[c.index(RecordID{id, place})]
		switch {
		case f.outcome != OK && (f.outcome != Unknown || found == NoOffset):
			continue
		case op.Expected != NoOffset:
			e.offset = op.Expected + Offset(place) // there or nowhere
			e.misplaced = f.outcome == OK && f.offset != e.offset
		case f.outcome == OK:
			e.offset = f.offset
		default:
			e.offset = found
		}
		if oneBatch && place > 0 && len(l.effects) > 0 {
			if last := &l.effects[len(l.effects)-1]; last.id == id && last.offset+last.records == e.offset {
				last.records++
				continue
			}
		}
		l.effects = append(l.effects, e)
	}
}
