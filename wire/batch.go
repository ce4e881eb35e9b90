package wire

// BatchHeader is the header of a record batch.
type BatchHeader struct {
	BaseOffset      int64
	Length          int32
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	FirstTimestamp  int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// Codec is the compression codec.
func (h BatchHeader) Codec() int8 { panic("not yet") }

// Transactional reports a batch of a transaction.
func (h BatchHeader) Transactional() bool { panic("not yet") }

// Control reports a control batch.
func (h BatchHeader) Control() bool { panic("not yet") }

// LogAppendTime reports the timestamp type.
func (h BatchHeader) LogAppendTime() bool { panic("not yet") }

// ParseBatch checks a client's batch.
func ParseBatch(records []byte) (BatchHeader, error) { panic("not yet") }

// ParseStoredBatch reads a fetched batch.
func ParseStoredBatch(b []byte) (h BatchHeader, size int, err error) { panic("not yet") }

// Stamp overwrites the producer fields.
func Stamp(batch []byte, producerID int64, epoch int16, baseSequence int32, maxTimestamp int64) {
	panic("not yet")
}
