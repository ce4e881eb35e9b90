package wire

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// benchRecords returns n records of a realistic shape, all conditional.
func benchRecords(n int) []kmsg.Record {
	records := make([]kmsg.Record, n)
	for i := range records {
		records[i] = kmsg.Record{
			Key: fmt.Append(nil, "order-", i), Value: fmt.Append(nil, `{"order":`, i, `,"state":"placed","lines":[1,2,3]}`),
			Headers: []kmsg.Header{header("expected-offset", fmt.Append(nil, 100_000+i)), header("append-id", fmt.Append(nil, "writer-7/", i))},
		}
	}
	return records
}

func BenchmarkStamp(b *testing.B) {
	for _, payload := range []int{228 - 61, 70_000} {
		b.Run(fmt.Sprintf("%dB", payload+61), func(b *testing.B) {
			batch := sealBatch(make([]byte, payload), 0, 1)
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				Stamp(batch, 1, 0, 7, testFirstTimestamp)
			}
		})
	}
}

func BenchmarkParseProduce(b *testing.B) {
	body := sampleProduce(9, make([]byte, 300_000))
	var p Produce
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Parse(body, 9); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInspect(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for codec := CodecNone; codec <= CodecZstd; codec++ {
			b.Run(fmt.Sprintf("%d/%s", n, codecNames[codec]), func(b *testing.B) {
				batch := buildBatch(b, codec, benchRecords(n))
				h, err := ParseBatch(batch)
				if err != nil {
					b.Fatal(err)
				}
				in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := in.Inspect(h, batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
