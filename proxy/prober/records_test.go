package prober

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// offsetsOf lists the offsets that were read back.
func offsetsOf(r Records) []int64 {
	var offsets []int64
	for _, s := range r.Records {
		offsets = append(offsets, s.Offset)
	}
	return offsets
}

func equalOffsets(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestReadRecords(t *testing.T) {
	// Offsets 0–3, 4–6, then a gap (compaction), 10–11, and 12 above the
	// high watermark.
	log := func() leader {
		return leader{epoch: 5, ends: []int64{13}, high: 12, batches: [][]byte{
			storedBatch(0, 9, 0, 0, 1, "a", "b", "c", "d"),
			storedBatch(4, testFence, 0, 4, 2, "e", "f", "g"),
			storedBatch(10, testFence, 0, 7, 3, "h", "i"),
			storedBatch(12, testFence, 0, 9, 4, "j"),
		}}
	}
	deleted := log()
	deleted.start = 4
	eager := log()
	eager.eager = true
	for _, tc := range []struct {
		name       string
		l          leader
		cfg        Config
		from, upTo int64
		offsets    []int64
		next       int64
		fetches    int
	}{
		{"inside one batch", log(), Config{}, 1, 3, []int64{1, 2}, 3, 1},
		{"over two batches", log(), Config{}, 2, 6, []int64{2, 3, 4, 5}, 6, 1},
		{"up to the high watermark", log(), Config{}, 5, 100, []int64{5, 6, 10, 11}, 12, 1},
		{"given more than the high watermark", eager, Config{}, 5, 100, []int64{5, 6, 10, 11}, 12, 1},
		{"at the high watermark", log(), Config{}, 12, 13, nil, 12, 1},
		{"at the log end", log(), Config{}, 13, 14, nil, 13, 1},
		{"only a gap", log(), Config{}, 7, 9, nil, 9, 1},
		{"a gap and more", log(), Config{}, 7, 11, []int64{10}, 11, 1},
		{"nothing asked", log(), Config{}, 5, 5, nil, 5, 1},
		{"a batch at a time", log(), Config{ReadBytes: 1}, 0, 12, []int64{0, 1, 2, 3}, 4, 1},
		{"the second batch cut", log(), Config{ReadBytes: 150}, 0, 12, []int64{0, 1, 2, 3}, 4, 1},
		{"bounded by records", log(), Config{MaxRecords: 5}, 1, 12, []int64{1, 2, 3, 4, 5}, 6, 1},
		{"below the log start", deleted, Config{}, 2, 6, nil, 4, 1},
		{"wholly below the log start", deleted, Config{}, 0, 2, nil, 2, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			tc.cfg.Dial = b.dial
			run(t, tc.cfg, func(t *testing.T, ctx context.Context, p *Pool) {
				got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, tc.from, tc.upTo)
				if err != nil {
					t.Fatal(err)
				}
				if offsets := offsetsOf(got); !equalOffsets(offsets, tc.offsets) {
					t.Errorf("got offsets %v, want %v", offsets, tc.offsets)
				}
				if got.NextOffset != tc.next || got.HighWatermark != 12 || got.LogEnd != 13 || got.LogStart != tc.l.start {
					t.Errorf("got next %d, high watermark %d, log end %d, log start %d, want %d, 12, 13, %d",
						got.NextOffset, got.HighWatermark, got.LogEnd, got.LogStart, tc.next, tc.l.start)
				}
				fetches := 0
				for _, r := range b.seen() {
					if r, ok := r.(*kmsg.FetchRequest); ok {
						fetches++
						p := r.Topics[0].Partitions[0]
						if p.CurrentLeaderEpoch != 5 || r.MaxWaitMillis != 0 || r.IsolationLevel != 0 || r.ReplicaID != -1 || r.SessionEpoch != -1 {
							t.Errorf("the Fetch carries %+v", r)
						}
					}
				}
				if fetches != tc.fetches {
					t.Errorf("got %d fetches, want %d", fetches, tc.fetches)
				}
			})
		})
	}
}

// What a record is and whose batch it stands in come through.
func TestReadRecordsContent(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{4}, high: 4, batches: [][]byte{
		storedBatch(0, testFence, 3, 8, 1, "same", "other"),
		storedBatch(2, 9, 0, 0, 2, "same", "more"),
	}}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != 4 {
			t.Fatalf("got %d records, want 4", len(got.Records))
		}
		r := got.Records
		if r[0].Digest != r[2].Digest || r[0].Digest == r[1].Digest || r[0].Digest == r[3].Digest {
			t.Errorf("digests do not tell equal from different records: %v", r)
		}
		if h := r[1].Batch; h.ProducerID != testFence || h.ProducerEpoch != 3 || h.BaseSequence != 8 || h.BaseOffset != 0 {
			t.Errorf("got batch %+v", h)
		}
		if h := r[2].Batch; h.ProducerID != 9 || h.BaseOffset != 2 {
			t.Errorf("got batch %+v", h)
		}
	})
}

