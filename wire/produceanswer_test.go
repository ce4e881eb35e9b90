package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// drawAnswer draws an answer, valid in its version: topics twice, topics
// without partitions, errors with records and messages, tags.
func drawAnswer(t *rapid.T, version int16) *kmsg.ProduceResponse {
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = version
	tagged := func(tags *kmsg.Tags) {
		if version >= 9 && rapid.IntRange(0, 7).Draw(t, "tagged") == 0 {
			tags.Set(rapid.Uint32Range(1, 1<<30).Draw(t, "tag"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "tag_value"))
		}
	}
	message := func() *string {
		if version < 8 || rapid.IntRange(0, 2).Draw(t, "message") > 0 {
			return nil
		}
		s := rapid.StringN(0, 8, -1).Draw(t, "text")
		return &s
	}
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topic := kmsg.NewProduceResponseTopic()
		if version >= 13 {
			copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic_id"))
		} else {
			topic.Topic = rapid.SampledFrom([]string{"", "a", "orders", "größe"}).Draw(t, "topic")
		}
		for range rapid.IntRange(0, 12).Draw(t, "partitions") {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition = rapid.OneOf(rapid.Int32Range(0, 5), rapid.Int32()).Draw(t, "partition")
			p.ErrorCode = rapid.Int16().Draw(t, "error")
			p.BaseOffset = rapid.Int64().Draw(t, "base_offset")
			if version >= 2 {
				p.LogAppendTime = rapid.Int64().Draw(t, "append_time")
			}
			if version >= 5 {
				p.LogStartOffset = rapid.Int64().Draw(t, "log_start")
			}
			p.ErrorMessage = message()
			if version >= 8 && rapid.IntRange(0, 7).Draw(t, "error_records") == 0 {
				for range rapid.IntRange(1, 3).Draw(t, "records") {
					r := kmsg.NewProduceResponseTopicPartitionErrorRecord()
					r.RelativeOffset, r.ErrorMessage = rapid.Int32().Draw(t, "index"), message()
					tagged(&r.UnknownTags)
					p.ErrorRecords = append(p.ErrorRecords, r)
				}
			}
			if version >= 10 && rapid.IntRange(0, 7).Draw(t, "leader") == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 3, 9
			}
			tagged(&p.UnknownTags)
			topic.Partitions = append(topic.Partitions, p)
		}
		tagged(&topic.UnknownTags)
		answer.Topics = append(answer.Topics, topic)
	}
	if version >= 1 {
		answer.ThrottleMillis = rapid.Int32().Draw(t, "throttle")
	}
	if version >= 10 && rapid.IntRange(0, 3).Draw(t, "brokers") == 0 {
		answer.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 3, Host: "host", Port: 9092}}
	}
	tagged(&answer.UnknownTags)
	return answer
}

// answerTagged is what Tagged should be, by kmsg.
func answerTagged(answer *kmsg.ProduceResponse) bool {
	tagged := answer.UnknownTags.Len() > 0 || len(answer.Brokers) > 0
	for i := range answer.Topics {
		tagged = tagged || answer.Topics[i].UnknownTags.Len() > 0
		for _, p := range answer.Topics[i].Partitions {
			tagged = tagged || p.UnknownTags.Len() > 0 || p.CurrentLeader.LeaderID != -1
		}
	}
	return tagged
}

// errorRecordsOf encodes error records by kmsg, in an answer of which the other
// fields are known to take so many bytes before and after them.
func errorRecordsOf(records []kmsg.ProduceResponseTopicPartitionErrorRecord, version int16) []byte {
	if len(records) == 0 {
		return nil
	}
	p := kmsg.NewProduceResponseTopicPartition()
	p.ErrorRecords = records
	answer := kmsg.ProduceResponse{Version: version, Topics: []kmsg.ProduceResponseTopic{{Partitions: []kmsg.ProduceResponseTopicPartition{p}}}}
	b := answer.AppendTo(nil)
	const partition = 4 + 2 + 8 + 8 + 8
	switch {
	case version >= 13:
		return b[1+16+1+partition : len(b)-1-1-1-4-1]
	case version >= 9:
		return b[1+1+1+partition : len(b)-1-1-1-4-1]
	}
	return b[4+2+4+partition : len(b)-2-4]
}

// flattenAnswer is what Next should find in an answer.
func flattenAnswer(answer *kmsg.ProduceResponse) []AnsweredPartition {
	var out []AnsweredPartition
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			a := AnsweredPartition{TopicID: topic.TopicID, ProduceResult: ProduceResult{
				Partition: p.Partition, ErrorCode: p.ErrorCode, BaseOffset: p.BaseOffset, LogAppendTime: p.LogAppendTime,
				LogStartOffset: p.LogStartOffset, ErrorRecords: errorRecordsOf(p.ErrorRecords, answer.Version),
			}}
			if answer.Version < 13 {
				a.Topic = []byte(topic.Topic)
			}
			if p.ErrorMessage != nil {
				a.ErrorMessage = []byte(*p.ErrorMessage)
			}
			out = append(out, a)
		}
	}
	return out
}

