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
	"pgregory.net/rapid"
)

const testMaxDecompressed = 1 << 20

// inspect parses and inspects a batch by a new Inspector.
func inspect(batch []byte) (Inspection, error) {
	h, err := ParseBatch(batch)
	if err != nil {
		return Inspection{}, err
	}
	return NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed).Inspect(h, batch)
}

func TestInspectConditions(t *testing.T) {
	long := strings.Repeat("0", 18)
	none := make([]kmsg.Record, 2)
	withIDs := func(records []kmsg.Record, ids ...[][]byte) []kmsg.Record {
		for i, values := range ids {
			for _, v := range values {
				records[i].Headers = append(records[i].Headers, header("append-id", v))
			}
		}
		return records
	}
	id := func(vs ...[]byte) [][]byte { return vs }
	a, b, empty, null := []byte("a"), []byte("b"), []byte{}, []byte(nil)
	twice := recordsExpecting("1", "2")
	twice[1].Headers = append(twice[1].Headers, header("expected-offset", []byte("2")))
	nullOffset := recordsExpecting("1", "2")
	nullOffset[1].Headers[0].Value = nil
	cases := []struct {
		name    string
		records []kmsg.Record
		kind    Kind
		offset  int64
		fault   string
	}{
		{"none", none, Unconditional, 0, ""},
		{"one", recordsExpecting("41"), Conditional, 41, ""},
		{"several", recordsExpecting("0", "1", "2"), Conditional, 0, ""},
		{"leading zeros", recordsExpecting(long+"7", "8"), Conditional, 7, ""},
		{"largest", recordsExpecting("9223372036854775805", "9223372036854775806"), Conditional, math.MaxInt64 - 2, ""},
		{"end", recordsExpecting("end", "end"), AtEnd, 0, ""},
		{"empty", recordsExpecting("1", ""), 0, 0, "record 1: expected-offset is empty"},
		{"null", nullOffset, 0, 0, "record 1: expected-offset is empty"},
		{"minus", recordsExpecting("-1"), 0, 0, "record 0: expected-offset has a sign; only decimal digits are allowed"},
		{"plus", recordsExpecting("+1"), 0, 0, "record 0: expected-offset has a sign; only decimal digits are allowed"},
		{"space", recordsExpecting(" 1"), 0, 0, `record 0: expected-offset is neither a decimal number nor "end"`},
		{"hexadecimal", recordsExpecting("1f"), 0, 0, `record 0: expected-offset is neither a decimal number nor "end"`},
		{"digits of another script", recordsExpecting("١"), 0, 0, `record 0: expected-offset is neither a decimal number nor "end"`},
		{"END", recordsExpecting("END"), 0, 0, `record 0: expected-offset is neither a decimal number nor "end"`},
		{"2^63", recordsExpecting("9223372036854775808"), 0, 0, "record 0: expected-offset is larger than any offset a record can have"},
		{"2^63-1", recordsExpecting("9223372036854775806", "9223372036854775807"), 0, 0, "record 1: expected-offset is larger than any offset a record can have"},
		{"2^64+1", recordsExpecting("18446744073709551617"), 0, 0, "record 0: expected-offset is larger than any offset a record can have"},
		{"20 digits", recordsExpecting(long + "01"), 0, 0, "record 0: expected-offset is larger than any offset a record can have"},
		{"twice", twice, 0, 0, "record 1: expected-offset is given more than once"},
		{"last without", append(recordsExpecting("1"), kmsg.Record{}), 0, 0, "record 1: expected-offset is missing, though other records of the batch have it"},
		{"first without", append(make([]kmsg.Record, 2), recordsExpecting("1")...), 0, 0, "record 0: expected-offset is missing, though other records of the batch have it"},
		{"offset, then end", recordsExpecting("1", "end"), 0, 0, `record 1: expected-offset mixes offsets and "end" in one batch`},
		{"end, then offset", recordsExpecting("end", "1"), 0, 0, `record 1: expected-offset mixes offsets and "end" in one batch`},
		{"gap", recordsExpecting("1", "3"), 0, 0, "record 1: expected-offset is not one more than that of the record before"},
		{"same again", recordsExpecting("1", "2", "2"), 0, 0, "record 2: expected-offset is not one more than that of the record before"},
		{"first fault counts", recordsExpecting("1", "x", "", "end"), 0, 0, `record 1: expected-offset is neither a decimal number nor "end"`},

		{"append-id on all", withIDs(recordsExpecting("1", "2"), id(a), id(b)), Conditional, 1, ""},
		{"append-id with end", withIDs(recordsExpecting("end"), id(a)), AtEnd, 0, ""},
		{"append-id on the first only", withIDs(recordsExpecting("1", "2"), id(a)), 0, 0, "record 1: append-id is missing, though other records of the batch have it"},
		{"append-id on the last only", withIDs(recordsExpecting("1", "2"), id(), id(b)), 0, 0, "record 0: append-id is missing, though other records of the batch have it"},
		{"append-id empty", withIDs(recordsExpecting("1", "2"), id(a), id(empty)), 0, 0, "record 1: append-id is empty"},
		{"append-id null", withIDs(recordsExpecting("1", "2"), id(null), id(b)), 0, 0, "record 0: append-id is empty"},
		{"append-id twice", withIDs(recordsExpecting("1", "2"), id(a), id(b, b)), 0, 0, "record 1: append-id is given more than once"},
		{"append-id without condition", withIDs(make([]kmsg.Record, 2), id(a, empty)), Unconditional, 0, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := inspect(buildBatch(t, CodecNone, c.records))
			if c.fault != "" {
				var fault *RecordError
				if !errors.As(err, &fault) {
					t.Fatalf("got %+v, %v; want a RecordError", got, err)
				}
				// The text is read by people: here it is the thing tested.
				if fault.Error() != c.fault {
					t.Errorf("got  %s\nwant %s", fault, c.fault)
				}
				return
			}
			if err != nil || got.Kind != c.kind || got.Expected != c.offset {
				t.Errorf("got %v %d, %v; want %v %d", got.Kind, got.Expected, err, c.kind, c.offset)
			}
		})
	}
}

