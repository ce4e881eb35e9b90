package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// drawProduce draws a request, valid in its version, with duplicate topics,
// topics without partitions, null and empty records, and unknown tags.
func drawProduce(t *rapid.T, version int16) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	if version >= 3 && rapid.Bool().Draw(t, "transactional") {
		id := rapid.StringN(0, 8, -1).Draw(t, "transactional_id")
		req.TransactionID = &id
	}
	req.Acks = rapid.Int16().Draw(t, "acks")
	req.TimeoutMillis = rapid.Int32().Draw(t, "timeout")
	tags := func(t *rapid.T, tags *kmsg.Tags) {
		if version >= 9 && rapid.IntRange(0, 3).Draw(t, "tagged") == 0 {
			tags.Set(rapid.Uint32().Draw(t, "tag"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "tag_value"))
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topic := kmsg.NewProduceRequestTopic()
		if version >= 13 {
			copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic_id"))
		} else {
			topic.Topic = rapid.SampledFrom([]string{"", "a", "orders", "größe"}).Draw(t, "topic")
		}
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			partition := kmsg.NewProduceRequestTopicPartition()
			partition.Partition = rapid.Int32().Draw(t, "partition")
			if rapid.IntRange(0, 4).Draw(t, "null") > 0 {
				partition.Records = rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "records")
			}
			tags(t, &partition.UnknownTags)
			topic.Partitions = append(topic.Partitions, partition)
		}
		tags(t, &topic.UnknownTags)
		req.Topics = append(req.Topics, topic)
	}
	tags(t, &req.UnknownTags)
	return req
}

// flatten is what Parse should find in a request.
func flatten(req *kmsg.ProduceRequest) []ProducePartition {
	var out []ProducePartition
	for i, topic := range req.Topics {
		for _, partition := range topic.Partitions {
			p := ProducePartition{TopicID: topic.TopicID, Partition: partition.Partition, TopicIndex: i, Records: partition.Records}
			if req.Version < 13 {
				p.Topic = []byte(topic.Topic)
			}
			out = append(out, p)
		}
	}
	return out
}

// diffPartitions tells null records from empty ones, but not a nil slice of
// partitions from an empty one.
func diffPartitions(want, got []ProducePartition) string {
	if len(want) == 0 && len(got) == 0 {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(ProducePartition{}))
}

func TestProduceAgainstKmsg(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			var p Produce
			rapid.Check(t, func(t *rapid.T) {
				req := drawProduce(t, version)
				body := req.AppendTo(nil)
				if err := p.Parse(body, version); err != nil {
					t.Fatal(err)
				}
				if diff := diffPartitions(flatten(req), p.Partitions); diff != "" {
					t.Fatalf("partitions (-kmsg +got):\n%s", diff)
				}
				if p.Acks != req.Acks || p.TimeoutMillis != req.TimeoutMillis || p.Version != version ||
					(p.TransactionalID == nil) != (req.TransactionID == nil) ||
					req.TransactionID != nil && string(p.TransactionalID) != *req.TransactionID {
					t.Fatalf("got version %d, acks %d, timeout %d, transactional id %q of %+v",
						p.Version, p.Acks, p.TimeoutMillis, p.TransactionalID, req)
				}
				checkFrame(t, &p, req)
				checkPatches(t, &p, body)
			})
		})
	}
}

// frameOf joins the pieces of a frame.
func frameOf(p *Produce, clientID []byte, correlationID int32, acks int16, timeoutMillis int32, keep []int) []byte {
	return bytes.Join(p.GatherFrame(nil, clientID, correlationID, acks, timeoutMillis, keep, math.MaxInt), nil)
}