// walkAnswer collects what Next yields.
func walkAnswer(a *ProduceAnswer) []AnsweredPartition {
	var out []AnsweredPartition
	for p, ok := a.Next(); ok; p, ok = a.Next() {
		out = append(out, p)
	}
	return out
}

// writeAnswer writes an answer's partitions by ProduceAnswerWriter, grouped as
// in the answer.
func writeAnswer(dst []byte, answer *kmsg.ProduceResponse) []byte {
	partitions := flattenAnswer(answer)
	w := AppendProduceAnswer(dst, answer.Version, len(answer.Topics))
	for i := range answer.Topics {
		topic := &answer.Topics[i]
		w.Topic(topic.Topic, topic.TopicID, len(topic.Partitions))
		for range topic.Partitions {
			w.Partition(&partitions[0].ProduceResult)
			partitions = partitions[1:]
		}
	}
	return w.End(answer.ThrottleMillis)
}

// withoutTags takes from an answer what ProduceAnswerWriter does not write; the
// error records are copied through as they came.
func withoutTags(answer kmsg.ProduceResponse) kmsg.ProduceResponse {
	answer.UnknownTags, answer.Brokers = kmsg.Tags{}, nil
	topics := answer.Topics
	answer.Topics = nil
	for _, topic := range topics {
		partitions := topic.Partitions
		topic.UnknownTags, topic.Partitions = kmsg.Tags{}, nil
		for _, p := range partitions {
			p.UnknownTags = kmsg.Tags{}
			p.CurrentLeader = kmsg.NewProduceResponseTopicPartitionCurrentLeader()
			topic.Partitions = append(topic.Partitions, p)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

func TestProduceAnswerAgainstKmsg(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			var a ProduceAnswer
			rapid.Check(t, func(t *rapid.T) {
				answer := drawAnswer(t, version)
				if err := a.Parse(answer.AppendTo(nil), version); err != nil {
					t.Fatal(err)
				}
				want := flattenAnswer(answer)
				if diff := cmp.Diff(want, walkAnswer(&a)); diff != "" {
					t.Fatalf("partitions (-kmsg +got):\n%s", diff)
				}
				if a.Version != version || a.ThrottleMillis != answer.ThrottleMillis || a.Partitions != len(want) || a.Tagged != answerTagged(answer) {
					t.Fatalf("got version %d, throttle %d, %d partitions, tagged %t of %+v", a.Version, a.ThrottleMillis, a.Partitions, a.Tagged, answer)
				}
				checkFind(t, &a, want)
				plain := withoutTags(*answer)
				if got, want := writeAnswer([]byte("in front"), answer), plain.AppendTo([]byte("in front")); !bytes.Equal(got, want) {
					t.Fatalf("written:\n got %x\nwant %x", got, want)
				}
			})
		})
	}
}

// checkFind looks for all partitions in an order that is drawn, and for one
// that is not there.
func checkFind(t *rapid.T, a *ProduceAnswer, partitions []AnsweredPartition) {
	for _, want := range rapid.Permutation(partitions).Draw(t, "order") {
		got, ok := a.Find(string(want.Topic), want.TopicID, want.Partition)
		found := false
		for _, p := range partitions { // several may have the same name
			found = found || p.is(string(want.Topic), want.TopicID, want.Partition) && cmp.Equal(p, got)
		}
		if !ok || !found {
			t.Fatalf("looking for %+v: got %+v, %t", want, got, ok)
		}
	}
	if got, ok := a.Find("not there", [16]byte{1}, 1); ok {
		t.Fatalf("found %+v, which is not there", got)
	}
}

