package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// walkAll collects what WalkStored yields.
func walkAll(set []byte) ([]StoredRecord, error) {
	var out []StoredRecord
	err := WalkStored(set, HeaderNames{}, testMaxDecompressed, func(r StoredRecord) bool {
		out = append(out, r)
		return true
	})
	return out, err
}

// TestStoredRecordsAreRecognised: a client may cut the same records into
// other batches, in other codecs, with other timestamps; the digests of what
// it sent and of what is stored are the same.
func TestStoredRecordsAreRecognised(t *testing.T) {
	in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
	rapid.Check(t, func(rt *rapid.T) {
		records := drawRecords(rt)
		for i := range records { // no conditions: Inspect must accept
			records[i].Headers = slices.DeleteFunc(records[i].Headers, func(h kmsg.Header) bool { return h.Key == "expected-offset" })
		}
		sent := buildBatch(t, CodecNone, records)
		h, err := ParseBatch(sent)
		if err != nil {
			rt.Fatal(err)
		}
		inspection, err := in.Inspect(h, sent)
		if err != nil {
			rt.Fatal(err)
		}
		var set []byte
		first := int64(rapid.Int32Range(0, 1000).Draw(rt, "offset"))
		for rest := records; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "cut")
			cut := slices.Clone(rest[:n])
			for i := range cut {
				cut[i].TimestampDelta64++
			}
			codec := int8(rapid.IntRange(0, 4).Draw(rt, "codec"))
			set = append(set, storeBatch(buildBatch(t, codec, cut), first+int64(len(records)-len(rest)))...)
			rest = rest[n:]
		}
		got, err := walkAll(set)
		if err != nil || len(got) != len(records) {
			rt.Fatalf("got %d records of %d, %v", len(got), len(records), err)
		}
		for i, r := range got {
			ids := naiveVerdict(records[i:i+1], EncodingDecimal)
			if r.Offset != first+int64(i) || r.Digest != inspection.Digests[i] || r.HasAppendID != ids.allID || r.Control {
				rt.Fatalf("record %d: got %+v; want offset %d, digest %x, append-id %t", i, r, first+int64(i), inspection.Digests[i], ids.allID)
			}
		}
	})
}

func TestWalkStored(t *testing.T) {
	one := storeBatch(buildBatch(t, CodecNone, recordsExpecting("10", "11")), 10)
	two := storeBatch(buildBatch(t, CodecLZ4, recordsExpecting("12")), 12)
	marker := storeBatch(sealBatch([]byte{32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 0, 0}, 0x30, 1), 13)
	sparse := storeBatch(buildBatch(t, CodecNone, recordsExpecting("20", "21")), 20)
	binary.BigEndian.PutUint32(sparse[23:], 9)
	fixCRC(sparse)
	emptied := bytes.Clone(sparse[:61])
	binary.BigEndian.PutUint32(emptied[8:], 49)
	binary.BigEndian.PutUint32(emptied[57:], 0)
	fixCRC(emptied)
	damaged := bytes.Clone(two)
	damaged[len(damaged)-1]++
	old := bytes.Clone(two)
	old[16] = 1
	join := func(batches ...[]byte) []byte { return bytes.Join(batches, nil) }
	backwards := storeBatch(two, 11)
	repeated := sealBatch(append(encodeRecords(make([]kmsg.Record, 1)), encodeRecords(make([]kmsg.Record, 1))...), 0, 2)

	cases := []struct {
		name    string
		set     []byte
		offsets []int64
		want    error
	}{
		{"nothing", nil, nil, nil},
		{"one", one, []int64{10, 11}, nil},
		{"two", join(one, two), []int64{10, 11, 12}, nil},
		{"last one cut", join(one, two[:len(two)-1]), []int64{10, 11}, nil},
		{"only one, cut", one[:20], nil, nil},
		{"marker", join(two, marker), []int64{12, 13}, nil},
		{"emptied between", join(one, emptied, storeBatch(two, 30)), []int64{10, 11, 30}, nil},
		{"damaged", join(one, damaged), []int64{10, 11}, ErrBadCRC},
		{"old format", join(one, old, two), []int64{10, 11}, ErrOldFormat},
		{"offsets go backwards", join(one, backwards), []int64{10, 11}, ErrCorrupt},
		{"offset deltas repeat", repeated, []int64{0}, ErrCorrupt},
		{"length negative", join(one, make([]byte, 8), []byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 60)), []int64{10, 11}, ErrCorrupt},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := walkAll(c.set)
			var offsets []int64
			for _, r := range got {
				offsets = append(offsets, r.Offset)
				if control := r.Offset == 13; r.Control != control || (r.Digest == 0) != control {
					t.Errorf("offset %d: control %t, digest %x", r.Offset, r.Control, r.Digest)
				}
				if r.Batch.BaseOffset > r.Offset || r.Batch.LeaderEpoch != 7 && r.Batch.BaseOffset != 0 {
					t.Errorf("offset %d: batch %+v", r.Offset, r.Batch)
				}
			}
			if !slices.Equal(offsets, c.offsets) || !errors.Is(err, c.want) {
				t.Errorf("got offsets %v, %v; want %v, %v", offsets, err, c.offsets, c.want)
			}
		})
	}

	n := 0
	err := WalkStored(join(one, damaged), HeaderNames{}, testMaxDecompressed, func(StoredRecord) bool { n++; return n < 2 })
	if n != 2 || err != nil {
		t.Errorf("stopped after %d records with %v, want 2 and none", n, err)
	}
	large := storeBatch(buildBatch(t, CodecZstd, make([]kmsg.Record, 1000)), 5)
	if err := WalkStored(large, HeaderNames{}, 1000, func(StoredRecord) bool { return true }); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large: got %v, want %v", err, ErrTooLarge)
	}
}

func TestWalkStoredAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool forget at random")
	}
	set := storeBatch(buildBatch(t, CodecSnappy, recordsExpecting("1", "2", "3")), 1)
	var sum uint64
	got := testing.AllocsPerRun(200, func() {
		if err := WalkStored(set, HeaderNames{}, testMaxDecompressed, func(r StoredRecord) bool { sum += r.Digest; return true }); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations a walk, want 0", got)
	}
}
