package wire

// Kind is what a batch asks for.
type Kind int

const (
	// Unconditional: no record has an expected-offset.
	Unconditional Kind = iota
	// Conditional: every record names its offset.
	Conditional
	// AtEnd: every record says "end".
	AtEnd
)

// HeaderNames are the names of the record headers we read.
type HeaderNames struct{ ExpectedOffset, AppendID string }

// Inspection is what Inspect found.
type Inspection struct {
	Kind         Kind
	Expected     int64
	Digests      []uint64
	AllAppendIDs bool
	AnyAppendID  bool
	MaxTimestamp int64
	MinTimestamp int64
}

// RecordFault says what is wrong with a record's headers.
type RecordFault int

// RecordError is a fault in one record's headers.
type RecordError struct {
	Index  int
	Reason RecordFault
	Header string
}

func (e *RecordError) Error() string { panic("not yet") }

// Inspector reads the records of batches.
type Inspector struct{}

// NewInspector returns an Inspector.
func NewInspector(names HeaderNames, maxDecompressed int) *Inspector { panic("not yet") }

// Inspect walks the records of a batch.
func (in *Inspector) Inspect(h BatchHeader, batch []byte) (Inspection, error) { panic("not yet") }

// StoredRecord is a fetched record.
type StoredRecord struct {
	Offset      int64
	Digest      uint64
	HasAppendID bool
	Control     bool
	Batch       BatchHeader
}

// WalkStored walks a fetched record set.
func WalkStored(batches []byte, names HeaderNames, maxDecompressed int, fn func(StoredRecord) bool) error {
	panic("not yet")
}
