package verify

import (
	"fmt"
)

// maxKept bounds the violations of a kind that are kept; all are counted.
const maxKept = 100

// Report is what a check found.
type Report struct {
	// Violations are the first of each kind, one for each append.
	Violations []Violation
	// Total is how many there are.
	Total int
	// Kinds is how many of each kind.
	Kinds map[Kind]int
	// Counts are what the history holds.
	Counts Counts

	shown map[Kind]shownKind
}

// shownKind is what is kept of a kind.
type shownKind struct {
	kept  int
	about AppendID
}

// nobody is no append.
var nobody = AppendID{-1, -1}

// Counts are what a history holds.
type Counts struct {
	// Operations are logical appends; Conditional those that expected an offset.
	Operations, Conditional int
	// Transmissions are tries that may have left.
	Transmissions int
	// By outcome, appends as their writers know them at last.
	OK, Taken, NotReached, Unknown, Refused, NotSent int
	// UnknownInLog are those of Unknown of which something is in the log.
	UnknownInLog int
	// Reads are reads of an end.
	Reads int
	// Records are what the log holds of the run.
	Records int
	// Span is from the first start to the last end.
	Span Moment
	// ByHabit are Operations by habit.
	ByHabit [habits]int
}

// checker holds a history against its log.
type checker struct {
	*History
	report *Report
	// about is the append that is looked at.
	about AppendID
	// first is where each writer's appends have their records in found.
	first [][]int32
	// found is where each record lies, NoOffset if nowhere; in is in which
	// partition.
	found []Offset
	in    []Partition
}

// check holds the log against what the writers were told: checks (a) to (d).
func (c *checker) check() {
	c.locate()
	for writer, ops := range c.Ops {
		for number := range ops {
			c.checkAppend(AppendID{int32(writer), AppendNumber(number)})
		}
	}
	c.checkEnds()
}

func newChecker(h *History) *checker {
	return &checker{History: h, about: nobody, report: &Report{Kinds: make(map[Kind]int), shown: make(map[Kind]shownKind)}}
}

func (c *checker) violate(kind Kind, p Partition, at Offset, format string, args ...any) {
	r := c.report
	r.Total++
	r.Kinds[kind]++
	shown := r.shown[kind]
	if shown.kept > 0 && c.about != nobody && shown.about == c.about || shown.kept == maxKept {
		return
	}
	r.shown[kind] = shownKind{shown.kept + 1, c.about}
	place := fmt.Sprintf("topic %s partition %d", c.Topic, p)
	if at != NoOffset {
		place += fmt.Sprintf(" offset %d", at)
	}
	r.Violations = append(r.Violations, Violation{kind, p, at, place + ": " + fmt.Sprintf(format, args...)})
}

// locate finds where each record lies, and what should not lie there.
func (c *checker) locate() {
	total := int32(0)
	c.first = make([][]int32, len(c.Ops))
	for writer, ops := range c.Ops {
		c.first[writer] = make([]int32, len(ops))
		for i := range ops {
			c.first[writer][i] = total
			total += int32(ops[i].Records)
		}
	}
	c.found, c.in = make([]Offset, total), make([]Partition, total)
	for i := range c.found {
		c.found[i] = NoOffset
	}
	for p := range c.Logs {
		l := &c.Logs[p]
		for i, s := range l.Records {
			c.place(s, Partition(p), l.Begin+Offset(i))
		}
	}
}

// place notes that a record lies at an offset.
func (c *checker) place(s Stored, p Partition, at Offset) {
	if s.Missing {
		c.violate(Hole, p, at, "no record is here, although the log goes on behind it.")
		return
	}
	c.report.Counts.Records++
	var op *Op
	if s.Known {
		op = c.op(s.Record.Append)
	}
	if op == nil || s.Record.Place >= op.Records {
		c.violate(Stranger, p, at, "a record is here that no writer of this run wrote.")
		return
	}
	c.about = s.Record.Append
	defer func() { c.about = nobody }()
	if s.Altered {
		c.violate(Altered, p, at, "%s, is here, with another key or other headers than it was sent with.", c.describe(s.Record))
	}
	i := c.index(s.Record)
	if c.found[i] != NoOffset {
		c.violate(Twice, p, at, "%s, is here, and in partition %d at offset %d too.", c.describe(s.Record), c.in[i], c.found[i])
		return
	}
	c.found[i], c.in[i] = at, p
	if p != op.Partition {
		c.violate(UnknownMisplaced, p, at, "%s, was sent to partition %d, and lies here.", c.describe(s.Record), op.Partition)
	}
}

