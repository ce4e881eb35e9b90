package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestBatchesThatDoNotGoOn: records that go on as foretold for a while, and then do
// not; the naive rules say what becomes of each batch.
func TestBatchesThatDoNotGoOn(t *testing.T) {
	count := func(from, n int) (values []string) {
		for i := range n {
			values = append(values, fmt.Sprint(from+i))
		}
		return values
	}
	edit := func(values []string, f func(records []kmsg.Record)) []kmsg.Record {
		records := recordsExpecting(values...)
		f(records)
		return records
	}
	nothing := func([]kmsg.Record) {}
	for name, records := range map[string][]kmsg.Record{
		"more digits":        edit(count(7, 200), nothing),
		"from zero":          edit(count(0, 1200), nothing),
		"nines":              edit(count(999_999_995, 10), nothing),
		"carry to the front": edit([]string{"0099999998", "0099999999", "0100000000", "0100000001"}, nothing),
		"many":               edit(count(1_000_000_000, shortDelta+500), nothing), // deltas of three bytes
		"timestamps": edit(count(5, 6), func(r []kmsg.Record) {
			r[2].TimestampDelta64, r[3].TimestampDelta64, r[4].TimestampDelta64 = -40, shortDelta-1, 5000
		}),
		"keys and long values": edit(count(5, 6), func(r []kmsg.Record) {
			r[1].Key, r[1].Value = nil, bytes.Repeat([]byte("v"), digestedInPieces+1)
			r[2].Key, r[2].Value = []byte{}, nil
			r[3].Key, r[3].Value = []byte("k"), bytes.Repeat([]byte("w"), shortDelta)
			r[4].Key, r[4].Value = bytes.Repeat([]byte("l"), 100), []byte{}
		}),
		"zeros in front":       edit([]string{"0008", "0009", "0010", "0011"}, nothing),
		"fewer zeros":          edit([]string{"0008", "009", "10", "11"}, nothing),
		"19 digits":            edit([]string{"9223372036854775804", "9223372036854775805", "9223372036854775806"}, nothing),
		"the largest and more": edit([]string{"9223372036854775805", "9223372036854775806", "9223372036854775807"}, nothing),
		"19 digits by zeros":   edit([]string{"0000000000000000009", "0000000000000000010", "0000000000000000011"}, nothing),
		"gap":                  edit([]string{"5", "6", "7", "9", "10"}, nothing),
		"stands still":         edit([]string{"5", "6", "6", "7"}, nothing),
		"end":                  edit([]string{"5", "6", "end", "7"}, nothing),
		"end all along":        edit([]string{"end", "end", "end"}, nothing),
		"no digit":             edit([]string{"5", "6", ":", "8"}, nothing),
		"without":              edit(count(5, 5), func(r []kmsg.Record) { r[3].Headers = nil }),
		"another header":       edit(count(5, 6), func(r []kmsg.Record) { r[3].Headers = append(r[3].Headers, header("x", nil)) }),
		"append-id":            edit(count(5, 6), func(r []kmsg.Record) { r[3].Headers = append(r[3].Headers, header("append-id", []byte("a"))) }),
		"append-id from there": edit(count(5, 3), func(r []kmsg.Record) { r[2].Headers = append(r[2].Headers, header("append-id", []byte("a"))) }),
		"twice":                edit(count(5, 5), func(r []kmsg.Record) { r[3].Headers = append(r[3].Headers, r[3].Headers[0]) }),
		"first without":        edit(count(5, 5), func(r []kmsg.Record) { r[0].Headers = nil }),
		"another name":         edit(count(5, 5), func(r []kmsg.Record) { r[3].Headers[0].Key = "expected_offset" }),
		"long value":           edit([]string{strings.Repeat("0", 70) + "1", "2", "3"}, nothing),
	} {
		for _, encoding := range []Encoding{EncodingDecimal, EncodingInt64} {
			batch := buildBatch(t, CodecNone, records)
			h, err := ParseBatch(batch)
			if err != nil {
				t.Fatal(err)
			}
			want := naiveVerdict(records, encoding)
			got, err := NewInspector(HeaderNames{}, encoding, testMaxDecompressed).Inspect(h, batch)
			var fault *RecordError
			switch {
			case errors.As(err, &fault):
				if *fault != want.fault {
					t.Errorf("%s, %v: got fault %v, want %v", name, encoding, fault, &want.fault)
				}
			case err != nil || want.fault.Reason != 0 || got.Kind != want.kind || got.Expected != want.expected:
				t.Errorf("%s, %v: got %+v, %v; want %+v", name, encoding, got, err, want)
			default:
				checkRecords(t, name, &got, records)
			}
		}
	}
}

// checkRecords compares digests and timestamps with the records.
func checkRecords(t *testing.T, name string, got *Inspection, records []kmsg.Record) {
	t.Helper()
	oldest, newest := int64(0), int64(0)
	for i, r := range records {
		if got.Digests[i] != naiveDigest(r) {
			t.Errorf("%s: record %d: digest %x, want %x", name, i, got.Digests[i], naiveDigest(r))
		}
		oldest, newest = min(oldest, r.TimestampDelta64), max(newest, r.TimestampDelta64)
	}
	if got.MinTimestamp-testFirstTimestamp != oldest || got.MaxTimestamp-testFirstTimestamp != newest {
		t.Errorf("%s: timestamps %d to %d from the first, want %d to %d", name,
			got.MinTimestamp-testFirstTimestamp, got.MaxTimestamp-testFirstTimestamp, oldest, newest)
	}
}

// TestTimestampsThatOverflowAreFoundBehindOthers: records that go on as foretold do not
// hide that a timestamp has no room.
func TestTimestampsThatOverflowAreFoundBehindOthers(t *testing.T) {
	for _, c := range []struct{ first, delta int64 }{{math.MaxInt64 - 7, 8}, {math.MinInt64 + 7, -8}} {
		records := recordsExpecting("5", "6", "7")
		records[2].TimestampDelta64 = c.delta
		batch := buildBatch(t, CodecNone, records)
		binary.BigEndian.PutUint64(batch[batchFirstTimePos:], uint64(c.first))
		if _, err := inspect(fixCRC(batch)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("timestamp %d%+d: got %v, want %v", c.first, c.delta, err, ErrCorrupt)
		}
	}
}

// TestDamageBehindForetoldRecords: what goes on as foretold and then has another number,
// or does not end where it should, is found.
func TestDamageBehindForetoldRecords(t *testing.T) {
	for name, damage := range map[string]func([]kmsg.Record){
		"a number left out": func(r []kmsg.Record) { r[3].OffsetDelta++ },
		"a number again":    func(r []kmsg.Record) { r[3].OffsetDelta-- },
		"too long":          func(r []kmsg.Record) { r[3].Length++ },
		"too short":         func(r []kmsg.Record) { r[3].Length-- },
		"negative length":   func(r []kmsg.Record) { r[3].Length = -1 },
	} {
		records := recordsExpecting("5", "6", "7", "8", "9")
		var payload []byte
		for i := range records {
			records[i].OffsetDelta = int32(i)
			records[i].Length = int32(len(records[i].AppendTo(nil)) - 1)
		}
		damage(records)
		for i := range records {
			payload = records[i].AppendTo(payload)
		}
		if _, err := inspect(sealBatch(payload, 0, int32(len(records)))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", name, err, ErrCorrupt)
		}
	}
}
