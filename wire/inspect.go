package wire

import (
	"fmt"
	"math"
)

// keptBuffer is how much memory, in bytes, a buffer may keep from one batch
// to the next, so that one huge batch does not cost for ever.
const keptBuffer = 1 << 20

// Inspection is what the records of one batch say.
type Inspection struct {
	// Kind is what the batch asks for.
	Kind Kind
	// Expected is the offset that the first record expects, if Kind is
	// Conditional. Expected plus the number of records does not overflow.
	Expected int64
	// Digests holds one digest per record: a hash of its key, value and
	// headers in order, equal for equal records within this process however
	// they were batched, compressed and encoded. Timestamps do not count.
	// Valid until the next Inspect.
	Digests []uint64
	// AllAppendIDs: every record has exactly one append-id, not empty.
	AllAppendIDs bool
	// MaxTimestamp and MinTimestamp of the records, milliseconds since 1970;
	// −1 is a record without one.
	MaxTimestamp int64
	MinTimestamp int64
	// FirstTimestamp is that of the first record.
	FirstTimestamp int64
}

// Inspector reads the records of batches. It keeps buffers between calls, so
// pool it; it is not for concurrent use.
type Inspector struct {
	records         recordReader
	sequel          sequel
	encoding        Encoding
	maxDecompressed int
	decompressed    []byte
	digests         []uint64
	payload         []byte // the records read last, in the batch or decompressed
}

// NewInspector returns an Inspector that looks for the given headers, with the
// expected offset in the given encoding, and refuses batches that decompress to
// more than maxDecompressed bytes.
func NewInspector(names HeaderNames, encoding Encoding, maxDecompressed int) *Inspector {
	return &Inspector{
		encoding:        encoding,
		records:         recordReader{names: names.orDefault()},
		maxDecompressed: maxDecompressed,
	}
}

// Shrink lets go of the decompression buffer if it is larger than keep bytes.
// It ends the validity of what the last Inspect returned.
func (in *Inspector) Shrink(keep int) {
	in.payload = nil
	if cap(in.decompressed) > keep {
		in.decompressed = nil
	}
	if cap(in.digests) > keep/8 {
		in.digests = nil
	}
}

// Inspect walks the records of a batch that ParseBatch has accepted with
// header h: all well formed, as many as h says, offset deltas 0, 1, 2, …, no
// bytes after the last. The batch is not changed. Errors: ErrCorrupt (also
// where the bytes cannot be decompressed), ErrTooLarge (decompressed), both
// wrapped, and *RecordError for a condition that is not well formed; a corrupt
// batch is corrupt whatever its headers say.
func (in *Inspector) Inspect(h BatchHeader, batch []byte) (Inspection, error) {
	return in.InspectWithin(h, batch, in.maxDecompressed)
}

// InspectWithin is Inspect with another bound on the decompressed size, where
// that is smaller. What is not compressed is not bounded by it.
func (in *Inspector) InspectWithin(h BatchHeader, batch []byte, most int) (Inspection, error) {
	most = min(most, in.maxDecompressed)
	in.payload = nil
	if len(batch) < batchHeaderSize || h.NumRecords < 1 {
		return Inspection{}, fmt.Errorf("batch of %d bytes, %d records: %w", len(batch), h.NumRecords, ErrCorrupt)
	}
	if cap(in.digests) > keptBuffer/8 {
		in.digests = nil
	}
	payload := batch[batchHeaderSize:]
	if codec := h.Codec(); codec != CodecNone {
		var err error
		in.decompressed, err = Decompress(in.decompressed, codec, payload, most)
		payload = in.decompressed
		if cap(in.decompressed) > keptBuffer {
			in.decompressed = nil
		}
		if err != nil {
			return Inspection{}, err
		}
	}
	in.payload = payload
	out, err := in.walk(h, payload)
	if cap(in.records.scratch) > keptBuffer {
		in.records.scratch = nil
	}
	return out, err
}

func (in *Inspector) walk(h BatchHeader, payload []byte) (Inspection, error) {
	n := int(h.NumRecords)
	if n > len(payload)/minRecordSize {
		return Inspection{}, fmt.Errorf("%d records in %d bytes: %w", n, len(payload), ErrCorrupt)
	}
	if cap(in.digests) < n {
		in.digests = make([]uint64, n)
	}
	out := Inspection{Digests: in.digests[:n], MaxTimestamp: math.MinInt64, MinTimestamp: math.MaxInt64}
	c := condition{encoding: in.encoding}
	in.sequel.forget() // of the last batch
	mayForetell := in.encoding == EncodingDecimal && roomForShort(h.FirstTimestamp)
	var r record
	at := 0
	for i := 0; i < n; i++ {
		if in.sequel.isForetold() && c.goesOn() {
			var f foretold
			f, at = in.sequel.read(payload, at, i, out.Digests)
			if f.records > 0 {
				out.MaxTimestamp = max(out.MaxTimestamp, h.FirstTimestamp+int64(f.newest))
				out.MinTimestamp = min(out.MinTimestamp, h.FirstTimestamp+int64(f.oldest))
				c.addForetold(f.records)
				if i += f.records; i == n {
					break
				}
			}
		}
		in.sequel.forget()
		if at = in.records.next(payload, at, &r); at < 0 {
			return Inspection{}, fmt.Errorf("record %d: %w", i, ErrCorrupt)
		}
		if int64(r.offsetDelta) != int64(i) {
			return Inspection{}, fmt.Errorf("record %d with offset delta %d: %w", i, r.offsetDelta, ErrCorrupt)
		}
		timestamp := h.FirstTimestamp + r.timestampDelta
		if (timestamp > h.FirstTimestamp) != (r.timestampDelta > 0) { // overflow
			return Inspection{}, fmt.Errorf("record %d with timestamp delta %d: %w", i, r.timestampDelta, ErrCorrupt)
		}
		out.MaxTimestamp = max(out.MaxTimestamp, timestamp)
		out.MinTimestamp = min(out.MinTimestamp, timestamp)
		if i == 0 {
			out.FirstTimestamp = timestamp
		}
		out.Digests[i] = r.digest
		c.add(&r)
		if r.loneAt > 0 && mayForetell && i+1 < n {
			in.sequel.begin(payload[r.loneAt:at], r.expected)
		}
	}
	if at != len(payload) {
		return Inspection{}, fmt.Errorf("%d bytes after the last record: %w", len(payload)-at, ErrCorrupt)
	}
	if fault := c.verdict(in.records.names); fault != nil {
		return Inspection{}, fault
	}
	out.Kind, out.Expected = c.kind, c.expected
	out.AllAppendIDs = c.goodAppendIDs == n
	return out, nil
}
