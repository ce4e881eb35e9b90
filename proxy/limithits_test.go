package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// Each limit is told with what it is, by a level and in words of its own.
func TestLimitsHaveWords(t *testing.T) {
	values := new(Config).limitValues()
	for _, name := range limitNames {
		if words, ok := limitWords[name]; !ok || words.message == "" {
			t.Errorf("%s: there are no words for it", name)
		}
		if _, ok := values[name]; !ok {
			t.Errorf("%s: its value is not told", name)
		}
	}
	if len(limitWords) != len(limitNames) || len(values) != len(limitNames) {
		t.Errorf("got words for %d and values of %d, want %d", len(limitWords), len(values), len(limitNames))
	}
}

// However often a limit is hit, the log has a line a second for each.
func TestLimitsAreToldOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newLimitHits()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.run(ctx, &Config{MaxConnections: 7, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		}()
		for range 25 { // in 2.4 s
			h.hit(limitConnections, "remote", "somebody")
			h.hit(limitFrame)
			time.Sleep(100 * time.Millisecond)
		}
		h.hit(limitHeld) // told although it ends now
		cancel()
		<-ended
		for name, want := range map[string]int{limitConnections: 3, limitFrame: 3, limitHeld: 1} {
			if got := strings.Count(log.String(), "limit="+name); got != want {
				t.Errorf("%s: got %d lines, want %d", name, got, want)
			}
		}
		if want := "remote=somebody limit=max_connections value=7"; !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
		if got := h.counted[limitConnections].Load(); got != 25 {
			t.Errorf("counted %d, want 25", got)
		}
	})
}

// A log that blocks holds up nobody who hits a limit.
func TestLimitsDoNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimitHits() // nobody runs
		for range 100 {
			for _, name := range limitNames {
				h.hit(name)
			}
			time.Sleep(2 * hitLogInterval)
		}
		if got := h.counted[limitFrame].Load(); got != 100 {
			t.Errorf("counted %d, want 100", got)
		}
	})
}

// driver hits a limit in a proxy before a leader of topics.
type driver struct {
	cfg   Config
	drive func(l *leader, r *fencedRig)
}

// wantMemory has two clients begin requests of which there is memory for one.
func wantMemory(_ *leader, r *fencedRig) {
	frame := kafkatest.RequestFrame(1, produceOf(9, -1, part{topic: "fenced", records: make([]byte, 1<<20)}))
	r.dial().SendBytes(frame[:len(frame)/2])
	r.await("one has the memory", func() bool { return r.metrics.buffered[bufferedRequests].Load() > 0 })
	r.dial().SendBytes(frame[:len(frame)/2])
}

