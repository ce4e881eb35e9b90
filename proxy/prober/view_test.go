package prober

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// keysOf lists the APIs of requests in their order.
func keysOf(requests []kmsg.Request) []kmsg.Key {
	var keys []kmsg.Key
	for _, r := range requests {
		keys = append(keys, kmsg.Key(r.Key()))
	}
	return keys
}

func TestViewSteady(t *testing.T) {
	other := producer(7, 3, 99, 50)
	for _, tc := range []struct {
		name string
		l    leader
		want View
	}{
		{
			name: "state listed",
			l:    leader{epoch: 5, ends: []int64{42}, high: 41, start: 10, producers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{other, producer(testFence, 1, 41, 1234)}},
			want: View{LeaderEpoch: 5, LogEnd: 42, HighWatermark: 41, HasState: true, LastSequence: 41, ProducerEpoch: 1, LastTimestamp: 1234},
		},
		{
			name: "no state of the fence",
			l:    leader{epoch: 5, ends: []int64{42}, high: 42, producers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{other}},
			want: View{LeaderEpoch: 5, LogEnd: 42, HighWatermark: 42, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
		{
			name: "state without a sequence yet",
			l:    leader{epoch: 5, ends: []int64{0}, producers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{producer(testFence, 2, -1, -1)}},
			want: View{LeaderEpoch: 5, HasState: true, LastSequence: -1, ProducerEpoch: 2, LastTimestamp: -1},
		},
		{
			name: "high watermark above the log end read before it",
			l:    leader{epoch: 5, ends: []int64{42}, high: 50},
			want: View{LeaderEpoch: 5, LogEnd: 42, HighWatermark: 50, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
		{
			name: "offsets not available just after an election",
			l:    leader{epoch: 5, ends: []int64{42}, codes: map[kmsg.Key]int16{kmsg.ListOffsets: codeOffsetNotAvailable}},
			want: View{LeaderEpoch: 5, LogEnd: 42, HighWatermark: -1, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
		{
			name: "unequal twice, then equal",
			l:    leader{epoch: 5, ends: []int64{40, 41, 42, 43, 44, 44}, high: 44},
			want: View{LeaderEpoch: 5, LogEnd: 44, HighWatermark: 44, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				got, err := p.ReadView(ctx, testNode, testTopic, 0)
				if err != nil {
					t.Fatal(err)
				}
				if got != tc.want {
					t.Errorf("got  %+v\nwant %+v", got, tc.want)
				}
			})
		})
	}
}

// The order on the wire is what makes a view consistent.
func TestViewRequestOrder(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{42}, high: 42}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		for range 2 {
			if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
				t.Fatal(err)
			}
		}
		round := []kmsg.Key{kmsg.OffsetForLeaderEpoch, kmsg.DescribeProducers, kmsg.OffsetForLeaderEpoch, kmsg.ListOffsets}
		want := append([]kmsg.Key{kmsg.Metadata}, round...)
		want = append(want, round...) // the epoch is remembered
		got := keysOf(b.seen())
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("request %d: got %v, want %v", i, got[i].Name(), want[i].Name())
			}
		}
		for i, r := range b.seen() {
			switch r := r.(type) {
			case *kmsg.OffsetForLeaderEpochRequest:
				if p := r.Topics[0].Partitions[0]; p.CurrentLeaderEpoch != 5 || p.LeaderEpoch != 5 || r.ReplicaID != -1 {
					t.Errorf("request %d carries %+v", i, p)
				}
			case *kmsg.ListOffsetsRequest:
				if p := r.Topics[0].Partitions[0]; p.CurrentLeaderEpoch != 5 || r.ReplicaID != -1 || r.IsolationLevel != 0 {
					t.Errorf("request %d carries %+v", i, p)
				}
			case *kmsg.MetadataRequest:
				if r.AllowAutoTopicCreation {
					t.Errorf("request %d may create a topic", i)
				}
			}
		}
		if got, want := b.dialled(), 1; got != want {
			t.Errorf("got %d dials, want %d", got, want)
		}
	})
}

