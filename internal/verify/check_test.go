package verify

import (
	"strings"
	"testing"
	"time"
)

// story is a history that tests make and spoil: one writer per append, one
// partition unless said otherwise.
type story struct{ *History }

// appended adds an append, its tries and, if it lies anywhere, its records from an
// offset on.
func (s story) appended(op Op, at Offset, tries ...Try) AppendID {
	id := AppendID{0, AppendNumber(len(s.Ops[0]))}
	for i := range tries {
		if tries[i].Records == 0 {
			tries[i].Records = op.Records
		}
	}
	op.Tries = tries
	s.Ops[0] = append(s.Ops[0], op)
	if at != NoOffset {
		s.lie(at, id, 0, op.Records)
	}
	return id
}

// lie puts records into the log at its end, which must be at.
func (s story) lie(at Offset, id AppendID, first, n uint16) {
	l := &s.Logs[0]
	if l.end() != at {
		panic("the log does not end there")
	}
	for i := range n {
		l.Records = append(l.Records, Stored{Record: RecordID{id, first + i}, Known: true})
	}
}

func expecting(at Offset, records uint16, habit Habit) Op {
	return Op{Expected: at, Records: records, Habit: habit}
}

func try(from, to Moment, outcome Outcome, told Offset) Try {
	t := Try{Start: from, End: to, Outcome: outcome, Offset: NoOffset, Next: NoOffset}
	switch outcome {
	case OK:
		t.Offset = told
	case Taken, NotReached:
		t.Next, t.Code = told, 1
	case Refused:
		t.Code = 6
	}
	return t
}

// part makes a try one of some of the records.
func part(t Try, first, n uint16) Try {
	t.First, t.Records = first, n
	return t
}

// The appends of a good story, by number.
const (
	won = iota
	wonTwo
	lost
	early
	given
	again     // unknown, then acknowledged
	doubtful  // unknown, and in the log
	vanished  // unknown, and not in the log
	atEnd     // end, acknowledged
	doubtEnd  // end, unknown, in the log
	pieces    // in two batches, one of them refused
	straddled // refused as taken below an end in its middle
	idle      // not sent
)

// good is a history without fault in which everything happens.
func good() story {
	s := story{newHistory(Setup{Run: "r", Topic: "t", Proxies: []string{"one:1", "two:1"}, Partitions: 2, Writers: 1})}
	s.Logs[0].Begin = 10
	s.Logs[0].Read, s.Logs[1].Read = true, true
	s.appended(expecting(10, 1, Once), 10, try(1, 5, OK, 10))
	s.appended(expecting(11, 2, Once), 11, try(6, 9, OK, 11))
	s.appended(expecting(10, 2, Insisting), NoOffset, try(2, 9, Taken, 13))
	s.appended(expecting(20, 1, Once), NoOffset, try(3, 6, NotReached, 11))
	s.appended(expecting(13, 1, Once), NoOffset, try(10, 11, Refused, 0))
	s.appended(expecting(13, 2, Moving), 13, try(12, 14, Unknown, 0), try(15, 18, OK, 13))
	s.appended(expecting(15, 2, Once), 15, try(15, 30, Unknown, 0))
	s.appended(expecting(15, 2, Once), NoOffset, try(16, 30, Unknown, 0))
	s.appended(expecting(NoOffset, 2, End), 17, try(20, 22, OK, 17))
	s.appended(expecting(NoOffset, 1, End), 19, try(21, 25, Unknown, 0))
	id := s.appended(expecting(20, 3, Rebuilding), NoOffset,
		part(try(26, 30, OK, 20), 0, 2), part(try(31, 32, Refused, 0), 2, 1), part(try(33, 35, NotReached, 21), 2, 1))
	s.lie(20, id, 0, 2)
	s.appended(expecting(21, 3, Once), NoOffset, try(34, 36, Taken, 22))
	s.appended(expecting(22, 1, Once), NoOffset, try(37, 37, NotSent, 0))
	s.Reads[0] = []EndRead{{Start: 4, End: 7, Offset: 11}, {Start: 40, End: 41, Offset: 22}}
	return s
}

