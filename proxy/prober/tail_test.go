package prober

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

func TestLastBatchBelow(t *testing.T) {
	first := storedBatch(0, 9, 0, 0, 1, "a", "b")
	second := storedBatch(2, testFence, 0, 2, 1, "c", "d")
	both := bytes.Join([][]byte{first, second}, nil)
	broken := bytes.Clone(both)
	broken[len(broken)-1] ^= 1
	for _, tc := range []struct {
		name    string
		batches []byte
		limit   int64
		base    int64 // −1: none
		err     error
	}{
		{"nothing", nil, 4, -1, nil},
		{"both below", both, 4, 2, nil},
		{"the second across the limit", both, 3, 0, nil},
		{"the second above", both, 2, 0, nil},
		{"the first across the limit", both, 1, -1, nil},
		{"the second cut", both[:len(both)-1], 4, 0, nil},
		{"the header of the second cut", both[:len(first)+20], 4, 0, nil},
		{"the first cut", first[:30], 4, -1, nil},
		{"the second broken", broken, 4, -1, wire.ErrBadCRC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			last, found, err := lastBatchBelow(tc.batches, tc.limit)
			if !errors.Is(err, tc.err) || found != (tc.base >= 0) || found && last.BaseOffset != tc.base {
				t.Errorf("got base offset %d, found %v, error %v, want %d and %v", last.BaseOffset, found, err, tc.base, tc.err)
			}
		})
	}
}

// A batch that does not end at the log end says nothing about the state there.
func TestTailAnswerEndsAtLogEnd(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{9}, high: 9, batches: [][]byte{storedBatch(4, testFence, 1, 10, 777, "a", "b", "c")}}
	at := fuzzTarget()
	req, err := at.fetch(6, 1)
	if err != nil {
		t.Fatal(err)
	}
	answer := l.fetch(req)
	answer.SetVersion(req.GetVersion())
	for _, tc := range []struct {
		logEnd int64
		has    bool
	}{{6, false}, {7, true}, {8, false}} {
		got, err := at.tailAnswer(req, answer.(*kmsg.FetchResponse).AppendTo(nil), testFence, tc.logEnd)
		if err != nil {
			t.Fatal(err)
		}
		if got.has != tc.has {
			t.Errorf("log end %d: got state %+v, want %v", tc.logEnd, got, tc.has)
		}
	}
}

// What a Fetch gives beyond the limit is not taken, not even of a batch that
// lies across it.
func TestTakeStopsAtLimit(t *testing.T) {
	batches := bytes.Join([][]byte{storedBatch(0, 9, 0, 0, 1, "a", "b", "c"), storedBatch(3, 9, 0, 3, 1, "d")}, nil)
	p := New(Config{Dial: noDial, FenceID: testFence, Logger: slog.New(slog.DiscardHandler)})
	for _, tc := range []struct {
		from, limit int64
		offsets     []int64
		next        int64
	}{
		{0, 2, []int64{0, 1}, 2},
		{1, 3, []int64{1, 2}, 3},
		{0, 9, []int64{0, 1, 2, 3}, 4},
		{2, 2, nil, 2},
		{2, 1, nil, 2}, // the high watermark is below what was asked for
	} {
		r := Records{NextOffset: tc.from}
		if err := p.take(&r, testTopic.Name, batches, tc.limit); err != nil {
			t.Fatal(err)
		}
		if got := offsetsOf(r); !equalOffsets(got, tc.offsets) || r.NextOffset != tc.next {
			t.Errorf("from %d below %d: got %v and next %d, want %v and %d", tc.from, tc.limit, got, r.NextOffset, tc.offsets, tc.next)
		}
	}
}