// int64Text is an expected-offset in EncodingInt64.
func int64Text(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func TestInspectInt64Conditions(t *testing.T) {
	const notInt64 = `expected-offset is neither 8 bytes, a big-endian number, nor "end"`
	for _, c := range []struct {
		name    string
		records []kmsg.Record
		kind    Kind
		offset  int64
		fault   string
	}{
		{"none", make([]kmsg.Record, 2), Unconditional, 0, ""},
		{"zero", recordsExpecting(int64Text(0)), Conditional, 0, ""},
		{"several", recordsExpecting(int64Text(255), int64Text(256)), Conditional, 255, ""},
		{"largest", recordsExpecting(int64Text(math.MaxInt64 - 1)), Conditional, math.MaxInt64 - 1, ""},
		{"digits that are 8 bytes", recordsExpecting("00000041"), Conditional, 0x3030303030303431, ""},
		{"end", recordsExpecting("end", "end"), AtEnd, 0, ""},
		{"empty", recordsExpecting(""), 0, 0, "record 0: expected-offset is empty"},
		{"decimal", recordsExpecting("41"), 0, 0, "record 0: " + notInt64},
		{"int32", recordsExpecting("\x00\x00\x00\x01"), 0, 0, "record 0: " + notInt64},
		{"nine bytes", recordsExpecting(int64Text(1), int64Text(2)+"\x00"), 0, 0, "record 1: " + notInt64},
		{"seven bytes", recordsExpecting(int64Text(1)[1:]), 0, 0, "record 0: " + notInt64},
		{"END", recordsExpecting("END"), 0, 0, "record 0: " + notInt64},
		{"-1", recordsExpecting(int64Text(-1)), 0, 0, "record 0: expected-offset is negative"},
		{"least", recordsExpecting(int64Text(math.MinInt64)), 0, 0, "record 0: expected-offset is negative"},
		{"2^63-1", recordsExpecting(int64Text(math.MaxInt64-1), int64Text(math.MaxInt64)), 0, 0, "record 1: expected-offset is larger than any offset a record can have"},
		{"little-endian", recordsExpecting("\x01\x00\x00\x00\x00\x00\x00\x00", "\x02\x00\x00\x00\x00\x00\x00\x00"), 0, 0, "record 1: expected-offset is not one more than that of the record before"},
		{"offset, then end", recordsExpecting(int64Text(1), "end"), 0, 0, `record 1: expected-offset mixes offsets and "end" in one batch`},
		{"gap", recordsExpecting(int64Text(1), int64Text(3)), 0, 0, "record 1: expected-offset is not one more than that of the record before"},
		{"last without", append(recordsExpecting(int64Text(1)), kmsg.Record{}), 0, 0, "record 1: expected-offset is missing, though other records of the batch have it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			batch := buildBatch(t, CodecNone, c.records)
			h, err := ParseBatch(batch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewInspector(HeaderNames{}, EncodingInt64, testMaxDecompressed).Inspect(h, batch)
			var fault *RecordError
			switch {
			case errors.As(err, &fault):
				if fault.Error() != c.fault {
					t.Errorf("got  %s\nwant %s", fault, c.fault)
				}
			case err != nil || c.fault != "" || got.Kind != c.kind || got.Expected != c.offset:
				t.Errorf("got %v %d, %v; want %v %d or fault %q", got.Kind, got.Expected, err, c.kind, c.offset, c.fault)
			}
		})
	}
}

func TestInspectHeaderNames(t *testing.T) {
	records := []kmsg.Record{{Headers: []kmsg.Header{
		header("expected-offset", []byte("not for us")), header("place", []byte("7")), header("once", []byte("a")),
	}}}
	batch := buildBatch(t, CodecNone, records)
	h, err := ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	in := NewInspector(HeaderNames{ExpectedOffset: "place", AppendID: "once"}, EncodingDecimal, testMaxDecompressed)
	got, err := in.Inspect(h, batch)
	if err != nil || got.Kind != Conditional || got.Expected != 7 || !got.AllAppendIDs {
		t.Errorf("got %+v, %v; want the condition 7 with an append-id", got, err)
	}
	batch = buildBatch(t, CodecNone, append(records, kmsg.Record{}))
	h, _ = ParseBatch(batch)
	_, err = in.Inspect(h, batch)
	var fault *RecordError
	if !errors.As(err, &fault) || *fault != (RecordError{1, FaultMissing, "place"}) {
		t.Errorf("got %v, want record 1 without place", err)
	}
}

func TestInspectTimestamps(t *testing.T) {
	records := make([]kmsg.Record, 3)
	records[0].TimestampDelta64, records[1].TimestampDelta64, records[2].TimestampDelta64 = 7, -3, 1
	got, err := inspect(buildBatch(t, CodecNone, records))
	if err != nil || got.MaxTimestamp != testFirstTimestamp+7 || got.MinTimestamp != testFirstTimestamp-3 {
		t.Errorf("got %d to %d, %v", got.MinTimestamp, got.MaxTimestamp, err)
	}
	for _, c := range []struct{ first, delta int64 }{{1, math.MaxInt64}, {-2, math.MinInt64}} {
		records[0].TimestampDelta64 = c.delta
		batch := buildBatch(t, CodecNone, records[:1])
		binary.BigEndian.PutUint64(batch[27:], uint64(c.first))
		if _, err := inspect(fixCRC(batch)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("timestamp %d%+d: got %v, want %v", c.first, c.delta, err, ErrCorrupt)
		}
	}
	records[0].TimestampDelta64 = -1
	batch := buildBatch(t, CodecNone, records[:1])
	binary.BigEndian.PutUint64(batch[27:], 0)
	if got, err := inspect(fixCRC(batch)); err != nil || got.MinTimestamp != -1 || got.MaxTimestamp != -1 {
		t.Errorf("timestamp −1: got %d to %d, %v", got.MinTimestamp, got.MaxTimestamp, err)
	}
}

func TestInspectCorruptRecords(t *testing.T) {
	record := func(body ...byte) []byte { return append(binary.AppendVarint(nil, int64(len(body))), body...) }
	minimal := record(0, 0, 0, 1, 1, 0)
	cases := []struct {
		name    string
		payload []byte
		count   int32
	}{
		{"no bytes", nil, 1},
		{"fewer records than said", minimal, 2},
		{"more bytes than records", append(bytes.Clone(minimal), 0), 1},
		{"another record behind", append(bytes.Clone(minimal), minimal...), 1},
		{"count beyond the bytes", minimal, math.MaxInt32},
		{"length beyond the bytes", []byte{0x7e, 0, 0, 0, 1, 1, 0}, 1},
		{"length negative", []byte{0x01, 0, 0, 0, 1, 1, 0}, 1},
		{"length less than the record", []byte{0x0a, 0, 0, 0, 1, 1, 0}, 1},
		{"length more than the record", record(0, 0, 0, 1, 1, 0, 0), 1},
		{"length zero", append([]byte{0}, make([]byte, 6)...), 1},
		{"offset delta not 0", record(0, 0, 2, 1, 1, 0), 1},
		{"offset deltas repeat", append(bytes.Clone(minimal), minimal...), 2},
		{"offset delta negative", record(0, 0, 1, 1, 1, 0), 1},
		{"key beyond the record", record(0, 0, 0, 0x10, 1, 0), 1},
		{"key of 2 GiB", record(0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0), 1},
		{"value beyond the record", record(0, 0, 0, 1, 0x10, 0), 1},
		{"header count negative", record(0, 0, 0, 1, 1, 1), 1},
		{"header count beyond the record", record(0, 0, 0, 1, 1, 4, 0, 1), 1},
		{"header count of 2^31", record(0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), 1},
		{"header key null", record(0, 0, 0, 1, 1, 2, 1, 1), 1},
		{"header key beyond the record", record(0, 0, 0, 1, 1, 2, 0x10, 1), 1},
		{"header value beyond the record", record(0, 0, 0, 1, 1, 2, 0, 0x10), 1},
		{"varint of 36 bits", record(0, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 0), 1},
		{"varint of six bytes", record(0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0), 1},
		{"varlong of eleven bytes", record(0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 1, 1, 0), 1},
		{"varint without end", record(0, 0, 0, 1, 1, 0x80), 1},
	}
	if _, err := inspect(sealBatch(minimal, 0, 1)); err != nil {
		t.Fatalf("the batch that the cases damage: %v", err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for codec := range codecNames {
				batch := sealBatch(compress(t, codec, c.payload), int16(codec), c.count)
				if _, err := inspect(batch); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: got %v, want %v", codecNames[codec], err, ErrCorrupt)
				}
			}
		})
	}
	// A fault in the headers does not hide that the batch is corrupt.
	damaged := append(encodeRecords(recordsExpecting("x")), 0)
	if _, err := inspect(sealBatch(damaged, 0, 1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("fault, then damage: got %v, want %v", err, ErrCorrupt)
	}
	for _, codec := range []int16{5, 6, 7} {
		if _, err := inspect(sealBatch(minimal, codec, 1)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("codec %d: got %v, want %v", codec, err, ErrCorrupt)
		}
	}
}

