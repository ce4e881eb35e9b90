package appender

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "events"

func start(t *testing.T) (*kfake.Cluster, *Client, context.Context) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(2, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client := New(Config{Bootstrap: cluster.ListenAddrs(), ClientID: "test"})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return cluster, client, ctx
}

func record(expected Offset) Record {
	return Record{
		Topic: topic, Partition: 1, Expected: expected, AppendID: []byte("0123456789abcdef"),
		Key: []byte("k"), Value: []byte("v"), Headers: []Header{{"trace", []byte("42")}}, Timestamp: 1_700_000_000_000,
	}
}

// A consumer of another make must read back what was appended.
func TestAppendedRecordIsWhatAConsumerReads(t *testing.T) {
	cluster, client, ctx := start(t)
	for want := range Offset(3) {
		got, err := client.Append(ctx, record(want))
		if err != nil || got != want {
			t.Fatalf("got offset %d, error %v; want %d", got, err, want)
		}
	}
	if got, err := client.NextOffset(ctx, topic, 1); err != nil || got != 3 {
		t.Errorf("next offset: got %d, error %v; want 3", got, err)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {1: kgo.NewOffset().At(2)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	got := consumer.PollRecords(ctx, 1).Records()
	want := []*kgo.Record{{
		Topic: topic, Partition: 1, Offset: 2, Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(1_700_000_000_000),
		ProducerID: -1, ProducerEpoch: -1,
		Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte("2")}, {Key: "append-id", Value: []byte("0123456789abcdef")}, {Key: "trace", Value: []byte("42")}},
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(kgo.Record{}, "Context", "LeaderEpoch", "Attrs"), cmpopts.IgnoreUnexported(kgo.Record{})); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// answer scripts the next answer to a Produce.
func answer(cluster *kfake.Cluster, code Code, base int64, message string) {
	cluster.ControlKey(0, func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range produce.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = t.Partitions[0].Partition, int16(code), base
			if message != "" {
				rp.ErrorMessage = &message
			}
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func TestVerdictOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		code    Code
		base    int64
		message string
		want    error
	}{
		{"taken", 1, -1, "expected-offset taken: expected=4 next=7",
			&RefusedError{Reason: Taken, Code: 1, Expected: 4, Next: 7, Message: "expected-offset taken: expected=4 next=7"}},
		{"taken, compacted away", 1, -1, "expected-offset taken: expected=4 next=7, log_start=5",
			&RefusedError{Reason: Taken, Code: 1, Expected: 4, Next: 7, Message: "expected-offset taken: expected=4 next=7, log_start=5"}},
		{"not reached", 1, -1, "expected-offset not reached: expected=4 next=2",
			&RefusedError{Reason: NotReached, Code: 1, Expected: 4, Next: 2, Message: "expected-offset not reached: expected=4 next=2"}},
		{"predecessor refused, no next", 1, -1, "predecessor refused: expected=4",
			&RefusedError{Reason: PredecessorRefused, Code: 1, Expected: 4, Next: NoOffset, Message: "predecessor refused: expected=4"}},
		{"refused under another code", 87, -1, "expected-offset taken: expected=4 next=7",
			&RefusedError{Reason: Taken, Code: 87, Expected: 4, Next: 7, Message: "expected-offset taken: expected=4 next=7"}},
		{"code of a refusal without its words", 1, -1, "no", &BrokerError{Code: 1, Message: "no"}},
		{"unknown", -1, -1, "outcome unknown: expected=4 next=5; read the partition from 4",
			&UnknownError{Expected: 4, Code: -1, Message: "outcome unknown: expected=4 next=5; read the partition from 4"}},
		{"timed out", 7, -1, "", &UnknownError{Expected: 4, Code: 7}},
		{"storage error may leave bytes", 56, -1, "", &UnknownError{Expected: 4, Code: 56}},
		{"code nobody knows", 3000, -1, "", &UnknownError{Expected: 4, Code: 3000}},
		{"leader moved before the append", 6, -1, "", &BrokerError{Code: 6}},
		{"leader moved after the append", 6, 4, "", &UnknownError{Expected: 4, Code: 6}},
		{"policy", 44, -1, "not served", &BrokerError{Code: 44, Message: "not served"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, client, ctx := start(t)
			answer(cluster, c.code, c.base, c.message)
			offset, err := client.Append(ctx, record(4))
			if diff := cmp.Diff(c.want, err); diff != "" || offset != NoOffset {
				t.Errorf("offset %d, error (-want +got):\n%s", offset, diff)
			}
		})
	}
}

func TestAppendPatientlyRepeatsOnlyWhatIsCertain(t *testing.T) {
	t.Run("a leader that moves", func(t *testing.T) {
		cluster, client, ctx := start(t)
		answer(cluster, 6, -1, "")
		answer(cluster, 19, -1, "")
		if got, err := client.AppendPatiently(ctx, record(0)); err != nil || got != 0 {
			t.Errorf("got %d, error %v; want 0", got, err)
		}
	})
	t.Run("until the time is up", func(t *testing.T) {
		cluster, client, ctx := start(t)
		for range 100 {
			answer(cluster, 6, -1, "")
		}
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := client.AppendPatiently(short, record(0))
		var answered *BrokerError
		if !errors.As(err, &answered) || answered.Code != 6 {
			t.Errorf("got error %v, want the last answer", err)
		}
	})
	t.Run("never an unknown outcome", func(t *testing.T) {
		cluster, client, ctx := start(t)
		var sent atomic.Int32
		cluster.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			sent.Add(1)
			return nil, errors.New("cut"), true
		})
		_, err := client.AppendPatiently(ctx, record(0))
		var unknown *UnknownError
		if !errors.As(err, &unknown) || unknown.Cause == nil || unknown.Expected != 0 {
			t.Errorf("got error %v, want *UnknownError with the cause", err)
		}
		if got := sent.Load(); got != 1 {
			t.Errorf("sent %d times, want once", got)
		}
	})
}

