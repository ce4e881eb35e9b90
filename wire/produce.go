package wire

// Produce is a view of one Produce request.
type Produce struct {
	Version         int16
	TransactionalID []byte
	Acks            int16
	TimeoutMillis   int32
	Partitions      []ProducePartition
}

// ProducePartition is what a Produce request holds for one partition.
type ProducePartition struct {
	Topic      []byte
	TopicID    [16]byte
	Partition  int32
	TopicIndex int
	Records    []byte
}

// Parse reads a request body.
func (p *Produce) Parse(body []byte, version int16) error { panic("not yet") }

// AppendFrame appends a request frame.
func (p *Produce) AppendFrame(dst []byte, clientID []byte, correlationID int32, acks int16, timeoutMillis int32, keep []int) []byte {
	panic("not yet")
}

// PatchAcks overwrites acks.
func (p *Produce) PatchAcks(acks int16) { panic("not yet") }

// PatchTimeout overwrites the timeout.
func (p *Produce) PatchTimeout(ms int32) { panic("not yet") }