func TestViewFromTail(t *testing.T) {
	moving := func() []int64 { return []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} }
	fenced := storedBatch(4, testFence, 1, 1<<31-2, 777, "a", "b", "c")
	foreign := storedBatch(4, 9, 1, 0, 777, "a", "b", "c")
	for _, tc := range []struct {
		name string
		l    leader
		want View
	}{
		{
			name: "the fence's batch is last, its sequence wraps",
			l:    leader{epoch: 5, ends: moving(), high: 7, start: 1, batches: [][]byte{storedBatch(0, 9, 0, 0, 1, "x", "y", "z", "w"), fenced}},
			want: View{LeaderEpoch: 5, LogEnd: 7, HighWatermark: 7, HasState: true, LastSequence: 0, ProducerEpoch: 1, LastTimestamp: 777, FromTail: true},
		},
		{
			name: "a batch above the high watermark does not count",
			l:    leader{epoch: 5, ends: moving(), high: 7, batches: [][]byte{fenced, storedBatch(7, testFence, 1, 1, 888, "d")}},
			want: View{LeaderEpoch: 5, LogEnd: 7, HighWatermark: 7, HasState: true, LastSequence: 0, ProducerEpoch: 1, LastTimestamp: 777, FromTail: true},
		},
		{
			name: "another's batch is last: read on until steady",
			l:    leader{epoch: 5, ends: moving(), high: 7, batches: [][]byte{foreign}},
			want: View{LeaderEpoch: 5, LogEnd: 10, HighWatermark: 7, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
		{
			name: "no high watermark: read on until steady",
			l:    leader{epoch: 5, ends: moving(), codes: map[kmsg.Key]int16{kmsg.ListOffsets: codeOffsetNotAvailable}, batches: [][]byte{fenced}},
			want: View{LeaderEpoch: 5, LogEnd: 10, HighWatermark: -1, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				got, err := p.ReadView(ctx, testNode, testTopic, 0)
				if err != nil {
					t.Fatal(err)
				}
				if got != tc.want {
					t.Errorf("got  %+v\nwant %+v", got, tc.want)
				}
				rounds := 0
				for _, k := range keysOf(b.seen()) {
					if k == kmsg.DescribeProducers {
						rounds++
					}
				}
				if want := map[bool]int{true: 3, false: 6}[tc.want.FromTail]; rounds != want {
					t.Errorf("got %d rounds, want %d", rounds, want)
				}
			})
		})
	}
}

// Where the broker lists no idle producers, the batch that ends at the log end
// shows the state, and only that one.
func TestViewTailBatch(t *testing.T) {
	fenced := storedBatch(4, testFence, 1, 10, 777, "a", "b", "c")
	foreign := storedBatch(7, 9, 1, 0, 888, "d")
	none := View{LeaderEpoch: 5, LastSequence: -1, ProducerEpoch: -1, LastTimestamp: -1}
	with := func(v View, end int64) View {
		v.LogEnd, v.HighWatermark = end, end
		return v
	}
	for _, tc := range []struct {
		name string
		l    leader
		want View
	}{
		{"the fence's", leader{epoch: 5, ends: []int64{7}, high: 7, batches: [][]byte{fenced}},
			View{LeaderEpoch: 5, LogEnd: 7, HighWatermark: 7, HasState: true, LastSequence: 12, ProducerEpoch: 1, LastTimestamp: 777}},
		{"another's", leader{epoch: 5, ends: []int64{8}, high: 8, batches: [][]byte{fenced, foreign}}, with(none, 8)},
		{"never written", leader{epoch: 5, ends: []int64{0}}, with(none, 0)},
		{"deleted to the end", leader{epoch: 5, ends: []int64{7}, high: 7, start: 7}, with(none, 7)},
		{"append between the log ends", leader{epoch: 5, ends: []int64{7, 8, 8}, high: 8, batches: [][]byte{fenced, foreign}}, with(none, 8)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			run(t, Config{Dial: b.dial, StateFrom: TailBatch}, func(t *testing.T, ctx context.Context, p *Pool) {
				got, err := p.ReadView(ctx, testNode, testTopic, 0)
				if err != nil {
					t.Fatal(err)
				}
				if got != tc.want {
					t.Errorf("got  %+v\nwant %+v", got, tc.want)
				}
				for _, r := range b.seen() {
					if r.Key() == int16(kmsg.DescribeProducers) {
						t.Error("DescribeProducers was asked")
					}
				}
			})
		})
	}
}

