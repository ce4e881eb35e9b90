package wire

import (
	"fmt"
	"math/rand/v2"
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

// BenchmarkProduceAnswer reads an answer, finds all of it and writes it anew.
func BenchmarkProduceAnswer(b *testing.B) {
	const version = 9
	for _, partitions := range []int{1, 16, 250} {
		for _, order := range []string{"same", "other"} {
			answer := sampleAnswer(version, 1, partitions)
			p := answer.Topics[0].Partitions
			if order == "other" {
				rand.New(rand.NewPCG(1, 2)).Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
			}
			body := answer.AppendTo(nil)
			b.Run(fmt.Sprintf("find/%d/%s", partitions, order), func(b *testing.B) {
				var a ProduceAnswer
				b.ReportAllocs()
				for b.Loop() {
					if err := a.Parse(body, version); err != nil {
						b.Fatal(err)
					}
					for n := range partitions {
						if _, ok := a.Find("orders-0", [16]byte{}, int32(n)); !ok {
							b.Fatal(n)
						}
					}
				}
			})
		}
		answer := sampleAnswer(version, 1, partitions)
		body := answer.AppendTo(nil)
		b.Run(fmt.Sprintf("kmsg/%d", partitions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				answer := kmsg.ProduceResponse{Version: version}
				if err := answer.ReadFrom(body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("write/%d", partitions), func(b *testing.B) {
			result := ProduceResult{BaseOffset: 7, LogAppendTime: -1}
			out := make([]byte, 0, 2*len(body))
			b.ReportAllocs()
			for b.Loop() {
				w := AppendProduceAnswer(out, version, 1)
				w.Topic("orders-0", [16]byte{}, partitions)
				for range partitions {
					w.Partition(&result)
				}
				w.End(0)
			}
		})
		b.Run(fmt.Sprintf("write by kmsg/%d", partitions), func(b *testing.B) {
			out := make([]byte, 0, 2*len(body))
			b.ReportAllocs()
			for b.Loop() {
				answer.AppendTo(out)
			}
		})
	}
}
