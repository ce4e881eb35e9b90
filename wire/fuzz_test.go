package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// goldenBodies calls fn with the body of every golden frame.
func goldenBodies(f *testing.F, fn func(body []byte, version int16)) {
	files, err := filepath.Glob(filepath.Join(goldenDir, "produce-*.bin"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		frame, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		h, err := ParseRequestHeader(frame)
		if err != nil {
			f.Fatal(err)
		}
		fn(frame[h.BodyOffset:], h.APIVersion)
	}
}

// goldenBatches calls fn with every batch of every golden frame.
func goldenBatches(f *testing.F, fn func(batch []byte)) {
	goldenBodies(f, func(body []byte, version int16) {
		var p Produce
		if err := p.Parse(body, version); err != nil {
			f.Fatal(err)
		}
		for _, partition := range p.Partitions {
			fn(bytes.Clone(partition.Records))
		}
	})
}

// FuzzParseProduce: what we accept, kmsg reads alike; a frame of all
// partitions reads as the request did.
func FuzzParseProduce(f *testing.F) {
	goldenBodies(f, func(body []byte, version int16) { f.Add(body, version) })
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		f.Add(sampleProduce(version, []byte("records")), version)
		f.Add(sampleProduce(version, nil), version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		var p Produce
		before := bytes.Clone(body)
		if err := p.Parse(body, version); err != nil {
			if len(p.Partitions) != 0 {
				t.Errorf("%d partitions of a request refused: %v", len(p.Partitions), err)
			}
			return
		}
		var want kmsg.ProduceRequest
		want.Version = version
		if err := want.ReadFrom(body); err != nil {
			t.Fatalf("kmsg refuses what we accept: %v", err)
		}
		if diff := diffPartitions(flatten(&want), p.Partitions); diff != "" {
			t.Fatalf("partitions (-kmsg +got):\n%s", diff)
		}
		var keep []int
		for i := range p.Partitions {
			keep = append(keep, i)
		}
		frame := frameOf(&p, []byte("client"), 5, p.Acks, p.TimeoutMillis, keep)
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Fatalf("frame of %d bytes says %d", len(frame), binary.BigEndian.Uint32(frame))
		}
		h, err := ParseRequestHeader(frame[4:])
		if err != nil || h.CorrelationID != 5 || string(h.ClientID) != "client" {
			t.Fatalf("header %+v, %v", h, err)
		}
		var again Produce
		if err := again.Parse(frame[4+h.BodyOffset:], version); err != nil {
			t.Fatalf("our own frame: %v", err)
		}
		if again.Acks != p.Acks || again.TimeoutMillis != p.TimeoutMillis || !sameNullable(again.TransactionalID, p.TransactionalID) {
			t.Fatalf("got %+v, want %+v", again, p)
		}
		// Topics that had no partitions are gone, so indexes may be closer.
		topic, last := -1, -1
		for i := range p.Partitions {
			if p.Partitions[i].TopicIndex != last {
				topic, last = topic+1, p.Partitions[i].TopicIndex
			}
			p.Partitions[i].TopicIndex = topic
		}
		if diff := diffPartitions(p.Partitions, again.Partitions); diff != "" {
			t.Fatalf("partitions (-request +frame):\n%s", diff)
		}
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
	})
}

// mendBatch makes length and checksum right where there is room for them, so
// that the fuzzer comes past them.
func mendBatch(batch []byte) []byte {
	batch = bytes.Clone(batch)
	if len(batch) >= batchHeaderSize {
		binary.BigEndian.PutUint32(batch[batchLengthPos:], uint32(len(batch)-batchLengthFrom))
		fixCRC(batch)
	}
	return batch
}

// FuzzParseBatch: what we accept, kmsg reads alike, it is a whole stored
// batch too, and stamping leaves it acceptable.
func FuzzParseBatch(f *testing.F) {
	goldenBatches(f, func(batch []byte) { f.Add(batch, int64(1), int16(0), int32(0)) })
	f.Add(buildBatch(f, CodecNone, recordsExpecting("1", "2")), int64(math.MaxInt64), int16(math.MaxInt16), int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, raw []byte, id int64, epoch int16, sequence int32) {
		_, _ = ParseBatch(raw)
		_, _, _ = ParseStoredBatch(raw)
		batch := mendBatch(raw)
		h, err := ParseBatch(batch)
		if err != nil {
			return
		}
		if stored, size, err := ParseStoredBatch(append(bytes.Clone(batch), 1, 2, 3)); err != nil || size != len(batch) || stored != h {
			t.Fatalf("as a stored batch: %+v, %d of %d bytes, %v; want %+v", stored, size, len(batch), err, h)
		}
		Stamp(batch, id, epoch, sequence, 42)
		stamped, err := ParseBatch(batch)
		if err != nil {
			t.Fatalf("stamped: %v", err)
		}
		var k kmsg.RecordBatch
		if err := k.ReadFrom(batch); err != nil {
			t.Fatalf("kmsg refuses what we accept: %v", err)
		}
		if k.ProducerID != id || k.ProducerEpoch != epoch || k.FirstSequence != sequence || k.MaxTimestamp != 42 || k.Attributes != int16(h.Codec()) {
			t.Fatalf("stamped %d %d %d: got %+v", id, epoch, sequence, k)
		}
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = id, epoch, sequence
		h.MaxTimestamp, h.Attributes, h.CRC = 42, int16(h.Codec()), stamped.CRC
		if stamped != h {
			t.Fatalf("got %+v, want %+v", stamped, h)
		}
	})
}