// sampleAnswer has so many topics with so many partitions each.
func sampleAnswer(version int16, topics, partitions int) *kmsg.ProduceResponse {
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = version
	if version >= 1 {
		answer.ThrottleMillis = 7
	}
	for i := range topics {
		topic := kmsg.NewProduceResponseTopic()
		if version >= 13 {
			topic.TopicID = [16]byte{1, byte(i), byte(i >> 8)}
		} else {
			topic.Topic = fmt.Sprint("orders-", i)
		}
		for n := range partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset = int32(n), int64(1000*i+n)
			if version >= 5 {
				p.LogStartOffset = 3
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

// TestFindInAnyOrder: whatever the order of a large answer, all of it is found,
// and where it is the order of the search no index is made.
func TestFindInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, version := range []int16{7, 12, 13} {
		for _, size := range [][2]int{{1, 1}, {1, 16}, {1, 17}, {17, 1}, {1, 1000}, {1000, 1}, {30, 30}} {
			answer := sampleAnswer(version, size[0], size[1])
			want := flattenAnswer(answer)
			for _, order := range []string{"same", "other"} {
				if order == "other" {
					random.Shuffle(len(answer.Topics), func(i, j int) {
						answer.Topics[i], answer.Topics[j] = answer.Topics[j], answer.Topics[i]
					})
					for i := range answer.Topics {
						p := answer.Topics[i].Partitions
						random.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
					}
				}
				var a ProduceAnswer
				if err := a.Parse(answer.AppendTo(nil), version); err != nil {
					t.Fatal(err)
				}
				for i := range want {
					w := &want[i]
					if got, ok := a.Find(string(w.Topic), w.TopicID, w.Partition); !ok || !cmp.Equal(got, *w) {
						t.Fatalf("v%d, %v, %s order, partition %d: got %+v, %t; want %+v", version, size, order, i, got, ok, *w)
					}
				}
				if order == "same" && a.index.made {
					t.Errorf("v%d, %v: an index was made for a search in order", version, size)
				}
				if got, ok := a.Find("orders-0", [16]byte{1}, -1); ok {
					t.Errorf("v%d, %v: found %+v, which is not there", version, size, got)
				}
			}
		}
	}
}

func TestProduceAnswerRefusesEveryCut(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		answer := sampleAnswer(version, 2, 2)
		if version >= 8 {
			text := "text"
			answer.Topics[1].Partitions[0].ErrorMessage = &text
			answer.Topics[1].Partitions[0].ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{ErrorMessage: &text}}
		}
		if version >= 10 {
			answer.Topics[0].Partitions[0].CurrentLeader.LeaderID = 1
			answer.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "host"}}
		}
		body := answer.AppendTo(nil)
		var a ProduceAnswer
		for n := range body {
			if err := a.Parse(body[:n:n], version); !errors.Is(err, ErrMalformedAnswer) {
				t.Fatalf("v%d cut at %d of %d: got %v, want %v", version, n, len(body), err, ErrMalformedAnswer)
			}
			if p, ok := a.Next(); ok || a.Partitions != 0 {
				t.Fatalf("v%d cut at %d: %d partitions left behind, the first %+v", version, n, a.Partitions, p)
			}
			if p, ok := a.Find("orders-0", [16]byte{}, 0); ok {
				t.Fatalf("v%d cut at %d: found %+v", version, n, p)
			}
		}
		if err := a.Parse(append(body, 0), version); err != nil || !a.Tagged {
			t.Errorf("v%d with a byte more: tagged %t, %v", version, a.Tagged, err)
		}
	}
	var a ProduceAnswer
	for _, version := range []int16{-1, MaxProduceVersion + 1} {
		if err := a.Parse(nil, version); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: got %v, want %v", version, err, ErrVersion)
		}
	}
}

func TestProduceAnswerReadsNullArraysAsEmpty(t *testing.T) {
	null := []byte{0xff, 0xff, 0xff, 0xff}
	classic := append(append([]byte{0, 0, 0, 1, 0, 1, 't'}, null...), 0, 0, 0, 5)
	for version, bodies := range map[int16][][]byte{
		1: {append(bytes.Clone(null), 0, 0, 0, 5), classic},
		9: {{0, 0, 0, 0, 5, 0}, {2, 2, 't', 0, 0, 0, 0, 0, 5, 0}},
	} {
		for _, body := range bodies {
			var a ProduceAnswer
			if err := a.Parse(body, version); err != nil || a.Partitions != 0 || a.ThrottleMillis != 5 {
				t.Errorf("v%d %x: got %d partitions, throttle %d, %v", version, body, a.Partitions, a.ThrottleMillis, err)
			}
		}
	}
}

func TestProduceAnswerAllocatesNothing(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		for _, order := range []string{"same", "other"} {
			answer := sampleAnswer(version, 5, 20)
			want := flattenAnswer(answer)
			if order == "other" {
				answer.Topics[0], answer.Topics[4] = answer.Topics[4], answer.Topics[0]
			}
			body := answer.AppendTo(nil)
			names := make([]string, len(want))
			for i := range want {
				names[i] = string(want[i].Topic)
			}
			out := make([]byte, 0, 2*len(body))
			var a ProduceAnswer
			got := testing.AllocsPerRun(100, func() {
				if err := a.Parse(body, version); err != nil {
					t.Fatal(err)
				}
				w := AppendProduceAnswer(out, version, 5)
				for i := range want {
					p, ok := a.Find(names[i], want[i].TopicID, want[i].Partition)
					if !ok {
						t.Fatal("a partition is not found")
					}
					if i%20 == 0 {
						w.Topic(names[i], p.TopicID, 20)
					}
					w.Partition(&p.ProduceResult)
				}
				w.End(a.ThrottleMillis)
			})
			if got != 0 {
				t.Errorf("v%d, %s order: %v allocations an answer, want 0", version, order, got)
			}
		}
	}
}

