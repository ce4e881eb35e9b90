package prober

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// slowly answers after a second; what it says is of the moment it was asked.
func slowly(l *leader) *scriptedBroker {
	return &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		do.late = time.Second
		return do
	}}
}

// asked counts the requests of an api.
func (b *scriptedBroker) asked(key kmsg.Key) int {
	n := 0
	for _, r := range b.seen() {
		if r.Key() == int16(key) {
			n++
		}
	}
	return n
}

// All who ask about a topic while an answer is awaited share the next one, which
// is asked for after they have called: the one on its way may be of before.
func TestTopicIsAskedForOnceByAll(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{0}}
	b := slowly(l)
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		var calls sync.WaitGroup
		ask := func(want int32) {
			calls.Go(func() {
				info, err := p.ReadTopic(ctx, testNode, testTopic.Name)
				if err != nil {
					t.Error(err)
					return
				}
				if got, _ := info.Find(3); got.LeaderEpoch != want {
					t.Errorf("got epoch %d, want %d", got.LeaderEpoch, want)
				}
			})
		}
		ask(5)
		synctest.Wait() // it is on its way
		b.change(func() { l.epoch = 6 })
		for range 100 {
			ask(6)
		}
		calls.Wait()
		if got := b.asked(kmsg.Metadata); got != 2 {
			t.Errorf("got %d requests, want 2", got)
		}
		ask(6)
		calls.Wait()
		if got := b.asked(kmsg.Metadata); got != 3 {
			t.Errorf("a later call: got %d requests, want 3", got)
		}
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.asks) != 0 {
			t.Errorf("%d questions are remembered that nobody asks", len(p.asks))
		}
	})
}

// Other topics, other brokers and names and ids are other questions.
func TestTopicAsksAreNotConfused(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{0}, id: [16]byte{7}}
	b := slowly(l)
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		var calls sync.WaitGroup
		for _, name := range []string{"orders", "payments"} {
			for _, node := range []int32{testNode, testNode + 1} {
				calls.Go(func() {
					if info, err := p.ReadTopic(ctx, node, name); err != nil || info.Topic.Name != name {
						t.Errorf("got %+v, %v, want %s", info.Topic, err, name)
					}
				})
			}
		}
		calls.Go(func() {
			if info, err := p.ReadTopicByID(ctx, testNode, l.id); err != nil || info.Topic.ID != l.id {
				t.Errorf("got %+v, %v", info.Topic, err)
			}
		})
		calls.Wait()
		if got := b.asked(kmsg.Metadata); got != 5 {
			t.Errorf("got %d requests, want 5", got)
		}
	})
}

// Who gives up does not wait, and takes nothing from those who wait on.
func TestTopicAskGivenUp(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{0}}
	b := slowly(l)
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		impatient, cancel := context.WithCancelCause(ctx)
		enough := errors.New("enough")
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if _, err := p.ReadTopic(impatient, testNode, "orders"); !errors.Is(err, enough) {
					t.Errorf("got %v, want the context's cause", err)
				}
			})
		}
		synctest.Wait()
		calls.Go(func() {
			if _, err := p.ReadTopic(ctx, testNode, "orders"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel(enough)
		calls.Wait()
		if _, err := p.ReadTopic(impatient, testNode, "orders"); !errors.Is(err, enough) {
			t.Errorf("with a context that has ended: got %v", err)
		}
	})
}

func TestTopicAsksEndWithThePool(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{0}}
	b := slowly(l)
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		other := New(Config{Dial: b.dial, FenceID: testFence})
		running, stop := context.WithCancel(ctx)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				if _, err := other.ReadTopic(ctx, testNode, "orders"); !errors.Is(err, ErrClosed) {
					t.Errorf("got %v, want ErrClosed", err)
				}
			})
		}
		synctest.Wait()
		stop()
		if err := other.Run(running); err != nil {
			t.Error(err)
		}
		calls.Wait()
		if _, err := other.ReadTopic(ctx, testNode, "orders"); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: got %v, want ErrClosed", err)
		}
		time.Sleep(time.Minute) // the scripted broker ends too
	})
}

// The answer for one partition serves the views of all that the broker leads.
func TestEpochsOfATopicAreLearntTogether(t *testing.T) {
	for _, c := range []struct {
		name   string
		epochs int
		want   int // requests for four partitions
	}{{"room for them", 8, 1}, {"too many of them", 7, 4}} {
		t.Run(c.name, func(t *testing.T) {
			l := &leader{epoch: 5, ends: []int64{0}, id: [16]byte{7}}
			b := &scriptedBroker{handle: l.handle}
			topic := Topic{testTopic.Name, l.id}
			run(t, Config{Dial: b.dial, Epochs: c.epochs}, func(t *testing.T, ctx context.Context, p *Pool) {
				for partition := range int32(4) {
					if _, err := p.ReadView(ctx, testNode, topic, partition); err != nil {
						t.Fatal(err)
					}
				}
				if got := b.asked(kmsg.Metadata); got != c.want {
					t.Errorf("got %d requests, want %d", got, c.want)
				}
			})
		})
	}
}

// The age of an epoch is told by the clock that the Pool is given, which may run
// on while Go's stands still.
func TestEpochsAgeByTheClockGiven(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{0}}
	b := &scriptedBroker{handle: l.handle}
	var now time.Duration
	cfg := Config{Dial: b.dial, EpochMaxAge: time.Minute, Clock: func() time.Duration { return now }}
	run(t, cfg, func(t *testing.T, ctx context.Context, p *Pool) {
		for _, step := range []struct {
			by   time.Duration
			want int
		}{{0, 1}, {time.Minute - 1, 1}, {1, 2}, {time.Hour, 3}} {
			now += step.by
			if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
				t.Fatal(err)
			}
			if got := b.asked(kmsg.Metadata); got != step.want {
				t.Errorf("at %v: got %d requests, want %d", now, got, step.want)
			}
		}
	})
}

func TestPartitionsAreFoundInAnyOrder(t *testing.T) {
	info := TopicInfo{Partitions: []PartitionInfo{{Partition: 2, Leader: 9}, {Partition: 1, Leader: 8}}}
	for partition, want := range map[int32]int32{2: 9, 1: 8} {
		if got, ok := info.Find(partition); !ok || got.Leader != want {
			t.Errorf("partition %d: got %+v, %v", partition, got, ok)
		}
	}
	for _, partition := range []int32{-1, 0, 3} {
		if got, ok := info.Find(partition); ok {
			t.Errorf("partition %d: got %+v, want none", partition, got)
		}
	}
}