func TestDigestIsOfContentNotOfEncoding(t *testing.T) {
	canonical := []byte{0, 0, 0, 2, 'k', 1, 4, 2, 'h', 1, 2, 'g', 0}
	overlong := []byte{0, 0, 0, 0x82, 0, 'k', 0x81, 0x80, 0, 0x84, 0, 0x82, 0, 'h', 0x81, 0, 0x82, 0, 'g', 0x80, 0}
	otherNull := []byte{0, 0, 0, 2, 'k', 3, 4, 2, 'h', 5, 2, 'g', 0}
	digest := func(body []byte) uint64 {
		t.Helper()
		payload := append(binary.AppendVarint(nil, int64(len(body))), body...)
		got, err := inspect(sealBatch(payload, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		return got.Digests[0]
	}
	want := digest(canonical)
	if got := digest(overlong); got != want {
		t.Errorf("overlong varints: digest %x, want %x", got, want)
	}
	if got := digest(otherNull); got != want {
		t.Errorf("null as another negative length: digest %x, want %x", got, want)
	}
	empty := bytes.Clone(canonical)
	empty[5] = 0
	if got := digest(empty); got == want {
		t.Error("an empty value has the digest of a null one")
	}
}

// drawRecords draws records that often carry conditions, good and bad, and
// few enough distinct contents for records to be equal.
func drawRecords(t *rapid.T) []kmsg.Record {
	bytesOrNull := rapid.SampledFrom([][]byte{nil, {}, []byte("a"), []byte("b"), []byte("\x00\x01"), bytes.Repeat([]byte("z"), 100)})
	oddOffsets := [][]byte{nil, {}, []byte("end"), []byte("-1"), []byte("+"), []byte("0x1"), []byte("00000000000000000000"),
		[]byte("9223372036854775807"), []byte("9223372036854775806"), []byte("000"), []byte("3"), []byte("99999999999999999999999")}
	offset := rapid.IntRange(0, 3).Draw(t, "first")
	style := rapid.SampledFrom([]string{"plain", "offsets", "offsets and ids", "end"}).Draw(t, "style")
	// slip draws one of the careless client's mistakes; others make none.
	careless := rapid.Bool().Draw(t, "careless")
	slip := func(what string) bool { return careless && rapid.IntRange(0, 7).Draw(t, what) == 3 }
	add := func(r *kmsg.Record, name string, value []byte) {
		r.Headers = append(r.Headers, header(name, value))
		if slip("twice") {
			r.Headers = append(r.Headers, header(name, value))
		}
	}
	records := make([]kmsg.Record, rapid.IntRange(1, 6).Draw(t, "records"))
	for i := range records {
		r := &records[i]
		r.TimestampDelta64 = rapid.Int64Range(-1000, 1000).Draw(t, "timestamp")
		r.Key, r.Value = bytesOrNull.Draw(t, "key"), bytesOrNull.Draw(t, "value")
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			name := rapid.SampledFrom([]string{"", "x", "expected-offsets", "append-i"}).Draw(t, "name")
			r.Headers = append(r.Headers, header(name, bytesOrNull.Draw(t, "header")))
		}
		value := []byte(fmt.Sprint(offset + i))
		if style == "end" {
			value = []byte("end")
		}
		if slip("odd") {
			value = rapid.SampledFrom(oddOffsets).Draw(t, "offset")
		}
		if (style != "plain") != slip("forgotten") {
			add(r, "expected-offset", value)
		}
		id := []byte{'i', byte(i)}
		if slip("odd_id") {
			id = bytesOrNull.Draw(t, "id")
		}
		if (style == "offsets and ids") != slip("id_forgotten") {
			add(r, "append-id", id)
		}
	}
	return records
}

// TestInspectAgainstNaive compares with kmsg and a second implementation of
// the rules, in all codecs, by one reused Inspector.
func TestInspectAgainstNaive(t *testing.T) {
	in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		records := drawRecords(rt)
		codec := int8(rapid.IntRange(0, 4).Draw(rt, "codec"))
		batch := buildBatch(t, codec, records)
		h, err := ParseBatch(batch)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := in.Inspect(h, batch)
		want := naiveVerdict(records, EncodingDecimal)
		var fault *RecordError
		switch {
		case errors.As(err, &fault):
			seen["fault"]++
			if *fault != want.fault {
				rt.Fatalf("got fault %v, want %v", fault, &want.fault)
			}
			return
		case err != nil:
			rt.Fatal(err)
		case want.fault.Reason != 0:
			rt.Fatalf("got %+v, want fault %v", got, &want.fault)
		}
		seen[got.Kind.String()]++
		if got.Kind != want.kind || got.Expected != want.expected || got.AllAppendIDs != want.allID {
			rt.Fatalf("got %+v, want %+v", got, want)
		}
		if len(got.Digests) != len(records) {
			rt.Fatalf("got %d digests of %d records", len(got.Digests), len(records))
		}
		oldest, newest := int64(math.MaxInt64), int64(math.MinInt64)
		for i := range records {
			oldest = min(oldest, testFirstTimestamp+records[i].TimestampDelta64)
			newest = max(newest, testFirstTimestamp+records[i].TimestampDelta64)
			for j := range i {
				if equal := sameContent(records[i], records[j]); equal != (got.Digests[i] == got.Digests[j]) {
					rt.Fatalf("records %d and %d: equal %t, digests %x and %x", i, j, equal, got.Digests[i], got.Digests[j])
				}
			}
		}
		if got.MinTimestamp != oldest || got.MaxTimestamp != newest {
			rt.Fatalf("got timestamps %d to %d, want %d to %d", got.MinTimestamp, got.MaxTimestamp, oldest, newest)
		}
	})
	for _, outcome := range []string{"fault", "unconditional", "conditional", "at end"} {
		if seen[outcome] == 0 {
			t.Errorf("no batch drawn was %s", outcome)
		}
	}
}

