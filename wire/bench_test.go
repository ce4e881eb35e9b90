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
	for _, size := range []int{228, 2000, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			batch := sealBatch(make([]byte, size-batchHeaderSize), 0, 1)
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				Stamp(batch, 1, 0, 7, testFirstTimestamp)
			}
		})
	}
}

// BenchmarkUncompressed is all that is done with a batch that is fenced: verified,
// inspected and stamped.
func BenchmarkUncompressed(b *testing.B) {
	for _, shape := range []struct{ records, size int }{{1024, 1 << 10}, {1, 64 << 10}, {1, 200}} {
		records := make([]kmsg.Record, shape.records)
		for i := range records {
			records[i] = kmsg.Record{Value: make([]byte, shape.size), Headers: []kmsg.Header{header("expected-offset", fmt.Append(nil, 100_000+i))}}
		}
		batch := buildBatch(b, CodecNone, records)
		in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
		b.Run(fmt.Sprintf("%dx%dB", shape.records, shape.size), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				h, err := ParseBatch(batch)
				if err != nil {
					b.Fatal(err)
				}
				found, err := in.InspectWithin(h, batch, testMaxDecompressed)
				if err != nil {
					b.Fatal(err)
				}
				Stamp(batch, 1, 0, 7, found.MaxTimestamp)
			}
		})
	}
}

// BenchmarkParseProduce reads a request, and makes one of half of it.
func BenchmarkParseProduce(b *testing.B) {
	for _, partitions := range []int{1, 250} {
		req := kmsg.NewPtrProduceRequest()
		req.Version = 9
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: "orders"})
		var keep []int
		for i := range partitions {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(i), Records: make([]byte, 300)})
			if i%2 == 0 {
				keep = append(keep, i)
			}
		}
		body := req.AppendTo(nil)
		var p Produce
		b.Run(fmt.Sprintf("parse/%d", partitions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Parse(body, 9); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("frame/%d", partitions), func(b *testing.B) {
			var pieces [2][]byte
			b.ReportAllocs()
			for b.Loop() {
				p.GatherFrame(pieces[:0], []byte("client"), 1, -1, 1, keep, len(body))
			}
		})
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
