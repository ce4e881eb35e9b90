package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// hundredBytes returns n records with values of 100 bytes, of words, as a
// compressed topic has them. conditional is how many of them, from the first on,
// have the expected-offset header.
func hundredBytes(n, conditional int) []kmsg.Record {
	words := []string{"order", "placed", "customer", "line", "amount", "price", "EUR", "shipped", "2024-05-06", "true", "null", "id"}
	random := rand.New(rand.NewPCG(1, 2))
	records := make([]kmsg.Record, n)
	for i := range records {
		var value []byte
		for len(value) < 100 {
			value = fmt.Appendf(value, "%s:%d,", words[random.IntN(len(words))], random.IntN(10_000))
		}
		records[i] = kmsg.Record{TimestampDelta64: int64(i / 50), Key: fmt.Append(nil, "order-", random.IntN(100)), Value: value[:100]}
		if i < conditional {
			records[i].Headers = []kmsg.Header{header("expected-offset", fmt.Append(nil, 1_000_000+i))}
		}
	}
	return records
}

// BenchmarkInspectThousand compares the whole inspection of a batch of 1,000
// records of 100 bytes with its decompression alone, by the same pooled code, and with
// the walk alone. A condition on the first record only is refused, after the same work.
func BenchmarkInspectThousand(b *testing.B) {
	const n = 1000
	kinds := []struct {
		name        string
		conditional int
	}{{"all", n}, {"first", 1}, {"none", 0}}
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		for _, kind := range kinds {
			batch := buildBatch(b, codec, hundredBytes(n, kind.conditional))
			in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
			name := codecNames[codec] + "/" + kind.name
			b.Run(name+"/decompress", func(b *testing.B) {
				b.SetBytes(int64(len(batch)))
				for b.Loop() {
					var err error
					if in.decompressed, err = Decompress(in.decompressed, codec, batch[batchHeaderSize:], testMaxDecompressed); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/whole", func(b *testing.B) {
				b.SetBytes(int64(len(batch)))
				b.ReportAllocs()
				for b.Loop() {
					h, err := ParseBatch(batch)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := in.InspectWithin(h, batch, testMaxDecompressed); err != nil && kind.name != "first" {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFloor is the least that reading 1,000 records can cost: to step from length to
// length, and to hash key and value.
func BenchmarkFloor(b *testing.B) {
	const n = 1000
	for _, conditional := range []int{n, 0} {
		records := hundredBytes(n, conditional)
		payload := encodeRecords(records)
		headers := 0 // how long they are
		if conditional > 0 {
			headers = len(encodeRecords(records[:1])) - len(encodeRecords(hundredBytes(1, 0))) + 1
		}
		var contents [][]byte
		b.Run(fmt.Sprintf("%d conditional/lengths", conditional), func(b *testing.B) {
			for b.Loop() {
				for at := 0; at < len(payload); {
					u, size := shortVarint(payload, at)
					at += size + int(u>>1)
				}
			}
		})
		for at := 0; at < len(payload); {
			u, size := shortVarint(payload, at)
			at += size + int(u>>1)
			contents = append(contents, payload[at-int(u>>1)+4:at-headers])
		}
		b.Run(fmt.Sprintf("%d conditional/digests", conditional), func(b *testing.B) {
			for b.Loop() {
				for _, content := range contents {
					hashOf(content, 0)
				}
			}
		})
	}
}