// naiveDigest writes a record's content anew and hashes it.
func naiveDigest(r kmsg.Record) uint64 {
	var b []byte
	field := func(v []byte) {
		if v == nil {
			b = binary.AppendVarint(b, -1)
			return
		}
		b = append(binary.AppendVarint(b, int64(len(v))), v...)
	}
	field(r.Key)
	field(r.Value)
	headersAt := len(b)
	b = binary.AppendVarint(b, int64(len(r.Headers)))
	for _, h := range r.Headers {
		field([]byte(h.Key))
		field(h.Value)
	}
	return digestOf(b, headersAt)
}

// FuzzInspect: what we accept, kmsg decodes to as many records, with the same
// content, and the naive rules come to the same verdict.
func FuzzInspect(f *testing.F) {
	goldenBatches(f, func(batch []byte) {
		h, err := ParseBatch(batch)
		if err != nil {
			f.Fatal(err)
		}
		if h.Codec() == CodecNone {
			f.Add(batch[batchHeaderSize:], h.NumRecords, h.Codec())
		}
	})
	ids := recordsExpecting("1", "2")
	for i := range ids {
		ids[i].Headers = append(ids[i].Headers, header("append-id", []byte{byte(i)}))
	}
	for codec := range codecNames {
		f.Add(encodeRecords(ids), int32(2), codec)
		f.Add(encodeRecords(recordsExpecting("end", "end")), int32(2), codec)
		f.Add(encodeRecords(recordsExpecting("9223372036854775807")), int32(1), codec)
		f.Add(encodeRecords(make([]kmsg.Record, 3)), int32(3), codec)
		f.Add(encodeRecords(recordsExpecting(int64Text(254), int64Text(255), int64Text(256))), int32(3), codec)
		f.Add(encodeRecords(recordsExpecting(int64Text(math.MaxInt64-1), int64Text(math.MaxInt64))), int32(2), codec)
		f.Add(encodeRecords(recordsExpecting(int64Text(3), "end")), int32(2), codec)
		f.Add(encodeRecords(recordsExpecting(int64Text(-1))), int32(1), codec)
	}
	var inspectors []*Inspector
	for _, encoding := range []Encoding{EncodingDecimal, EncodingInt64} {
		inspectors = append(inspectors, NewInspector(HeaderNames{}, encoding, testMaxDecompressed))
	}
	f.Fuzz(func(t *testing.T, payload []byte, count int32, codec int8) {
		codec &= attributeCodec
		// As it is: mostly damage to the codecs.
		raw := sealBatch(payload, int16(codec), count)
		if h, err := ParseBatch(raw); err == nil {
			_, _ = inspectors[0].Inspect(h, raw)
			_ = inspectors[0].FirstHeader("append-id")
		}
		if _, known := codecNames[codec]; !known || len(payload) > testMaxDecompressed {
			return
		}
		batch := sealBatch(compress(t, codec, payload), int16(codec), count)
		h, err := ParseBatch(batch)
		if err != nil {
			return
		}
		for _, in := range inspectors {
			checkInspection(t, in, h, batch, payload)
		}
	})
}

// checkInspection compares what an inspector says of a batch, whose records are
// payload, with the naive rules.
func checkInspection(t *testing.T, in *Inspector, h BatchHeader, batch, payload []byte) {
	t.Helper()
	got, err := in.Inspect(h, batch)
	var fault *RecordError
	if err != nil && !errors.As(err, &fault) {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("got %v, want %v", err, ErrCorrupt)
		}
		if wellFormed(payload, int(h.NumRecords)) {
			t.Fatalf("got %v for records that kmsg writes just so", err)
		}
		return
	}
	records, ok := decodeRecords(payload)
	if !ok || len(records) != int(h.NumRecords) {
		t.Fatalf("kmsg decodes %d records of %d (%t) from what we accept", len(records), h.NumRecords, ok)
	}
	checkFirstHeader(t, in, records[0])
	want := naiveVerdict(records, in.encoding)
	if fault != nil {
		if *fault != want.fault {
			t.Fatalf("%v: got fault %v, want %v", in.encoding, fault, &want.fault)
		}
		return
	}
	if want.fault.Reason != 0 || got.Kind != want.kind || got.Expected != want.expected || got.AllAppendIDs != want.allID {
		t.Fatalf("%v: got %+v, want %+v", in.encoding, got, want)
	}
	for i, r := range records {
		if got.Digests[i] != naiveDigest(r) {
			t.Fatalf("record %d: digest %x, want %x", i, got.Digests[i], naiveDigest(r))
		}
		if at := testFirstTimestamp + r.TimestampDelta64; at > got.MaxTimestamp || at < got.MinTimestamp {
			t.Fatalf("record %d at %d, outside of %d to %d", i, at, got.MinTimestamp, got.MaxTimestamp)
		}
	}
}

