package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkFirstHeader compares what an inspector finds among the headers of a batch's first
// record, for each name that there is, with what kmsg has decoded.
func checkFirstHeader(t *testing.T, in *Inspector, first kmsg.Record) {
	t.Helper()
	for _, name := range append([]string{"not there"}, names(first)...) {
		var want []byte
		if i := slices.IndexFunc(first.Headers, func(h kmsg.Header) bool { return h.Key == name }); i >= 0 {
			want = first.Headers[i].Value
		}
		if got := in.FirstHeader(name); !bytes.Equal(got, want) {
			t.Fatalf("header %q of the first record: got %q, want %q", name, got, want)
		}
	}
}

func names(r kmsg.Record) []string {
	var all []string
	for _, h := range r.Headers {
		all = append(all, h.Key)
	}
	return all
}

func TestFirstHeader(t *testing.T) {
	records := recordsExpecting("3", "4")
	records[0].Headers = append(records[0].Headers, header("b", []byte("first")), header("b", []byte("second")), header("n", nil))
	records[1].Headers = append(records[1].Headers, header("only in the second", []byte("v")))
	for codec := range codecNames {
		batch := sealBatch(compress(t, codec, encodeRecords(records)), int16(codec), 2)
		h, err := ParseBatch(batch)
		if err != nil {
			t.Fatal(err)
		}
		in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
		if _, err := in.Inspect(h, batch); err != nil {
			t.Fatal(err)
		}
		checkFirstHeader(t, in, records[0])
		if got := in.FirstHeader("only in the second"); got != nil {
			t.Errorf("%v: got %q of the second record, want nothing", codec, got)
		}
		if allocations := testing.AllocsPerRun(10, func() { in.FirstHeader("b") }); allocations != 0 {
			t.Errorf("%v: got %v allocations, want none", codec, allocations)
		}
		in.Shrink(0)
		if got := in.FirstHeader("b"); got != nil {
			t.Errorf("%v: got %q after Shrink, want nothing", codec, got)
		}
	}
}

// Whatever is cut off, nothing is read beyond the end.
func TestFirstHeaderOfWhatIsCutOff(t *testing.T) {
	records := recordsExpecting("3")
	records[0].Headers = append(records[0].Headers, header("b", []byte("value")))
	whole := encodeRecords(records)
	in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
	for n := range len(whole) {
		in.payload = whole[:n:n]
		if got := in.FirstHeader("b"); got != nil {
			t.Errorf("%d bytes: got %q, want nothing", n, got)
		}
	}
}
