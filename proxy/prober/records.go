package prober

import "github.com/offsetproxy/offsetproxy/wire"

// Records is what a read-back found.
type Records struct {
	// HighWatermark, LogStart and LogEnd as last answered. A LogStart above
	// the offset asked for means that what stood below it is deleted.
	HighWatermark, LogStart, LogEnd int64
	// Records are those stored at the offsets asked for and below the high
	// watermark, in offset order. Offsets may be missing (compaction).
	Records []wire.StoredRecord
	// NextOffset is the first offset that was not covered: below it, what is
	// not in Records is not in the log.
	NextOffset int64
}