func TestNothingIsSent(t *testing.T) {
	_, client, ctx := start(t)
	var missing *NoTopicError
	r := record(0)
	r.Topic = "nowhere"
	if _, err := client.Append(ctx, r); !errors.As(err, &missing) || missing.Partitions != 0 {
		t.Errorf("missing topic: got error %v", err)
	}
	r = record(0)
	r.Partition = 9
	if _, err := client.Append(ctx, r); !errors.As(err, &missing) || missing.Partitions != 2 {
		t.Errorf("missing partition: got error %v", err)
	}
	r = record(0)
	r.Headers = []Header{{Name: HeaderAppendID}}
	if _, err := client.Append(ctx, r); !errors.Is(err, ErrBadRecord) {
		t.Errorf("own append-id header: got error %v", err)
	}
	client.Close()
	if _, err := client.Append(ctx, record(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed client: got error %v", err)
	}
}

// script answers the one connection it accepts with fixed bytes.
func script(t *testing.T, reply []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			c.Write(reply)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func TestAnswersThatLie(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply []byte
	}{
		{"nothing", nil},
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}},
		{"two GiB", []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1}},
		{"cut short", []byte{0, 0, 0, 99, 0, 0, 0, 1, 2}},
		{"another request's", []byte{0, 0, 0, 4, 0, 0, 0, 9}},
		{"empty", []byte{0, 0, 0, 4, 0, 0, 0, 1}},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := New(Config{Bootstrap: []string{script(t, c.reply)}})
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := client.NextOffset(ctx, topic, 0)
			var unreachable *ConnectError
			if !errors.As(err, &unreachable) || !unreachable.Bootstrap || ctx.Err() != nil {
				t.Errorf("got error %v, want *ConnectError at once", err)
			}
		})
	}
}

func FuzzSkipTags(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{1, 0, 2, 'a', 'b', 'c'})
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, err := skipTags(b)
		if err == nil && len(rest) >= len(b) {
			t.Errorf("skipped nothing of %x", b)
		}
	})
}