// A first batch above the fetch size comes whole; one behind it is cut and
// fetched again.
func TestReadRecordsLargeBatches(t *testing.T) {
	large := strings.Repeat("x", firstReadBytes)
	l := leader{epoch: 5, ends: []int64{40}, high: 40}
	for i := range int64(40) {
		l.batches = append(l.batches, storedBatch(i, testFence, 0, int32(i), 1, large))
	}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 40)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != 40 || got.NextOffset != 40 {
			t.Errorf("got %d records and next %d, want 40 and 40", len(got.Records), got.NextOffset)
		}
	})
}

func TestReadRecordsByteBound(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{40}, high: 40}
	for i := range int64(40) {
		l.batches = append(l.batches, storedBatch(i, testFence, 0, int32(i), 1, strings.Repeat("x", 64<<10)))
	}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial, ReadBytes: 200 << 10}, func(t *testing.T, ctx context.Context, p *Pool) {
		// One batch by the first Fetch; two and a piece by the second.
		got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 40)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != 3 || got.NextOffset != 3 {
			t.Errorf("got %d records and next %d, want 3 and 3", len(got.Records), got.NextOffset)
		}
	})
}

func TestReadRecordsOutsideLog(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{13}, high: 12, start: 4}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 14, 15)
		wantCode(t, err, codeOffsetOutOfRange)
		if got.HighWatermark != 12 || got.LogStart != 4 || got.LogEnd != 13 || got.NextOffset != 14 {
			t.Errorf("got %+v", got)
		}
	})
}

// A broker that answers a Fetch with nothing does not make the call spin.
func TestReadRecordsNothingGiven(t *testing.T) {
	l := leader{epoch: 5, ends: []int64{13}, high: 12} // no batches
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 3, 6)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Records) != 0 || got.NextOffset != 3 || got.HighWatermark != 12 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestReadRecordsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		l     leader
		epoch int32
		code  int16
	}{
		{"an older epoch", leader{epoch: 6, ends: []int64{9}}, 5, codeFencedLeaderEpoch},
		{"a newer epoch", leader{epoch: 4, ends: []int64{9}}, 5, codeUnknownLeaderEpoch},
		{"not the leader", leader{epoch: 5, ends: []int64{9}, codes: map[kmsg.Key]int16{kmsg.Fetch: codeNotLeader}}, 5, codeNotLeader},
		{"the log end of another epoch", leader{epoch: 5, endEpoch: -1, ends: []int64{9}}, 5, codeUnknownLeaderEpoch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: tc.l.handle}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				_, err := p.ReadRecords(ctx, testNode, testTopic, 0, tc.epoch, 3, 6)
				wantCode(t, err, tc.code)
				if got, want := b.dialled(), 1; got != want {
					t.Errorf("got %d dials, want %d", got, want)
				}
			})
		})
	}
}

func TestReadRecordsCorrupt(t *testing.T) {
	good := storedBatch(0, testFence, 0, 0, 1, "a", "b")
	flipped := storedBatch(2, testFence, 0, 2, 1, "c", "d")
	flipped[len(flipped)-2] ^= 1
	lying := storedBatch(2, testFence, 0, 2, 1, "c", "d")
	lying[60] = 9 // the record count
	resum(lying)
	for _, tc := range []struct {
		name  string
		batch []byte
		want  error
	}{
		{"checksum", flipped, wire.ErrBadCRC},
		{"record count", lying, wire.ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leader{epoch: 5, ends: []int64{4}, high: 4, batches: [][]byte{good, tc.batch}}
			b := &scriptedBroker{handle: l.handle}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				if _, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 4); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				// What stands before it can still be read.
				got, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 2)
				if err != nil || len(got.Records) != 2 {
					t.Errorf("got %d records and %v, want 2", len(got.Records), err)
				}
			})
		})
	}
}

// With a topic id Fetch goes by id; a broker without ids is asked by name.
func TestFetchByID(t *testing.T) {
	id := [16]byte{1, 2, 3}
	l := leader{epoch: 5, id: id, ends: []int64{1}, high: 1, batches: [][]byte{storedBatch(0, 9, 0, 0, 1, "a")}}
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		topic := Topic{Name: testTopic.Name, ID: id}
		read := func() *kmsg.FetchRequest {
			t.Helper()
			got, err := p.ReadRecords(ctx, testNode, topic, 0, 5, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Records) != 1 {
				t.Errorf("got %d records, want 1", len(got.Records))
			}
			seen := b.seen()
			return seen[len(seen)-2].(*kmsg.FetchRequest)
		}
		if r := read(); r.Version != 13 || r.Topics[0].TopicID != id {
			t.Errorf("got Fetch v%d for id %x, want v13 for %x", r.Version, r.Topics[0].TopicID, id)
		}
		c, err := p.connection(ctx, testNode)
		if err != nil {
			t.Fatal(err)
		}
		c.versions[int16(kmsg.Fetch)] = versionRange{0, 12}
		if r := read(); r.Version != 10 || r.Topics[0].Topic != topic.Name {
			t.Errorf("got Fetch v%d for %q, want v10 for %q", r.Version, r.Topics[0].Topic, topic.Name)
		}
	})
}