func TestViewLeaderEpochs(t *testing.T) {
	t.Run("an election makes it ask once", func(t *testing.T) {
		l := &leader{epoch: 5, ends: []int64{42}, high: 42}
		b := &scriptedBroker{handle: l.handle}
		run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
			for _, epoch := range []int32{5, 6, 4} { // 4: deleted and created again
				b.change(func() { l.epoch = epoch })
				v, err := p.ReadView(ctx, testNode, testTopic, 0)
				if err != nil {
					t.Fatal(err)
				}
				if v.LeaderEpoch != epoch {
					t.Errorf("got epoch %d, want %d", v.LeaderEpoch, epoch)
				}
			}
			asked := 0
			for _, k := range keysOf(b.seen()) {
				if k == kmsg.Metadata {
					asked++
				}
			}
			if asked != 3 {
				t.Errorf("Metadata was asked %d times, want 3", asked)
			}
		})
	})
	t.Run("one answer renews the epochs of all partitions", func(t *testing.T) {
		l := &leader{epoch: 5, ends: []int64{42}, high: 42}
		b := &scriptedBroker{handle: l.handle}
		run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
			for _, epoch := range []int32{5, 6} {
				b.change(func() { l.epoch, b.requests = epoch, nil })
				for partition := range int32(4) {
					if _, err := p.ReadView(ctx, testNode, testTopic, partition); err != nil {
						t.Fatal(err)
					}
				}
			}
			asked := 0
			for _, k := range keysOf(b.seen()) {
				if k == kmsg.Metadata {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("Metadata was asked %d times after the election, want once", asked)
			}
		})
	})
	t.Run("an election between the log ends", func(t *testing.T) {
		l := &leader{epoch: 5, ends: []int64{42}, high: 42}
		l.onRequest = func(r kmsg.Request) {
			if r.Key() == int16(kmsg.DescribeProducers) {
				l.epoch, l.ends = 6, []int64{40}
			}
		}
		b := &scriptedBroker{handle: l.handle}
		run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
			v, err := p.ReadView(ctx, testNode, testTopic, 0)
			if err != nil {
				t.Fatal(err)
			}
			if v.LeaderEpoch != 6 || v.LogEnd != 40 {
				t.Errorf("got epoch %d and log end %d, want 6 and 40", v.LeaderEpoch, v.LogEnd)
			}
		})
	})
	for _, tc := range []struct {
		name string
		l    leader
		code int16
	}{
		{"metadata stays behind", leader{epoch: 6, namedEpoch: 5, ends: []int64{42}}, codeFencedLeaderEpoch},
		{"metadata runs ahead", leader{epoch: 6, namedEpoch: 7, ends: []int64{42}}, codeUnknownLeaderEpoch},
		{"the end of another epoch", leader{epoch: 6, endEpoch: -1, ends: []int64{42}}, codeUnknownLeaderEpoch},
		{"metadata names another leader", leader{epoch: 6, named: 3, ends: []int64{42}}, codeNotLeader},
		{"metadata names no leader", leader{epoch: 6, named: -1, ends: []int64{42}}, codeLeaderNotAvailable},
		{"not the leader any more", leader{epoch: 6, ends: []int64{42}, codes: map[kmsg.Key]int16{kmsg.OffsetForLeaderEpoch: codeNotLeader}}, codeNotLeader},
		{"no READ on the topic", leader{epoch: 6, ends: []int64{42}, codes: map[kmsg.Key]int16{kmsg.DescribeProducers: 29}}, 29},
		{"no such topic", leader{epoch: 6, codes: map[kmsg.Key]int16{kmsg.Metadata: codeUnknownTopic}}, codeUnknownTopic},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				_, err := p.ReadView(ctx, testNode, testTopic, 0)
				wantCode(t, err, tc.code)
				if errors.Is(err, ErrUnreachable) {
					t.Error("an answer counts as unreachable")
				}
				if got, want := len(b.seen()), (maxEpochRefreshes+1)*6; got > want {
					t.Errorf("%d requests were made, want at most %d", got, want)
				}
				// The connection survives what a broker answers.
				_, err = p.ReadView(ctx, testNode, testTopic, 0)
				wantCode(t, err, tc.code)
				if got, want := b.dialled(), 1; got != want {
					t.Errorf("got %d dials, want %d", got, want)
				}
			})
		})
	}
	t.Run("partition out of the topic", func(t *testing.T) {
		l := leader{epoch: 6}
		b := &scriptedBroker{handle: l.handle}
		run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
			_, err := p.ReadView(ctx, testNode, testTopic, 4)
			wantCode(t, err, codeUnknownTopic)
		})
	})
	t.Run("another topic under the name", func(t *testing.T) {
		l := leader{epoch: 6, id: [16]byte{2}}
		b := &scriptedBroker{handle: l.handle}
		run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
			_, err := p.ReadView(ctx, testNode, Topic{testTopic.Name, [16]byte{1}}, 0)
			wantCode(t, err, codeUnknownTopicID)
		})
	})
}