func TestAnswerIndexForgetsHugeAnswers(t *testing.T) {
	huge := sampleAnswer(9, 1, 3*answerKeptPlaces)
	var a ProduceAnswer
	for _, answer := range []*kmsg.ProduceResponse{huge, sampleAnswer(9, 1, 1)} {
		if err := a.Parse(answer.AppendTo(nil), 9); err != nil {
			t.Fatal(err)
		}
		a.Find("orders-0", [16]byte{}, -1)
	}
	if got := cap(a.index.places); got > answerKeptPlaces {
		t.Errorf("%d places kept after a huge answer, want at most %d", got, answerKeptPlaces)
	}
}

func TestProduceAnswerWriterPanicsOnWrongNumbers(t *testing.T) {
	for name, write := range map[string]func(){
		"version":               func() { AppendProduceAnswer(nil, MaxProduceVersion+1, 0) },
		"a topic too many":      func() { w := AppendProduceAnswer(nil, 9, 0); w.Topic("t", [16]byte{}, 0) },
		"a topic too few":       func() { w := AppendProduceAnswer(nil, 9, 1); w.End(0) },
		"a partition too many":  func() { w := AppendProduceAnswer(nil, 9, 1); w.Partition(&ProduceResult{}) },
		"a partition too few":   func() { w := AppendProduceAnswer(nil, 9, 1); w.Topic("t", [16]byte{}, 1); w.End(0) },
		"the next topic begins": func() { w := AppendProduceAnswer(nil, 9, 2); w.Topic("t", [16]byte{}, 1); w.Topic("t", [16]byte{}, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			write()
		}()
	}
}

// FuzzProduceAnswer: what we accept, kmsg reads alike, unless it finds fault with
// tagged fields, which we step over; every partition is found; written anew by us
// it is what kmsg writes.
func FuzzProduceAnswer(f *testing.F) {
	text := "text"
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		answer := sampleAnswer(version, 2, 2)
		f.Add(answer.AppendTo(nil), version)
		f.Add(sampleAnswer(version, 1, 20).AppendTo(nil), version)
		answer.Topics[1].Partitions[1].ErrorMessage = &text
		answer.Topics[1].Partitions[1].ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1}, {ErrorMessage: &text}}
		answer.Topics[1].Partitions[1].CurrentLeader.LeaderID = 1
		answer.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "host"}}
		answer.UnknownTags.Set(7, []byte("tag"))
		f.Add(answer.AppendTo(nil), version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		var a ProduceAnswer
		before := bytes.Clone(body)
		if a.Parse(body, version) != nil {
			if p, ok := a.Next(); ok || a.Partitions != 0 {
				t.Fatalf("%d partitions of an answer refused, the first %+v", a.Partitions, p)
			}
			return
		}
		answer := kmsg.ProduceResponse{Version: version}
		if err := answer.ReadFrom(body); err != nil {
			if !a.Tagged {
				t.Fatalf("kmsg refuses what we accept: %v", err)
			}
			return
		}
		got := walkAnswer(&a)
		want := flattenAnswer(&answer)
		hasErrorRecords := false
		for i := range want {
			// Encoded by kmsg they may differ: overlong lengths, tags twice.
			hasErrorRecords = hasErrorRecords || want[i].ErrorRecords != nil
			if i < len(got) && (want[i].ErrorRecords == nil) == (got[i].ErrorRecords == nil) {
				want[i].ErrorRecords = got[i].ErrorRecords
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || a.ThrottleMillis != answer.ThrottleMillis || a.Partitions != len(want) {
			t.Fatalf("got throttle %d, want %d; partitions (-kmsg +got):\n%s", a.ThrottleMillis, answer.ThrottleMillis, diff)
		}
		for i := len(got) - 1; i >= 0; i-- {
			p, ok := a.Find(string(got[i].Topic), got[i].TopicID, got[i].Partition)
			if !ok || !p.is(string(got[i].Topic), got[i].TopicID, got[i].Partition) {
				t.Fatalf("looking for %+v: got %+v, %t", got[i], p, ok)
			}
		}
		plain := withoutTags(answer)
		if written := writeAnswer(nil, &answer); !hasErrorRecords && !bytes.Equal(written, plain.AppendTo(nil)) {
			t.Fatalf("written:\n got %x\nwant %x", written, plain.AppendTo(nil))
		}
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
	})
}