func TestAGoodStoryIsVerified(t *testing.T) {
	v := Judge(good().History, time.Minute)
	for _, violation := range v.Violations {
		t.Errorf("%s: %v", violation.Kind, violation)
	}
	if !v.Verified() || v.Linearizable != Yes || v.Judged != v.Pieces {
		t.Errorf("got verified %v, linearizable %q, %d of %d judged", v.Verified(), v.Linearizable, v.Judged, v.Pieces)
	}
	want := Counts{
		Operations: 13, Conditional: 11, Transmissions: 15, OK: 5, Taken: 2, NotReached: 1, Unknown: 3, Refused: 1, NotSent: 1,
		UnknownInLog: 2, Reads: 2, Records: 12, Span: 37,
		ByHabit: [habits]int{Once: 8, Insisting: 1, Moving: 1, Rebuilding: 1, End: 2},
	}
	if v.Counts != want {
		t.Errorf("counts: got %+v, want %+v", v.Counts, want)
	}
}

// retell has an append's tries be others, or one more.
func (s story) retell(number AppendNumber, tries ...Try) {
	op := &s.Ops[0][number]
	for i := range tries {
		if tries[i].Records == 0 {
			tries[i].Records = op.Records
		}
	}
	op.Tries = tries
}

func (s story) tellMore(number AppendNumber, t Try) {
	s.retell(number, append(s.Ops[0][number].Tries, t)...)
}

// swap exchanges what lies at two offsets.
func (s story) swap(a, b Offset) {
	r := s.Logs[0].Records
	r[a-10], r[b-10] = r[b-10], r[a-10]
}

func (s story) record(number AppendNumber, place uint16) Stored {
	return Stored{Record: RecordID{AppendID{0, number}, place}, Known: true}
}

func (s story) push(records ...Stored) { s.Logs[0].Records = append(s.Logs[0].Records, records...) }