func TestInspectAllocatesNothing(t *testing.T) {
	var values []string
	for i := range 200 {
		values = append(values, fmt.Sprint(1000+i))
	}
	for codec, name := range codecNames {
		if raceEnabled && (codec == CodecGzip || codec == CodecZstd) {
			continue // the race detector makes sync.Pool forget at random
		}
		records := recordsExpecting(values...)
		records[0].Headers = append(records[0].Headers, header(strings.Repeat("long name ", 10), nil))
		batch := buildBatch(t, codec, records)
		h, err := ParseBatch(batch)
		if err != nil {
			t.Fatal(err)
		}
		in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
		got := testing.AllocsPerRun(200, func() {
			if _, err := ParseBatch(batch); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Inspect(h, batch); err != nil {
				t.Fatal(err)
			}
			Stamp(batch, 1, 0, 7, testFirstTimestamp)
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a batch, want 0", name, got)
		}
	}
}

func TestInspectorForgetsHugeBatches(t *testing.T) {
	records := make([]kmsg.Record, keptBuffer/4)
	batch := buildBatch(t, CodecZstd, records)
	h, err := ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	in := NewInspector(HeaderNames{}, EncodingDecimal, 16<<20)
	if _, err := in.Inspect(h, batch); err != nil {
		t.Fatal(err)
	}
	small := buildBatch(t, CodecZstd, records[:1])
	h, _ = ParseBatch(small)
	if _, err := in.Inspect(h, small); err != nil {
		t.Fatal(err)
	}
	if got := cap(in.decompressed) + 8*cap(in.digests); got > 2*keptBuffer {
		t.Errorf("%d bytes kept after a huge batch, want at most %d", got, 2*keptBuffer)
	}
}