// drivers are of the limits, by name, but for max_held_bytes (see
// TestAnswersBeyondMaxHeldBytesWaitUpstream).
var drivers = map[string]driver{
	limitConnections: {Config{MaxConnections: 1}, func(_ *leader, r *fencedRig) {
		_ = r.dial().one(0, conditional(0, "a"))
		r.dial().ExpectClosed()
	}},
	limitAddress: {Config{MaxConnectionsPerAddress: 1}, func(_ *leader, r *fencedRig) {
		_ = r.dial().one(0, conditional(0, "a"))
		r.dial().ExpectClosed()
	}},
	limitFrame: {Config{MaxFrameBytes: 1000}, func(_ *leader, r *fencedRig) {
		r.dial().SendBytes(kafkatest.Length(1001))
	}},
	limitPending: {Config{MaxPendingRequests: 1}, func(l *leader, r *fencedRig) {
		l.hook(func(*kmsg.ProduceRequest) fate { return fateSilent })
		c := r.dial()
		c.send(produceOf(9, -1, part{topic: "free", records: conditional(0, "a")}))
		c.send(produceOf(9, -1, part{topic: "free", records: conditional(0, "a")}))
	}},
	limitRewritten: {Config{MaxRewrittenBytes: 200}, func(_ *leader, r *fencedRig) {
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Version = 9
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(strings.Repeat("t", 249))
		metadata.Topics = append(metadata.Topics, topic)
		r.dial().send(metadata)
	}},
	limitPartitions: {Config{MaxProducePartitions: 1}, func(_ *leader, r *fencedRig) {
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}, part{topic: "fenced", partition: 1, records: conditional(0, "a")}))
	}},
	limitUnpacked: {Config{MaxDecompressedBytes: 1000}, func(_ *leader, r *fencedRig) {
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: gzipped(conditional(0, strings.Repeat("v", 2000)))}))
	}},
	limitRuleTopics: {Config{MaxRuleTopics: 1}, func(_ *leader, r *fencedRig) {
		r.dial().send(produceOf(9, -1, part{topic: "free", records: conditional(0, "a")}, part{topic: "fenced", records: conditional(0, "a")}))
	}},
	limitAddPartitions: {Config{MaxAddPartitionsBytes: 10}, func(_ *leader, r *fencedRig) {
		r.dial().send(addTopics(1, "fenced"))
	}},
	limitTopics: {Config{MaxTopics: 1}, func(_ *leader, r *fencedRig) {
		r.dial().produce(9, -1, part{topic: "fenced", records: conditional(0, "a")}, part{topic: "fenced-2", records: conditional(0, "a")})
	}},
	limitUnknown: {Config{MaxUnknown: 1}, func(l *leader, r *fencedRig) {
		l.hook(func(*kmsg.ProduceRequest) fate { return fateCutBefore })
		request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
		request.TimeoutMillis = 100
		c := r.dial()
		c.expect(c.send(request), 9)
		r.dial().one(0, conditional(0, "b"))
	}},
	limitReadings: {Config{MaxReadings: 1}, func(l *leader, r *fencedRig) {
		r.dial().one(3, conditional(0, "a"))
		defer l.holdViews()()
		before := l.count(kmsg.DescribeProducers)
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
		r.await("a view is being read", func() bool { return l.count(kmsg.DescribeProducers) > before })
		r.dial().send(produceOf(9, -1, part{topic: "fenced", partition: 1, records: conditional(0, "a")}))
		r.await("one waits", func() bool { return r.metrics.limits.counted[limitReadings].Load() > 0 })
	}},
	limitReading: {Config{ReadingTimeout: 50 * time.Millisecond}, func(l *leader, r *fencedRig) {
		l.holdViews() // until the end of the test
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	}},
	limitReadBack: {Config{MaxReadBackBytes: 1}, func(l *leader, r *fencedRig) {
		l.bypass("fenced", 0, "x")
		l.bypass("fenced", 0, "y")
		l.bypass("fenced", 0, "z")
		r.dial().one(0, conditional(0, "a", "b", "c"))
	}},
	limitControl: {Config{MaxControlBytes: 1000}, func(l *leader, r *fencedRig) {
		l.bypass("fenced", 0, strings.Repeat("x", 2000))
		r.dial().send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")}))
	}},
	limitLookup: {Config{LookupTimeout: 50 * time.Millisecond}, func(l *leader, r *fencedRig) {
		l.change(func() {
			l.onOther = func(q kmsg.Request) bool {
				if m, ok := q.(*kmsg.MetadataRequest); ok && len(m.Topics) > 0 {
					l.wait(nil)
				}
				return true
			}
		})
		r.dial().one(0, conditional(0, "a"))
	}},
	limitAnswer: {Config{AnswerMax: 50 * time.Millisecond}, func(l *leader, r *fencedRig) {
		l.hook(func(*kmsg.ProduceRequest) fate { return fateSilent })
		request := produceOf(9, -1, part{topic: "fenced", records: conditional(0, "a")})
		request.TimeoutMillis = 1000
		r.dial().send(request)
	}},
	limitOldReads: {Config{OldReadsPerSecond: 1}, func(_ *leader, r *fencedRig) {
		c := manyOld(r.t.(*testing.T), r)
		for i := range int64(5) {
			c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(i, "x")}))
		}
	}},
	limitIdleViews: {Config{IdleViews: 1}, func(_ *leader, r *fencedRig) {
		c := r.dial()
		c.one(0, conditional(0, "a"))
		c.one(1, conditional(0, "a"))
	}},
	limitProducers: {Config{MaxProducers: 1}, func(_ *leader, r *fencedRig) {
		c := r.dial()
		for i := range int64(2) {
			batch := conditional(i, "x")
			wire.Stamp(batch, 100+i, 0, 0, time.Now().UnixMilli())
			c.one(0, batch)
		}
	}},
	limitBuffered: {Config{MaxBufferedBytes: 1 << 20}, wantMemory},
	limitArrival:  {Config{MaxBufferedBytes: 1 << 20, ArrivalTimeout: 50 * time.Millisecond}, wantMemory},
	limitWrite: {Config{WriteTimeout: 50 * time.Millisecond}, func(l *leader, r *fencedRig) {
		l.bypass("free", 0, strings.Repeat("x", 8<<20))
		c := r.dial()
		for range 10 {
			fetch := kmsg.NewPtrFetchRequest()
			fetch.Version = 12
			topic, partition := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
			topic.Topic, topic.Partitions = "free", append(topic.Partitions, partition)
			fetch.Topics = append(fetch.Topics, topic)
			c.send(fetch)
		}
	}},
	limitMetricTopics: {Config{MetricTopics: 1}, func(_ *leader, r *fencedRig) {
		r.dial().produce(9, -1, part{topic: "fenced", records: conditional(0, "a")}, part{topic: "fenced-2", records: conditional(0, "a")})
	}},
	limitIdle: {Config{IdleTimeout: 50 * time.Millisecond}, func(_ *leader, r *fencedRig) {
		c := r.dial()
		c.one(0, conditional(0, "a"))
		c.ExpectClosed()
	}},
}

// Each limit that is hit is counted, and the log says so.
func TestLimitsAreCountedAndTold(t *testing.T) {
	for _, name := range limitNames {
		if name == limitHeld {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, ok := drivers[name]
			if !ok {
				t.Fatal("nothing hits it")
			}
			l := newLeader(t, "fenced", "fenced-2", "free")
			r := newFencedRig(t, d.cfg, l)
			if got := r.log.count("limit=" + name); got != 0 {
				t.Fatalf("the log says %d times that it was hit before it was", got)
			}
			d.drive(l, r)
			r.await("it is counted", func() bool { return r.metrics.limits.counted[name].Load() > 0 })
			r.await("it is told", func() bool { return r.log.count("limit="+name+" value=") > 0 })
			// Of the others only those that go with it.
			for _, other := range limitNames {
				if other != name && r.log.count("limit="+other+" ") > 0 && !(name == limitArrival && other == limitBuffered) {
					t.Errorf("%s is told too", other)
				}
			}
		})
	}
}