// TestEveryFaultIsFound plants one fault at a time.
func TestEveryFaultIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(s story)
		want  Kind
		// order: it is in the order of things as well that something is wrong.
		order bool
	}{
		"a success is not in the log":          {func(s story) { s.Logs[0].Records[0] = Stored{Missing: true} }, SuccessMissing, false},
		"the last success is lost":             {func(s story) { s.Logs[0].Records = s.Logs[0].Records[:10] }, SuccessMissing, false},
		"a success was acknowledged elsewhere": {func(s story) { s.Ops[0][won].Tries[0].Offset = 12 }, SuccessMisplaced, true},
		"a copy was acknowledged elsewhere":    {func(s story) { s.tellMore(won, try(2, 5, OK, 12)) }, SuccessMisplaced, true},
		"taken below its own end":              {func(s story) { s.Ops[0][lost].Tries[0].Next = 10 }, Nonsense, false},
		"taken without an end":                 {func(s story) { s.Ops[0][lost].Tries[0].Next = NoOffset }, Nonsense, false},
		"reached, yet told not to be":          {func(s story) { s.retell(given, try(36, 37, NotReached, 13)) }, Nonsense, false},
		"a success lies elsewhere":             {func(s story) { s.swap(10, 17) }, SuccessMisplaced, false},
		"a success lies elsewhere too":         {func(s story) { s.push(s.record(won, 0)) }, Twice, false},
		"a success of the end lies elsewhere":  {func(s story) { s.swap(17, 18) }, SuccessMisplaced, false},
		"a batch is out of order":              {func(s story) { s.swap(15, 16) }, UnknownMisplaced, false},
		"a batch of the end is out of order": {func(s story) {
			s.retell(atEnd, try(20, 22, Unknown, 0))
			s.swap(17, 18)
		}, Torn, false},
		"half of a batch is there": {func(s story) {
			s.Ops[0][doubtEnd].Records, s.Ops[0][doubtEnd].Tries[0].Records = 2, 2
		}, Torn, false},
		"half of a batch that was cut anew is there": {func(s story) {
			op := &s.Ops[0][doubtful]
			op.Records, op.Habit = 4, Rebuilding
			op.Tries = []Try{part(try(15, 16, Unknown, 0), 0, 4), part(try(17, 30, Unknown, 0), 0, 1), part(try(17, 30, Unknown, 0), 1, 3)}
		}, Torn, false},
		"what was taken is there": {func(s story) {
			s.retell(doubtful, try(15, 30, Taken, 17))
		}, TakenInLog, true},
		"what was taken is there, after an unknown": {func(s story) {
			s.tellMore(doubtful, try(31, 32, Taken, 16))
		}, TakenInLog, true},
		"what was taken is there, acknowledged to another copy": {func(s story) {
			s.Ops[0][again].Tries[0] = part(try(12, 14, Taken, 15), 0, 2)
		}, TakenInLog, true},
		"what was not reached is there": {func(s story) { s.retell(doubtful, try(15, 30, NotReached, 13)) }, RefusedInLog, true},
		"what was refused is there":     {func(s story) { s.retell(doubtful, try(15, 30, Refused, 0)) }, RefusedInLog, true},
		"what was taken in part is there behind it": {func(s story) {
			s.push(s.record(straddled, 1), s.record(straddled, 2))
		}, RefusedInLog, false},
		"what was never sent is there":      {func(s story) { s.push(s.record(idle, 0)) }, NotSentInLog, false},
		"what is unknown lies elsewhere":    {func(s story) { s.push(s.record(vanished, 0), s.record(vanished, 1)) }, UnknownMisplaced, false},
		"what is unknown lies there twice":  {func(s story) { s.push(s.record(doubtful, 0)) }, Twice, false},
		"it lies in another partition":      {func(s story) { s.Logs[1].Records = []Stored{s.record(vanished, 0)} }, UnknownMisplaced, false},
		"it lies in two partitions":         {func(s story) { s.Logs[1].Records = []Stored{s.record(won, 0)} }, Twice, false},
		"a record of nobody":                {func(s story) { s.push(Stored{}) }, Stranger, false},
		"a record of a writer that is not":  {func(s story) { s.push(Stored{Record: RecordID{AppendID{7, 0}, 0}, Known: true}) }, Stranger, false},
		"a record that its append has not":  {func(s story) { s.push(s.record(won, 1)) }, Stranger, false},
		"a record with other headers":       {func(s story) { s.Logs[0].Records[0].Altered = true }, Altered, false},
		"an offset without a record":        {func(s story) { s.push(Stored{Missing: true}) }, Hole, false},
		"an end is told that is not":        {func(s story) { s.Ops[0][early].Tries[0].Next = 23 }, BeyondEnd, true},
		"an end is read that is not":        {func(s story) { s.Reads[0][1].Offset = 23 }, BeyondEnd, true},
		"an end is told too early":          {func(s story) { s.Ops[0][early].Tries[0].Next = 14 }, Order, true},
		"an end is read too early":          {func(s story) { s.Reads[0][0].Offset = 14 }, Order, false},
		"a success before what precedes it": {func(s story) { s.retell(atEnd, try(11, 14, OK, 17)) }, Order, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			c.plant(s)
			v := Judge(s.History, time.Minute)
			if v.Kinds[c.want] == 0 {
				t.Errorf("got %v, want %q", v.Kinds, c.want)
			}
			if c.order && v.Linearizable != No {
				t.Errorf("linearizable: got %q", v.Linearizable)
			}
			for _, violation := range v.Violations {
				if violation.Text == "" || violation.Kind.Advice() == "" || !strings.Contains(violation.Text, "topic t partition ") {
					t.Errorf("a violation is not told: %+v", violation)
				}
			}
		})
	}
}

// TestWhatIsAllowedIsNoFault is what a check that is too strict would find.
func TestWhatIsAllowedIsNoFault(t *testing.T) {
	for name, change := range map[string]func(s story){
		"a refusal that is weak, and another copy in doubt": func(s story) {
			s.tellMore(doubtful, try(31, 32, NotReached, 12))
		},
		"a refusal that passes, before a success": func(s story) {
			s.Ops[0][again].Tries[0] = part(try(12, 14, Refused, 0), 0, 2)
		},
		"taken in part, and the rest in doubt": func(s story) {
			s.tellMore(straddled, part(try(38, 39, Unknown, 0), 1, 2))
			s.push(s.record(straddled, 1), s.record(straddled, 2))
			s.push(Stored{Record: RecordID{s.appended(expecting(24, 1, Once), NoOffset, try(50, 60, OK, 24)), 0}, Known: true})
		},
		"two copies, both acknowledged": func(s story) {
			s.tellMore(won, try(1, 9, OK, 10))
		},
		"a batch in doubt that comes last": func(s story) {
			s.push(Stored{Record: RecordID{s.appended(expecting(22, 1, Once), NoOffset, try(50, 60, Unknown, 0)), 0}, Known: true})
		},
		"an end told that lags": func(s story) { s.Ops[0][lost].Tries[0].Next = 12 },
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			change(s)
			for _, violation := range Judge(s.History, time.Minute).Violations {
				t.Errorf("%s: %v", violation.Kind, violation)
			}
		})
	}
}