// checkFrame draws which partitions to keep and holds the frame against kmsg's.
func checkFrame(t *rapid.T, p *Produce, req *kmsg.ProduceRequest) {
	var keep []int
	want := *req
	want.UnknownTags = kmsg.Tags{}
	want.Acks, want.TimeoutMillis = -1, 1234
	want.Topics = nil
	flat := 0
	for _, topic := range req.Topics {
		kept := topic
		kept.Partitions, kept.UnknownTags = nil, kmsg.Tags{}
		for _, partition := range topic.Partitions {
			partition.UnknownTags = kmsg.Tags{}
			if rapid.Bool().Draw(t, "keep") {
				keep = append(keep, flat)
				kept.Partitions = append(kept.Partitions, partition)
			}
			flat++
		}
		if len(kept.Partitions) > 0 {
			want.Topics = append(want.Topics, kept)
		}
	}
	var clientID *string
	var clientIDBytes []byte
	if rapid.Bool().Draw(t, "client_id") {
		id := rapid.StringN(0, 8, -1).Draw(t, "id")
		clientID, clientIDBytes = &id, append([]byte{}, id...)
	}
	formatter := kmsg.NewRequestFormatter()
	if clientID != nil {
		formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
	}
	got := frameOf(p, clientIDBytes, -77, -1, 1234, keep)
	if want := formatter.AppendRequest(nil, &want, -77); !bytes.Equal(got, want) {
		t.Fatalf("frame of partitions %v:\n got %x\nwant %x", keep, got, want)
	}
	checkGatherFrame(t, p, clientIDBytes, keep, got)
}

// checkGatherFrame: the pieces are the frame, and long records are not copied.
func checkGatherFrame(t *rapid.T, p *Produce, clientID []byte, keep []int, want []byte) {
	long := rapid.IntRange(1, 100).Draw(t, "long")
	pieces := p.GatherFrame(nil, clientID, -77, -1, 1234, keep, long)
	if got := bytes.Join(pieces, nil); !bytes.Equal(got, want) {
		t.Fatalf("pieces of partitions %v:\n got %x\nwant %x", keep, got, want)
	}
	if len(pieces[0]) < 8 {
		t.Fatalf("first piece of %d bytes", len(pieces[0]))
	}
	at := 1
	for _, k := range keep {
		records := p.Partitions[k].Records
		if len(records) < long {
			continue
		}
		if got := pieces[at]; &got[0] != &records[0] || len(got) != len(records) {
			t.Fatalf("piece %d is not the records of partition %d", at, k)
		}
		at += 2
	}
}

func checkPatches(t *rapid.T, p *Produce, body []byte) {
	p.PatchAcks(-1)
	p.PatchTimeout(-5)
	patched := kmsg.NewPtrProduceRequest()
	patched.Version = p.Version
	if err := patched.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if patched.Acks != -1 || patched.TimeoutMillis != -5 || p.Acks != -1 || p.TimeoutMillis != -5 {
		t.Fatalf("patched to acks %d, timeout %d in the frame and %d, %d in the view; want -1, -5",
			patched.Acks, patched.TimeoutMillis, p.Acks, p.TimeoutMillis)
	}
	if diff := diffPartitions(flatten(patched), p.Partitions); diff != "" {
		t.Fatalf("patching moved the partitions (-kmsg +got):\n%s", diff)
	}
}

