package wire

import (
	"errors"
	"fmt"
	"sync"
)

// StoredRecord is one record of a fetched record set.
type StoredRecord struct {
	// Offset of the record in its partition.
	Offset int64
	// Digest as in Inspection.Digests; 0 for control records.
	Digest uint64
	// HasAppendID: the record has exactly one append-id, not empty.
	HasAppendID bool
	// Timestamp is its writer's, in milliseconds since 1970, also where the batch
	// has the broker's.
	Timestamp int64
	// Control: a transaction marker, not a client's record.
	Control bool
	// Batch is the header of the batch that the record stands in.
	Batch BatchHeader
}

// storedWalker holds the buffers of one WalkStored.
type storedWalker struct {
	records      recordReader
	decompressed []byte
}

var storedWalkers = sync.Pool{New: func() any { return new(storedWalker) }}

// WalkStored calls fn for every record of a fetched record set, in order of
// offsets, until fn returns false. The set holds batches one after the other;
// a last one that is not whole, as brokers cut it, is ignored. Batches that
// compaction has emptied yield nothing, so the offsets covered are those of
// the batches (ParseStoredBatch), not of the records.
//
// Errors end the walk at a batch: ErrCorrupt, ErrBadCRC, ErrOldFormat, or
// ErrTooLarge if it decompresses to more than maxDecompressed bytes, all
// wrapped. Records before the fault have been handed to fn. Safe for
// concurrent use.
func WalkStored(batches []byte, names HeaderNames, maxDecompressed int, fn func(StoredRecord) bool) error {
	w := storedWalkers.Get().(*storedWalker)
	w.records.names = names.orDefault()
	defer func() {
		if cap(w.decompressed) > keptBuffer {
			w.decompressed = nil
		}
		if cap(w.records.scratch) > keptBuffer {
			w.records.scratch = nil
		}
		storedWalkers.Put(w)
	}()
	end := int64(0) // the least offset that the next batch may begin at
	for at := 0; at < len(batches); {
		h, size, err := ParseStoredBatch(batches[at:])
		if errors.Is(err, ErrShort) {
			return nil
		}
		if err == nil && h.BaseOffset < end {
			err = ErrCorrupt
		}
		more := false
		if err == nil {
			more, err = w.walkBatch(h, batches[at+batchHeaderSize:at+size], maxDecompressed, fn)
		}
		if err != nil {
			return fmt.Errorf("stored batch at byte %d: %w", at, err)
		}
		if !more {
			return nil
		}
		end = h.BaseOffset + int64(h.LastOffsetDelta) + 1
		at += size
	}
	return nil
}

func (w *storedWalker) walkBatch(h BatchHeader, payload []byte, maxDecompressed int, fn func(StoredRecord) bool) (more bool, err error) {
	if h.NumRecords == 0 {
		return true, nil
	}
	if codec := h.Codec(); codec != CodecNone {
		if w.decompressed, err = Decompress(w.decompressed, codec, payload, maxDecompressed); err != nil {
			return false, err
		}
		payload = w.decompressed
	}
	if int(h.NumRecords) > len(payload)/minRecordSize {
		return false, ErrCorrupt
	}
	stored := StoredRecord{Batch: h, Control: h.Control()}
	var r record
	at, last := 0, int32(-1)
	for range h.NumRecords {
		if at = w.records.next(payload, at, &r); at < 0 {
			return false, ErrCorrupt
		}
		if r.offsetDelta <= last || r.offsetDelta > h.LastOffsetDelta {
			return false, ErrCorrupt
		}
		last = r.offsetDelta
		stored.Offset = h.BaseOffset + int64(r.offsetDelta)
		stored.Timestamp = h.FirstTimestamp + r.timestampDelta
		if !stored.Control {
			stored.Digest, stored.HasAppendID = r.digest, r.hasAppendID()
		}
		if !fn(stored) {
			return false, nil
		}
	}
	if at != len(payload) {
		return false, ErrCorrupt
	}
	return true, nil
}
