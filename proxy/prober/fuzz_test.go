package prober

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzAnswers reads arbitrary bytes as the answer of every API in use. Each
// must end in a value within its bounds, a broker's error or ErrUnreachable.
func FuzzAnswers(f *testing.F) {
	l := leader{epoch: 5, ends: []int64{7}, high: 7, batches: [][]byte{storedBatch(4, testFence, 1, 10, 777, "a", "b", "c")},
		producers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{producer(testFence, 1, 12, 777)}}
	at := fuzzTarget()
	for _, make := range []func() (kmsg.Request, error){
		func() (kmsg.Request, error) { return at.epochEnd() },
		func() (kmsg.Request, error) { return at.producers() },
		func() (kmsg.Request, error) { return at.offset(latest) },
		func() (kmsg.Request, error) { return at.fetch(4, 1000) },
	} {
		req, err := make()
		if err != nil {
			f.Fatal(err)
		}
		resp := l.handle(req).resp
		resp.SetVersion(req.GetVersion())
		var b []byte
		if resp.IsFlexible() {
			b = append(b, 0)
		}
		f.Add(resp.AppendTo(b))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		checkError := func(err error) {
			t.Helper()
			var refused *BrokerError
			if err != nil && !errors.As(err, &refused) && !errors.Is(err, ErrUnreachable) {
				t.Errorf("unexpected kind of error: %v", err)
			}
		}
		at := fuzzTarget()
		end, _ := at.epochEnd()
		if offset, err := at.epochEndAnswer(end, answer); err == nil && offset < 0 {
			t.Errorf("log end %d", offset)
		} else {
			checkError(err)
		}
		producers, _ := at.producers()
		if state, err := at.producersAnswer(producers, answer, testFence); err == nil && (state.lastSequence < -1 || state.has && state.epoch < 0) {
			t.Errorf("state %+v", state)
		} else {
			checkError(err)
		}
		high, _ := at.offset(latest)
		if offset, err := at.offsetAnswer(high, answer); err == nil && offset < -1 {
			t.Errorf("offset %d", offset)
		} else {
			checkError(err)
		}
		fetch, _ := at.fetch(4, 1000)
		got, err := at.fetchAnswer(fetch, answer)
		if err == nil && (got.highWatermark < 0 || got.logStart < -1) {
			t.Errorf("fetched %+v", got)
		}
		checkError(err)
		if last, found, err := lastBatchBelow(got.batches, got.highWatermark); err == nil && found && afterBatch(last) > got.highWatermark {
			t.Errorf("batch %+v above %d", last, got.highWatermark)
		}
		p := New(Config{Dial: noDial, FenceID: testFence, MaxDecompressed: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
		r := Records{NextOffset: 4}
		if err := p.take(&r, testTopic.Name, got.batches, got.highWatermark); err == nil && (r.NextOffset < 4 || r.NextOffset > max(4, got.highWatermark)) {
			t.Errorf("next offset %d of high watermark %d", r.NextOffset, got.highWatermark)
		}
		for _, s := range r.Records {
			if s.Offset < 4 || s.Offset >= got.highWatermark {
				t.Errorf("record at %d of high watermark %d", s.Offset, got.highWatermark)
			}
		}
	})
}

// fuzzTarget is a partition on a connection that leads nowhere.
func fuzzTarget() target {
	near, far := net.Pipe()
	far.Close()
	c := newConn(testNode, near, 1, Config{Dial: noDial, FenceID: testFence, Logger: slog.New(slog.DiscardHandler)}.withDefaults())
	c.versions = map[int16]versionRange{}
	for key := range int16(70) {
		c.versions[key] = versionRange{0, 10}
	}
	return target{c, testTopic, 0, 5}
}