// sampleProduce is a request with two topics and three partitions.
func sampleProduce(version int16, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks, req.TimeoutMillis = 1, 30000
	for i, name := range []string{"orders", "payments"} {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = name, [16]byte{1, 2, byte(i)}
		for n := range i + 1 {
			partition := kmsg.NewProduceRequestTopicPartition()
			partition.Partition, partition.Records = int32(n), records
			topic.Partitions = append(topic.Partitions, partition)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req.AppendTo(nil)
}

func TestParseProduceRefusesEveryCut(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		body := sampleProduce(version, []byte("records"))
		var p Produce
		for n := range body {
			if err := p.Parse(body[:n:n], version); !errors.Is(err, ErrMalformed) {
				t.Fatalf("v%d cut at %d of %d: got %v, want %v", version, n, len(body), err, ErrMalformed)
			}
			if len(p.Partitions) != 0 {
				t.Fatalf("v%d cut at %d: %d partitions left behind", version, n, len(p.Partitions))
			}
		}
		if err := p.Parse(append(body, 0), version); !errors.Is(err, ErrMalformed) {
			t.Errorf("v%d with a byte too many: got %v, want %v", version, err, ErrMalformed)
		}
	}
}

func TestParseProduceErrors(t *testing.T) {
	var p Produce
	for _, version := range []int16{-1, MaxProduceVersion + 1} {
		if err := p.Parse(sampleProduce(9, nil), version); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: got %v, want %v", version, err, ErrVersion)
		}
	}
	classic := func(tail ...byte) []byte { return append([]byte{0xff, 0xff, 0, 1, 0, 0, 0, 9}, tail...) }
	flexible := func(tail ...byte) []byte { return append([]byte{0, 0, 1, 0, 0, 0, 9}, tail...) }
	cases := []struct {
		name    string
		version int16
		body    []byte
	}{
		{"null topics", 8, classic(0xff, 0xff, 0xff, 0xff)},
		{"topics beyond the frame", 8, classic(0x7f, 0xff, 0xff, 0xff)},
		{"null topic name", 8, classic(0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0)},
		{"string length -2", 8, classic(0, 0, 0, 1, 0xff, 0xfe, 0, 0, 0, 0)},
		{"null topics, flexible", 9, flexible(0, 0)},
		{"null topic name, flexible", 9, flexible(2, 0, 1, 0, 0)},
		{"varint of six bytes", 9, flexible(0x81, 0x80, 0x80, 0x80, 0x80, 0, 0)},
		{"varint of 35 bits", 9, flexible(0x81, 0x80, 0x80, 0x80, 0x10, 0)},
		{"tags beyond the frame", 9, flexible(1, 5)},
		{"tag larger than the frame", 9, flexible(1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f)},
	}
	for _, c := range cases {
		if err := p.Parse(c.body, c.version); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, want %v", c.name, err, ErrMalformed)
		}
	}
	// Lengths that a client padded to five bytes before it knew them.
	if err := p.Parse(flexible(0x81, 0x80, 0x80, 0x80, 0, 0), 9); err != nil {
		t.Errorf("overlong varint: %v", err)
	}
}

func TestParseProduceBoundsPartitions(t *testing.T) {
	body := func(partitions int) []byte {
		b := []byte{0, 0, 1, 0, 0, 0, 9, 2, 2, 't'}
		b = binary.AppendUvarint(b, uint64(partitions)+1)
		b = append(b, make([]byte, 6*partitions)...)
		return append(b, 0, 0)
	}
	var p Produce
	if err := p.Parse(body(MaxProducePartitions), 9); err != nil || len(p.Partitions) != MaxProducePartitions {
		t.Errorf("at the limit: %d partitions, %v", len(p.Partitions), err)
	}
	if err := p.Parse(body(MaxProducePartitions+1), 9); !errors.Is(err, ErrTooLarge) {
		t.Errorf("above the limit: got %v, want %v", err, ErrTooLarge)
	}
	if err := p.Parse(sampleProduce(9, nil), 9); err != nil || cap(p.Partitions) > produceKeptPartitions {
		t.Errorf("after a huge request: room for %d partitions kept, %v", cap(p.Partitions), err)
	}
}

func TestParseProduceAllocatesNothing(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		body := sampleProduce(version, make([]byte, 500))
		var p Produce
		got := testing.AllocsPerRun(100, func() {
			if err := p.Parse(body, version); err != nil {
				t.Fatal(err)
			}
			p.PatchAcks(-1)
		})
		if got != 0 {
			t.Errorf("v%d: %v allocations a request, want 0", version, got)
		}
	}
}

func TestFramesPanicOnUnorderedIndexes(t *testing.T) {
	var p Produce
	if err := p.Parse(sampleProduce(9, nil), 9); err != nil {
		t.Fatal(err)
	}
	for _, keep := range [][]int{{1, 0}, {1, 1}, {3}, {-1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("keep %v: no panic", keep)
				}
			}()
			frameOf(&p, nil, 0, 0, 0, keep)
		}()
	}
}