// A topic that is deleted and created again may have the leader epoch that is
// remembered of it. The requests of a view go by name, so its view is taken for
// the old one's, until the epoch is asked for anew; other requests of the same
// broker renew what is remembered only if the id is the same.
func TestViewOfRecreatedTopicInTheSameEpoch(t *testing.T) {
	l := &leader{id: [16]byte{1}, ends: []int64{42}, high: 42}
	b := &scriptedBroker{handle: l.handle}
	was := Topic{testTopic.Name, [16]byte{1}}
	run(t, Config{Dial: b.dial, EpochMaxAge: 10 * time.Second}, func(t *testing.T, ctx context.Context, p *Pool) {
		read := func(topic Topic) error {
			_, err := p.ReadView(ctx, testNode, topic, 0)
			return err
		}
		if err := read(was); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		if err := read(was); err != nil {
			t.Fatal(err)
		}
		b.change(func() { l.id, l.ends, l.high = [16]byte{2}, []int64{0}, 0 })
		if err := read(Topic{testTopic.Name, [16]byte{2}}); err != nil {
			t.Errorf("the new topic: %v", err)
		}
		time.Sleep(time.Second)
		wantCode(t, read(was), codeUnknownTopicID)
	})
}

// Rounds that find no rest are paced from the third on, so that a log under
// load is not asked as fast as it answers.
func TestViewUnsteadyRoundsArePaced(t *testing.T) {
	l := &leader{epoch: 5, high: 1, batches: [][]byte{storedBatch(0, 9, 0, 0, 1, "x")}}
	for i := range 2 * 12 {
		l.ends = append(l.ends, int64(min(i, 22))) // equal in the twelfth round
	}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		began := time.Now()
		told := 0
		tell := func(highWatermark int64) {
			if told++; highWatermark != 1 {
				t.Errorf("told %d, want 1", highWatermark)
			}
		}
		if _, err := p.ReadViewTelling(ctx, testNode, testTopic, 0, tell); err != nil {
			t.Fatal(err)
		}
		if told != 9 { // after rounds 3 to 11
			t.Errorf("told %d times, want 9", told)
		}
		// 1, 2, 4, 8, 16, 32 and then 50 ms each, after rounds 3 to 11.
		if got, want := time.Since(began), 213*time.Millisecond; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

// A log that never comes to rest keeps a view read going only as long as its
// caller wants.
func TestViewUnsteadyEndsWithContext(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{1}, high: 1, batches: [][]byte{storedBatch(0, 9, 0, 0, 1, "x")}}
	l.onRequest = func(r kmsg.Request) {
		if r.Key() == int16(kmsg.OffsetForLeaderEpoch) {
			l.ends[0]++
		}
	}
	enough := errors.New("enough")
	rounds := 0
	var cancel context.CancelCauseFunc
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		if r.Key() == int16(kmsg.DescribeProducers) {
			if rounds++; rounds == 20 {
				cancel(enough)
			}
		}
		return l.handle(r)
	}}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		ctx, cancel = context.WithCancelCause(ctx)
		if _, err := p.ReadView(ctx, testNode, testTopic, 0); !errors.Is(err, enough) {
			t.Errorf("got %v, want the context's cause", err)
		}
	})
}
