package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParseBatch(t *testing.T) {
	good := buildBatch(t, CodecNone, recordsExpecting("4", "5", "6"))
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return fixCRC(b)
	}
	cases := []struct {
		name  string
		batch []byte
		want  error
	}{
		{"good", good, nil},
		{"null", nil, ErrCorrupt},
		{"ends before the magic", good[:16], ErrCorrupt},
		{"ends in the header", good[:60], ErrCorrupt},
		{"ends in the records", good[:len(good)-1], ErrCorrupt},
		{"bytes after the batch", append(bytes.Clone(good), 0), ErrCorrupt},
		{"two batches", append(bytes.Clone(good), good...), ErrCorrupt},
		{"length negative", edit(func(b []byte) { binary.BigEndian.PutUint32(b[8:], math.MaxUint32) }), ErrCorrupt},
		{"magic 0", edit(func(b []byte) { b[16] = 0 }), ErrOldFormat},
		{"magic 1", edit(func(b []byte) { b[16] = 1 }), ErrOldFormat},
		{"message set shorter than a batch header", good[:16:16], ErrCorrupt},
		{"magic 3", edit(func(b []byte) { b[16] = 3 }), ErrCorrupt},
		{"last byte changed", append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), ErrBadCRC},
		{"control batch", edit(func(b []byte) { b[22] |= 0x20 }), ErrControlBatch},
		{"base offset not 0", edit(func(b []byte) { b[7] = 1 }), ErrCorrupt},
		{"no records", edit(func(b []byte) { b[60], b[26] = 0, 0xff }), ErrCorrupt},
		{"more offsets than records", edit(func(b []byte) { b[26]++ }), ErrCorrupt},
		{"count wraps", edit(func(b []byte) { copy(b[57:], []byte{0x80, 0, 0, 0}); copy(b[23:], []byte{0x7f, 0xff, 0xff, 0xff}) }), ErrCorrupt},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, got := ParseBatch(c.batch)
			if !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	old := append(bytes.Clone(good[:16]), 1, 0, 0)
	if _, got := ParseBatch(old); !errors.Is(got, ErrOldFormat) {
		t.Errorf("short message set: got %v, want %v", got, ErrOldFormat)
	}
}

