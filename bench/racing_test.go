package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const racedTopic = "places"

// unfenced starts a broker that looks at no condition.
func unfenced(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, racedTopic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func targetAt(c *kfake.Cluster) *target { return &target{name: "fake", address: c.ListenAddrs()[0]} }

func entrantAt(c *kfake.Cluster, h habit) entrant {
	return entrant{target: targetAt(c), topic: racedTopic, habit: h, shape: batchShape{records: 1, valueBytes: 200}}
}

// raced runs as many racers and gives what they did and how many of their
// acknowledgements are wrong.
func racedBy(t *testing.T, c *kfake.Cluster, n int, h habit) (*race, int) {
	t.Helper()
	entrants := make([]entrant, n)
	for i := range entrants {
		entrants[i] = entrantAt(c, h)
	}
	r, err := runRace(t.Context(), entrants, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	log, err := readMarks(t.Context(), targetAt(c), racedTopic, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r, r.wrong(log)
}

func TestRaceTellsWrongAcknowledgements(t *testing.T) {
	for _, h := range []habit{looking, conditional} {
		r, wrong := racedBy(t, unfenced(t), 1, h)
		if wrong != 0 || len(r.appends) == 0 || len(r.each) != len(r.appends) || r.triesAnAppend() != 1 {
			t.Errorf("one writer of habit %d: %d of %d acknowledgements are wrong, %v tries each", h, wrong, len(r.appends), r.triesAnAppend())
		}
		if r, wrong := racedBy(t, unfenced(t), 4, h); wrong == 0 {
			t.Errorf("four writers of habit %d without a fence: none of %d acknowledgements is wrong", h, len(r.appends))
		}
	}
	// The answer may be right and the log tell something else.
	m := mark{writer: 1, count: 1}
	r := &race{appends: []raced{{mark: m, expected: 3, at: 3}}}
	if got := r.wrong(map[offset]mark{3: m}); got != 0 {
		t.Errorf("got %d wrong, want 0", got)
	}
	for _, log := range []map[offset]mark{{}, {3: {writer: 2, count: 1}}, {4: m}} {
		if got := r.wrong(log); got != 1 {
			t.Errorf("with the log %v: got %d wrong, want 1", log, got)
		}
	}
}

// scripted has a broker answer Produce requests in turn, before it does as it would.
func scripted(c *kfake.Cluster, answers ...kmsg.ProduceResponseTopicPartition) (expected chan string) {
	expected = make(chan string, 1000)
	c.ControlKey(0, func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		var batch kmsg.RecordBatch
		var record kmsg.Record
		if batch.ReadFrom(produce.Topics[0].Partitions[0].Records) == nil && record.ReadFrom(batch.Records) == nil {
			select {
			case expected <- string(record.Headers[0].Value):
			default: // enough to look at; the broker must not wait
			}
		}
		if len(answers) == 0 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = racedTopic
		rt.Partitions = append(rt.Partitions, answers[0])
		response.Topics = append(response.Topics, rt)
		answers = answers[1:]
		return response, nil, true
	})
	return expected
}

func refuses(code int16, message string) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.ErrorCode, p.BaseOffset, p.ErrorMessage = code, -1, &message
	return p
}

func TestRacerExpectsWhatItIsTold(t *testing.T) {
	c := unfenced(t)
	expected := scripted(c, refuses(1, "expected-offset taken: expected=0 next=7"), refuses(6, "not appended, send again: why"),
		refuses(-1, "outcome unknown: expected=7 next=0; read the partition from 7"))
	r, err := runRace(t.Context(), []entrant{entrantAt(c, conditional)}, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 7, 7, 0, 1} { // the last ones are appended
		got, err := strconv.Atoi(<-expected)
		if err != nil || got != want {
			t.Errorf("try %d expects %d, %v, want %d", i, got, err, want)
		}
	}
	if r.refused != 1 || r.unsettled != 2 || r.tries != len(r.appends)+3 {
		t.Errorf("got %d tries, %d refused, %d unsettled, %d appends", r.tries, r.refused, r.unsettled, len(r.appends))
	}
}

func TestRacerEndsAtAnErrorThatStays(t *testing.T) {
	c := unfenced(t)
	scripted(c, refuses(44, "topic is not served: why"))
	if r, err := runRace(t.Context(), []entrant{entrantAt(c, conditional)}, time.Minute); err == nil {
		t.Errorf("got %+v, want an error", r)
	}
}

func TestRaceEndsWithItsContext(t *testing.T) {
	c := unfenced(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, false
	})
	if _, err := runRace(ctx, []entrant{entrantAt(c, conditional)}, time.Hour); err == nil {
		t.Error("got no error")
	}
}

// TestFramesAreReadAsTheyAreMeant: what is patched in place is what a consumer
// reads, which also checks the checksum.
func TestFramesAreReadAsTheyAreMeant(t *testing.T) {
	for _, shape := range []batchShape{{1, 200, false}, {10, 200, false}, {500, 64, false}, {3, 100, true}, {1, markBytes, false}} {
		t.Run(fmt.Sprintf("%+v", shape), func(t *testing.T) {
			c := unfenced(t)
			conn, err := dialAppend(t.Context(), targetAt(c))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.close()
			frame := newAppendFrame(racedTopic, 0, shape)
			for n := range 2 {
				frame.expect(offset(n*shape.records), mark{writer: 5, count: uint64(n * shape.records)})
				answer, err := conn.call(frame)
				if err != nil || answer.code != 0 || answer.base != offset(n*shape.records) {
					t.Fatalf("got %+v, %v", answer, err)
				}
			}
			client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(racedTopic))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for seen := 0; seen < 2*shape.records; {
				fetches := client.PollFetches(t.Context())
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				fetches.EachRecord(func(r *kgo.Record) {
					got, err := strconv.ParseInt(string(r.Headers[0].Value), 10, 64)
					if shape.atEnd && string(r.Headers[0].Value) != "end" || !shape.atEnd && (err != nil || got != r.Offset) {
						t.Errorf("the record at %d expects %s", r.Offset, r.Headers[0].Value)
					}
					if m, ok := markOf(r.Value); !ok || m != (mark{5, uint64(r.Offset)}) || len(r.Value) != shape.valueBytes {
						t.Errorf("the record at %d has mark %v and %d bytes", r.Offset, m, len(r.Value))
					}
					if age := time.Since(r.Timestamp); age < -time.Minute || age > time.Minute {
						t.Errorf("the record at %d is %v old", r.Offset, age)
					}
					seen++
				})
			}
		})
	}
}
