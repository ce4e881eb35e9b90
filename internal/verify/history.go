package verify

import (
	"fmt"
	"slices"
)

// Setup is what was set up for a run.
type Setup struct {
	// Run tells runs apart; it begins every record's name.
	Run string
	// Topic is where the appends went.
	Topic string
	// Proxies are the bootstrap addresses; a try names one by its place here.
	Proxies []string
	// Partitions and Writers are how many there are.
	Partitions, Writers int
	// Seed is what the writers' choices came from.
	Seed uint64
}

// AppendID names a logical append.
type AppendID struct {
	// Writer counts from 0.
	Writer int32
	// Number is which of the writer's appends it is.
	Number AppendNumber
}

// String is the writer's number and the append's.
func (id AppendID) String() string { return fmt.Sprintf("%d/%d", id.Writer, id.Number) }

// RecordID names a record.
type RecordID struct {
	// Append is whose record it is.
	Append AppendID
	// Place is which of its records, from 0.
	Place uint16
}

// Op is a logical append.
type Op struct {
	// Partition is where it was to go.
	Partition Partition
	// Expected is what its first record expected; NoOffset: the end.
	Expected Offset
	// Records is how many it has, at least 1.
	Records uint16
	// Habit is how it was gone about.
	Habit Habit
	// Tries are its transmissions, in the order in which they ended.
	Tries []Try
}

// Try is one transmission of some of an append's records, as one batch.
type Try struct {
	// Start and End enclose it.
	Start, End Moment
	// Offset is where it was acknowledged, else NoOffset.
	Offset Offset
	// Next is the end that a refusal told, else NoOffset.
	Next Offset
	// Proxy is which of Setup.Proxies it went to first.
	Proxy uint16
	// First and Records are which of the append's records it holds.
	First, Records uint16
	// Code is the answer's error code, 0 without an answer.
	Code int16
	// Outcome is what its writer knew of it afterwards.
	Outcome Outcome
}

// expects is the offset that the first record of a try expects; only if the append
// expects one.
func (o *Op) expects(t *Try) Offset { return o.Expected + Offset(t.First) }

// holds tells whether the record at a place of the append is in it.
func (t *Try) holds(place uint16) bool { return place >= t.First && place < t.First+t.Records }

// EndRead is a read of a partition's end.
type EndRead struct {
	// Start and End enclose it.
	Start, End Moment
	// Offset is what was answered.
	Offset Offset
	// Proxy is which of Setup.Proxies was asked.
	Proxy uint16
}

// Stored is what the log holds at one offset.
type Stored struct {
	// Record is the record, if Known.
	Record RecordID
	// Known: it has a name of this run.
	Known bool
	// Missing: there is no record.
	Missing bool
	// Altered: its key or headers are not those that it was sent with. Only if Known.
	Altered bool
}

// PartitionLog is a partition's log as far as it is of the run.
type PartitionLog struct {
	// Begin is where the log ended before the first append.
	Begin Offset
	// Records are those from Begin on, one for each offset.
	Records []Stored
	// Read: it has been read up to its end.
	Read bool
}

// end is the offset behind the last record.
func (l *PartitionLog) end() Offset { return l.Begin + Offset(len(l.Records)) }

// at gives what an offset holds; false: nothing of the run.
func (l *PartitionLog) at(o Offset) (Stored, bool) {
	if o < l.Begin || o >= l.end() {
		return Stored{}, false
	}
	return l.Records[o-l.Begin], true
}

// History is what a run left behind. It is not changed by checks, which may use it
// at the same time.
type History struct {
	Setup
	// Ops are the appends, by writer and number.
	Ops [][]Op
	// Reads are the reads of ends, by partition.
	Reads [][]EndRead
	// Logs are the logs, by partition.
	Logs []PartitionLog
	// Cut: the last line was not whole, as when a run is killed.
	Cut bool

	records int // of Ops
}

func newHistory(setup Setup) *History {
	h := &History{
		Setup: setup,
		Ops:   make([][]Op, setup.Writers), Reads: make([][]EndRead, setup.Partitions),
		Logs: make([]PartitionLog, setup.Partitions),
	}
	return h
}

// op gives an append; nil: there is none of that name.
func (h *History) op(id AppendID) *Op {
	if id.Writer < 0 || int(id.Writer) >= len(h.Ops) || id.Number < 0 || int(id.Number) >= len(h.Ops[id.Writer]) {
		return nil
	}
	return &h.Ops[id.Writer][id.Number]
}

// Complete tells whether the logs of all partitions were read.
func (h *History) Complete() bool {
	return !slices.ContainsFunc(h.Logs, func(l PartitionLog) bool { return !l.Read })
}
