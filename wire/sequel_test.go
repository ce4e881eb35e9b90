package wire

import (
	"errors"
	"fmt"
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
		"more digits":          edit(count(7, 200), nothing),
		"from zero":            edit(count(0, 1200), nothing),
		"nines":                edit(count(999_999_995, 10), nothing),
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
			}
		}
	}
}