// wellFormed reports whether a payload is, byte for byte, what kmsg writes of its
// records, so that there is nothing to refuse it for.
func wellFormed(payload []byte, count int) bool {
	records, ok := decodeRecords(payload)
	if !ok || len(records) != count || !bytes.Equal(encodeRecords(records), payload) {
		return false
	}
	for _, r := range records {
		if r.TimestampDelta64 > math.MaxInt64-testFirstTimestamp {
			return false // overflows
		}
	}
	return true
}

// FuzzWalkStored: offsets ascend within their batches; a set cut short yields
// a prefix of what the whole yields.
func FuzzWalkStored(f *testing.F) {
	offset := int64(0)
	var set []byte
	goldenBatches(f, func(batch []byte) {
		set = append(set, storeBatch(batch, offset)...)
		f.Add(storeBatch(batch, offset), uint16(40))
		offset += 100
	})
	f.Add(set, uint16(1))
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		_, _ = walkAll(raw)
		mended := bytes.Clone(raw)
		for at := 0; len(mended)-at >= batchHeaderSize; {
			size := batchLengthFrom + int64(binary.BigEndian.Uint32(mended[at+batchLengthPos:]))
			if size < batchHeaderSize || size > int64(len(mended)-at) {
				break
			}
			fixCRC(mended[at : at+int(size)])
			at += int(size)
		}
		whole, err := walkAll(mended)
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrOldFormat) && !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		last := int64(-1)
		for _, r := range whole {
			if r.Offset <= last || r.Offset < r.Batch.BaseOffset || r.Offset > r.Batch.BaseOffset+int64(r.Batch.LastOffsetDelta) {
				t.Fatalf("offset %d after %d, in %+v", r.Offset, last, r.Batch)
			}
			if r.Control != r.Batch.Control() || r.Control && (r.Digest != 0 || r.HasAppendID) {
				t.Fatalf("control record %+v", r)
			}
			last = r.Offset
		}
		part, _ := walkAll(mended[:max(0, len(mended)-int(cut))])
		if len(part) > len(whole) {
			t.Fatalf("%d records of a set cut short, %d of the whole", len(part), len(whole))
		}
		for i := range part {
			if part[i] != whole[i] {
				t.Fatalf("record %d cut short: %+v, whole: %+v", i, part[i], whole[i])
			}
		}
	})
}

// decompressByStream is Decompress by the libraries' own readers, without any
// of what Decompress does for speed and bounds.
func decompressByStream(codec int8, src []byte, max int) ([]byte, error) {
	var r io.Reader = bytes.NewReader(src)
	var err error
	switch codec {
	case CodecGzip:
		r, err = gzip.NewReader(r)
	case CodecLZ4:
		r = lz4.NewReader(r)
	case CodecZstd:
		var d *zstd.Decoder
		if d, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
			r = d
		}
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, int64(max)+1))
}

// FuzzDecompress: never above the bound, the same into any buffer, and what a
// plain reader of the codec yields.
func FuzzDecompress(f *testing.F) {
	for codec := range codecNames {
		for name, text := range sampleTexts() {
			if len(text) > 70_000 && name != "mixed" {
				continue
			}
			for _, src := range encodings(f, codec, text[:min(len(text), 3000)]) {
				f.Add(src, codec, uint32(len(text)))
			}
		}
	}
	dirty := bytes.Repeat([]byte{0xaa}, 300)
	f.Fuzz(func(t *testing.T, src []byte, codec int8, bound uint32) {
		max := int(bound % (1 << 20))
		got, err := Decompress(nil, codec, src, max)
		again, againErr := Decompress(dirty, codec, src, max)
		if (err == nil) != (againErr == nil) || !bytes.Equal(got, again) {
			t.Fatalf("into nothing: %d bytes, %v; into a used buffer: %d bytes, %v", len(got), err, len(again), againErr)
		}
		if len(got) > max {
			t.Fatalf("%d bytes, above the bound of %d", len(got), max)
		}
		if err != nil {
			if len(got) != 0 || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%d bytes with error %v", len(got), err)
			}
			if !errors.Is(err, ErrTooLarge) {
				return
			}
			// Too large for the bound is either right or, with more room,
			// found to be damaged.
			if more, err := Decompress(nil, codec, src, 1<<20); err == nil && len(more) <= max {
				t.Fatalf("refused as above %d, though it has %d bytes", max, len(more))
			}
			return
		}
		var want []byte
		switch {
		case codec == CodecSnappy && bytes.HasPrefix(src, xerialMagic):
			return
		case codec == CodecSnappy:
			want, err = snappy.Decode(nil, src)
		default:
			want, err = decompressByStream(codec, src, max)
		}
		// The readers verify checksums inside of lz4 frames, which we leave.
		if err != nil && codec == CodecLZ4 {
			return
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes; a plain reader: %d, %v", len(got), len(want), err)
		}
	})
}