func (c *checker) index(id RecordID) int32 {
	return c.first[id.Append.Writer][id.Append.Number] + int32(id.Place)
}

// checkAppend holds an append against the log, and counts it.
func (c *checker) checkAppend(id AppendID) {
	c.about = id
	defer func() { c.about = nobody }()
	op := c.op(id)
	c.count(op)
	outcome, there := NotSent, false
	for place := range op.Records {
		f := op.fateOf(place)
		if place == 0 || f.outcome == Unknown {
			outcome = f.outcome
		}
		record := RecordID{id, place}
		there = c.checkRecord(record, op, &f) || there
	}
	counts := &c.report.Counts
	switch outcome {
	case OK:
		counts.OK++
	case Taken:
		counts.Taken++
	case NotReached:
		counts.NotReached++
	case Refused:
		counts.Refused++
	case Unknown:
		counts.Unknown++
		if there {
			counts.UnknownInLog++
		}
	default:
		counts.NotSent++
	}
	if there {
		c.checkWhole(id, op)
	}
}

func (c *checker) count(op *Op) {
	counts := &c.report.Counts
	counts.Operations++
	counts.ByHabit[op.Habit]++
	if op.Expected != NoOffset {
		counts.Conditional++
	}
	for i := range op.Tries {
		t := &op.Tries[i]
		if t.Outcome != NotSent {
			counts.Transmissions++
		}
		counts.Span = max(counts.Span, t.End)
	}
}

// checkRecord holds a record's fate against where it lies, and tells whether it
// lies anywhere.
func (c *checker) checkRecord(id RecordID, op *Op, f *fate) bool {
	i := c.index(id)
	at, p := c.found[i], c.in[i]
	there := at != NoOffset
	promised := f.offset
	if op.Expected != NoOffset {
		promised = op.Expected + Offset(id.Place)
		if f.outcome == OK && f.offset != promised {
			c.violate(SuccessMisplaced, op.Partition, f.offset, "%s, was acknowledged here; its writer was told %s.", c.describe(id), c.told(f.by))
			return there
		}
	}
	if f.outcome == OK && !there {
		c.violate(SuccessMissing, op.Partition, promised, "%s, is nowhere in the log; its writer was told %s. %s",
			c.describe(id), c.told(f.by), c.holds(op.Partition, promised))
		return false
	}
	if !there {
		return false
	}
	// What is strictly refused is so even where another copy was acknowledged.
	if f.next != NoOffset && at < f.next {
		c.violate(TakenInLog, p, at, "%s, is here; its writer was told that another record is there, and that the log ends at %d: %s.",
			c.describe(id), f.next, c.told(c.strict(op, id.Place)))
		return true
	}
	switch {
	case f.outcome == OK && at != promised:
		c.violate(SuccessMisplaced, p, at, "%s, is here, and not at %d; its writer was told %s.", c.describe(id), promised, c.told(f.by))
	case f.outcome == OK:
	case !f.may && f.outcome == NotSent:
		c.violate(NotSentInLog, p, at, "%s, is here, and was never sent.", c.describe(id))
	case !f.may:
		c.violate(RefusedInLog, p, at, "%s, is here; its writer was told %s, and no other copy of it was sent that could be here.", c.describe(id), c.told(f.by))
	case promised != NoOffset && at != promised:
		c.violate(UnknownMisplaced, p, at, "%s, is here, and not where it expected to be; its writer was told %s.", c.describe(id), c.told(f.by))
	}
	return true
}

// strict gives the try that was told taken of a record.
func (c *checker) strict(op *Op, place uint16) *Try {
	for i := range op.Tries {
		if t := &op.Tries[i]; t.Outcome == Taken && t.holds(place) {
			return t
		}
	}
	return nil
}

// holds says what lies at an offset.
func (c *checker) holds(p Partition, at Offset) string {
	s, ok := c.Logs[p].at(at)
	switch {
	case !ok:
		return fmt.Sprintf("The log goes from %d up to %d.", c.Logs[p].Begin, c.Logs[p].end())
	case s.Missing:
		return "No record is there."
	case !s.Known || c.op(s.Record.Append) == nil:
		return "A record of somebody else is there."
	}
	return fmt.Sprintf("There is %s.", c.describe(s.Record))
}