func TestParseBatchReadsEveryField(t *testing.T) {
	batch := buildBatch(t, CodecZstd, recordsExpecting("4", "5", "6"))
	batch[22] |= 0x18
	binary.BigEndian.PutUint64(batch[43:], 77)
	binary.BigEndian.PutUint16(batch[51:], 3)
	binary.BigEndian.PutUint32(batch[53:], 99)
	fixCRC(batch)
	got, err := ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	var k kmsg.RecordBatch
	if err := k.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	want := BatchHeader{
		BaseOffset: k.FirstOffset, Length: k.Length, LeaderEpoch: k.PartitionLeaderEpoch,
		Magic: k.Magic, CRC: uint32(k.CRC), Attributes: k.Attributes, LastOffsetDelta: k.LastOffsetDelta,
		FirstTimestamp: k.FirstTimestamp, MaxTimestamp: k.MaxTimestamp, ProducerID: k.ProducerID,
		ProducerEpoch: k.ProducerEpoch, BaseSequence: k.FirstSequence, NumRecords: k.NumRecords,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Codec() != CodecZstd || !got.Transactional() || !got.LogAppendTime() || got.Control() {
		t.Errorf("attributes %#x read as codec %d, transactional %t, log append time %t, control %t",
			got.Attributes, got.Codec(), got.Transactional(), got.LogAppendTime(), got.Control())
	}
}

func TestStamp(t *testing.T) {
	batch := buildBatch(t, CodecLZ4, recordsExpecting("4", "5"))
	binary.BigEndian.PutUint16(batch[21:], 0xff48|uint16(CodecLZ4)) // timestamp type and unknown bits
	fixCRC(batch)
	before := bytes.Clone(batch)

	Stamp(batch, 0x4f66667365740001, 2, math.MaxInt32, testFirstTimestamp+1)

	var got kmsg.RecordBatch
	if err := got.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	var want kmsg.RecordBatch
	if err := want.ReadFrom(before); err != nil {
		t.Fatal(err)
	}
	want.Attributes = int16(CodecLZ4)
	want.MaxTimestamp = testFirstTimestamp + 1
	want.ProducerID, want.ProducerEpoch, want.FirstSequence = 0x4f66667365740001, 2, math.MaxInt32
	want.CRC = int32(crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseBatch(batch); err != nil {
		t.Errorf("stamped batch: %v", err)
	}
	if !bytes.Equal(batch[61:], before[61:]) {
		t.Error("the records were changed")
	}
}

func TestParseStoredBatch(t *testing.T) {
	client := buildBatch(t, CodecNone, recordsExpecting("4", "5", "6"))
	good := storeBatch(client, 1000)
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return fixCRC(b)
	}
	next := append(bytes.Clone(good), good[:30]...)
	emptied := edit(func(b []byte) { b[60] = 0; binary.BigEndian.PutUint32(b[8:], 49) })[:61]
	cases := []struct {
		name  string
		bytes []byte
		size  int
		want  error
	}{
		{"whole", good, len(good), nil},
		{"another follows", next, len(good), nil},
		{"emptied by compaction", fixCRC(emptied), 61, nil},
		{"compacted", edit(func(b []byte) { b[26] = 200 }), len(good), nil},
		{"control", edit(func(b []byte) { b[22] |= 0x20 }), len(good), nil},
		{"nothing", nil, 0, ErrShort},
		{"cut in the header", good[:16], 0, ErrShort},
		{"cut in the records", good[:len(good)-1], 0, ErrShort},
		{"length beyond all bytes", edit(func(b []byte) { binary.BigEndian.PutUint32(b[8:], math.MaxInt32) }), 0, ErrShort},
		{"length negative", edit(func(b []byte) { binary.BigEndian.PutUint32(b[8:], math.MaxUint32) }), 0, ErrCorrupt},
		{"length less than a header", edit(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 48) }), 0, ErrCorrupt},
		{"magic 1", edit(func(b []byte) { b[16] = 1 }), len(good), ErrOldFormat},
		{"checksum", append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), len(good), ErrBadCRC},
		{"offset negative", edit(func(b []byte) { b[0] = 0x80 }), 0, ErrCorrupt},
		{"offsets overflow", edit(func(b []byte) { binary.BigEndian.PutUint64(b, math.MaxInt64-2) }), 0, ErrCorrupt},
		{"last offset delta negative", edit(func(b []byte) { b[23] = 0x80 }), 0, ErrCorrupt},
		{"more records than offsets", edit(func(b []byte) { b[60] = 4 }), 0, ErrCorrupt},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, size, err := ParseStoredBatch(c.bytes)
			if size != c.size || !errors.Is(err, c.want) {
				t.Fatalf("got size %d, %v; want %d, %v", size, err, c.size, c.want)
			}
			if err == nil && (h.BaseOffset != 1000 || h.LeaderEpoch != 7) {
				t.Errorf("got base offset %d, leader epoch %d; want 1000, 7", h.BaseOffset, h.LeaderEpoch)
			}
		})
	}
}

// TestStampOfLargeBatches: the checksum that is derived is that of the bytes, also
// when the batch is stamped again; and it hides no damage.
func TestStampOfLargeBatches(t *testing.T) {
	for _, size := range []int{batchHeaderSize, stampedAnew - 1, stampedAnew, stampedAnew + 1, 70_001, 1 << 20} {
		payload := make([]byte, size-batchHeaderSize)
		for i := range payload {
			payload[i] = byte(i * 13)
		}
		batch := sealBatch(payload, 0x08|int16(CodecZstd), 1)
		for sequence := range int32(3) {
			Stamp(batch, math.MaxInt64-int64(sequence), int16(sequence)-1, sequence*1_000_003, int64(sequence)<<50)
			if h, err := ParseBatch(batch); err != nil || h.BaseSequence != sequence*1_000_003 {
				t.Fatalf("%d bytes, stamped for the time %d: %+v, %v", size, sequence, h, err)
			}
		}
		if size <= stampedAnew {
			continue
		}
		batch[len(batch)-1] ^= 0x10
		Stamp(batch, 1, 2, 3, 4)
		if _, err := ParseBatch(batch); !errors.Is(err, ErrBadCRC) {
			t.Errorf("%d bytes, damaged and then stamped: got %v, want %v", size, err, ErrBadCRC)
		}
	}
}
