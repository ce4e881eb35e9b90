package wire

import "fmt"

// Kind is what a batch asks for, by its records' expected-offset headers.
type Kind int

const (
	// Unconditional: no record has an expected-offset.
	Unconditional Kind = iota
	// Conditional: record i expects offset Expected+i.
	Conditional
	// AtEnd: every record says "end": wherever the log ends.
	AtEnd
)

// String names the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Unconditional:
		return "unconditional"
	case Conditional:
		return "conditional"
	case AtEnd:
		return "at end"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// RecordFault says what is wrong with a header of a record.
type RecordFault int

const (
	// FaultEmpty: the header's value is empty or null.
	FaultEmpty RecordFault = iota + 1
	// FaultSign: the offset begins with a plus or a minus.
	FaultSign
	// FaultNotDecimal: the offset has something that is not an ASCII digit.
	FaultNotDecimal
	// FaultTooLarge: the offset has more than 19 digits, or no log could go
	// on after a record there (2⁶³−1 and above).
	FaultTooLarge
	// FaultTwice: the header is given more than once.
	FaultTwice
	// FaultMissing: other records of the batch have the header.
	FaultMissing
	// FaultMixed: one batch has both offsets and "end".
	FaultMixed
	// FaultNotInt64: the offset is to be 8 bytes (EncodingInt64) and is not.
	FaultNotInt64
	// FaultNegative: the offset, in EncodingInt64, is less than 0.
	FaultNegative
	// FaultNotConsecutive: the offset is not one more than that of the
	// record before.
	FaultNotConsecutive
)

// String says what the fault is, as the second half of a sentence of which
// the header's name is the subject.
func (f RecordFault) String() string {
	switch f {
	case FaultEmpty:
		return "is empty"
	case FaultSign:
		return "has a sign; only decimal digits are allowed"
	case FaultNotDecimal:
		return `is neither a decimal number nor "end"`
	case FaultTooLarge:
		return "is larger than any offset a record can have"
	case FaultTwice:
		return "is given more than once"
	case FaultMissing:
		return "is missing, though other records of the batch have it"
	case FaultMixed:
		return `mixes offsets and "end" in one batch`
	case FaultNotInt64:
		return `is neither 8 bytes, a big-endian number, nor "end"`
	case FaultNegative:
		return "is negative"
	case FaultNotConsecutive:
		return "is not one more than that of the record before"
	}
	return fmt.Sprintf("RecordFault(%d)", int(f))
}

// RecordError is a fault in the headers of one record: the client's batch is
// a well-formed batch, but not a well-formed condition. Its text is meant for
// the person who wrote the client, and shows nothing of the record.
type RecordError struct {
	// Index of the record in its batch, from 0.
	Index int
	// Reason is the fault.
	Reason RecordFault
	// Header is the name of the header at fault, as configured.
	Header string
}

// Error reads "record 3: expected-offset is empty".
func (e *RecordError) Error() string {
	return fmt.Sprintf("record %d: %s %s", e.Index, e.Header, e.Reason)
}

// headerFault is a RecordError before it is worth an allocation.
type headerFault struct {
	index  int
	reason RecordFault // 0: none
}

// set keeps the first fault.
func (f *headerFault) set(index int, reason RecordFault) {
	if f.reason == 0 {
		*f = headerFault{index, reason}
	}
}

// condition gathers what the records of one batch ask for, record by record.
type condition struct {
	encoding Encoding

	kind     Kind
	expected int64 // of record 0, if conditional
	fault    headerFault

	records       int
	withAppendID  int // the header is there, well formed or not
	goodAppendIDs int
	noAppendID    headerFault // the first record without the header
	appendIDFault headerFault
}

// add takes the batch's next record.
func (c *condition) add(r *record) {
	i := c.records
	c.records++
	if r.expectedCount+r.appendIDCount == 0 && c.kind == Unconditional && c.noAppendID.reason != 0 && c.fault.reason == 0 {
		return // as the records before
	}
	if c.fault.reason == 0 {
		c.addExpected(i, r)
	}
	switch {
	case r.appendIDCount == 0:
		c.noAppendID.set(i, FaultMissing)
		return
	case r.appendIDCount > 1:
		c.appendIDFault.set(i, FaultTwice)
	case len(r.appendID) == 0:
		c.appendIDFault.set(i, FaultEmpty)
	default:
		c.goodAppendIDs++
	}
	c.withAppendID++
}

// goesOn reports whether the batch asks for something, and nothing is wrong with it so
// far.
func (c *condition) goesOn() bool { return c.kind != Unconditional && c.fault.reason == 0 }

// addForetold takes so many records that say what was to be said after the one before,
// which had no append-id either, so that none of them says anything new.
func (c *condition) addForetold(n int) { c.records += n }

func (c *condition) addExpected(i int, r *record) {
	if r.expectedCount == 0 {
		if c.kind != Unconditional {
			c.fault.set(i, FaultMissing)
		}
		return
	}
	if i > 0 && c.kind == Unconditional {
		c.fault.set(0, FaultMissing)
		return
	}
	if r.expectedCount > 1 {
		c.fault.set(i, FaultTwice)
		return
	}
	kind, offset, fault := c.encoding.parse(r.expected)
	switch {
	case fault != 0:
		c.fault.set(i, fault)
	case i == 0:
		c.kind, c.expected = kind, offset
	case kind != c.kind:
		c.fault.set(i, FaultMixed)
	case kind == Conditional && offset-c.expected != int64(i): // both ≥ 0
		c.fault.set(i, FaultNotConsecutive)
	}
}

// verdict returns the fault to report once all records are in, or nil. Where
// there is no condition, append-id means nothing to us and is anyone's header.
func (c *condition) verdict(names HeaderNames) *RecordError {
	if c.fault.reason != 0 {
		return &RecordError{c.fault.index, c.fault.reason, names.ExpectedOffset}
	}
	if c.kind == Unconditional {
		return nil
	}
	fault := c.appendIDFault
	if fault.reason == 0 && c.withAppendID > 0 {
		fault = c.noAppendID
	}
	if fault.reason != 0 {
		return &RecordError{fault.index, fault.reason, names.AppendID}
	}
	return nil
}
