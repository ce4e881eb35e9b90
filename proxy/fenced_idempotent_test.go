package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

const clientProducer = 4711

// sequenced gives a batch a client's producer id, with an epoch and a sequence.
func sequenced(epoch int16, sequence int32, batch []byte) []byte {
	wire.Stamp(batch, clientProducer, epoch, sequence, time.Now().UnixMilli())
	return batch
}

func oneFenced(batch []byte) *kmsg.ProduceRequest {
	return produceOf(9, -1, part{topic: "fenced", records: batch})
}

// A client library whose answer was lost sends its batch again by itself. Without
// an append-id, only by the client's sequence is it known for a retry.
func TestRetryOfAnIdempotentClientIsTheSameSuccess(t *testing.T) {
	for name, again := range map[string]struct {
		batch   []byte
		code    int16
		base    int64
		message string
	}{
		"idempotent": {sequenced(0, 0, conditional(0, "a")), 0, 0, ""},
		"not idempotent": {
			conditional(0, "a"), -1, -1, "outcome unknown: expected=0 next=1; read the partition from 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{}, l)
			first := r.dial()
			first.send(oneFenced(slices.Clone(again.batch)))
			r.await("the first is appended", func() bool { return r.outcomes(outcomeWon) == 1 })
			_ = first.Close() // its answer is not read
			wantResult(t, r.dial().one(0, again.batch), again.code, again.base, again.message)
			if got, want := l.values("fenced", 0), []string{"a"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
		})
	}
}

// The broker's answer is lost, and the retry comes while the proxy waits for it or
// reads the log: appended once, also where the batch has no condition and there is
// nothing else to know it by.
func TestRetryOfAnUnconditionalBatchIsNoSecondAppend(t *testing.T) {
	for name, batch := range map[string][]byte{
		"idempotent": sequenced(0, 0, plain("a")), "not idempotent": plain("a"),
		// Without a condition append-id is anybody's header.
		"append-ids on some": sequenced(0, 0, batchOf(batchOptions{}, record{value: "a", appendID: "x"}, record{value: "b"})),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, enforceAll, l)
			cut := false
			l.hook(func(*kmsg.ProduceRequest) fate {
				if !cut {
					cut = true
					return fateCutAfter
				}
				return fateAnswer
			})
			c := r.dial()
			c.send(oneFenced(slices.Clone(batch)))
			c.ExpectClosed()
			got := r.dial().one(0, slices.Clone(batch))
			want, at := []string{"a"}, int64(0)
			switch name {
			case "not idempotent":
				want, at = []string{"a", "a"}, 1 // the twin: it is another batch
			case "append-ids on some":
				want = []string{"a", "b"}
			}
			wantResult(t, got, 0, at, "")
			if got := l.values("fenced", 0); !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
		})
	}
}

// A client pipelines two batches; the broker refuses the first while the second
// is in the proxy, which would be appended as it expects what is the end.
func TestWhatIsPipelinedBehindARefusedBatchIsRefused(t *testing.T) {
	for name, wrap := range map[string]func(epoch int16, sequence int32, batch []byte) []byte{
		"idempotent":     sequenced,
		"not idempotent": func(_ int16, _ int32, batch []byte) []byte { return batch },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{}, l)
			c := r.dial()
			wantResult(t, c.one(0, wrap(0, 0, conditional(0, "before"))), 0, 0, "")
			goOn, refuse := make(chan struct{}), true
			l.hook(func(*kmsg.ProduceRequest) fate {
				l.wait(goOn)
				return fateAnswer
			})
			l.change(func() {
				l.edit = func(a *kmsg.ProduceResponse) {
					if p := &a.Topics[0].Partitions[0]; refuse {
						// Refused before anything of it was appended.
						log := l.partition("fenced", 0)
						log.batches, log.end, log.next = log.batches[:1], 1, 1
						p.ErrorCode, p.BaseOffset, refuse = 87, -1, false
					}
				}
			})
			first := c.send(oneFenced(wrap(0, 1, conditional(1, "k"))))
			second := c.send(oneFenced(wrap(0, 2, conditional(1, "behind"))))
			r.await("both are in the proxy", func() bool { return r.users() == 2 })
			close(goOn)
			wantResult(t, resultsOf(c.expect(first, 9))[0], 87, -1, "")
			got := resultsOf(c.expect(second, 9))[0]
			if name == "not idempotent" {
				wantResult(t, got, 0, 1, "") // the twin: it is judged alone
				return
			}
			wantResult(t, got, 1, -1, "predecessor refused: expected=1")
			// What still arrives is behind the gap, until the client goes back.
			wantResult(t, c.one(0, wrap(0, 3, conditional(1, "late"))), 1, -1, "predecessor refused: expected=1")
			wantResult(t, c.one(0, wrap(0, 1, conditional(1, "rewound"))), 0, 1, "")
			wantResult(t, c.one(0, wrap(0, 2, conditional(2, "and on"))), 0, 2, "")
			if got, want := l.values("fenced", 0), []string{"before", "rewound", "and on"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
			if got := r.outcomes(outcomePredecessor); got != 2 {
				t.Errorf("got %d counted as behind a refused batch, want 2", got)
			}
		})
	}
}

// users is the number of batches in work.
func (r *fencedRig) users() int {
	r.fencing.mu.Lock()
	defer r.fencing.mu.Unlock()
	n := 0
	for _, l := range r.fencing.lanes {
		n += int(l.users.Load())
	}
	return n
}

// A batch that is refused for its form never reaches the fence, and breaks the
// chain all the same.
func TestWhatIsBehindAMalformedBatchIsRefused(t *testing.T) {
	malformed := func() []byte { return batchOf(batchOptions{}, record{value: "k", expected: "+0"}) }
	old := func() []byte {
		return batchOf(batchOptions{timestamp: time.Now().Add(-48 * time.Hour).UnixMilli()}, record{value: "k", expected: "0"})
	}
	stamped := func(batch []byte, maxTime int64) []byte {
		wire.Stamp(batch, clientProducer, 0, 0, maxTime)
		return batch
	}
	for name, test := range map[string]struct {
		batch []byte
		code  int16
	}{
		"malformed": {stamped(malformed(), time.Now().UnixMilli()), 87},
		"old":       {stamped(old(), time.Now().Add(-48*time.Hour).UnixMilli()), 32},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			c := newFencedRig(t, Config{}, l).dial()
			if got := c.one(0, test.batch); got.Code != test.code {
				t.Errorf("got %+v, want code %d", got, test.code)
			}
			wantResult(t, c.one(0, sequenced(0, 1, conditional(0, "behind"))), 1, -1, "predecessor refused: expected=0")
			wantResult(t, c.one(0, sequenced(0, 0, conditional(0, "again"))), 0, 0, "")
		})
	}
}

// The proxy says what brokers say of sequences, which do not see the client's.
func TestSequencesOfIdempotentClients(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, sequenced(1, 7, conditional(0, "a"))), 0, 0, "")
	wantResult(t, c.one(0, sequenced(1, 9, conditional(1, "gap"))), 45, -1, messageSequence)
	wantResult(t, c.one(0, sequenced(0, 8, conditional(1, "old epoch"))), 47, -1, messageEpoch)
	wantResult(t, c.one(0, sequenced(2, 8, conditional(1, "new epoch"))), 45, -1, messageSequence)
	wantResult(t, c.one(0, sequenced(1, -1, conditional(1, "none"))), 87, -1, messageNoSequence)
	wantResult(t, c.one(0, sequenced(2, 0, conditional(1, "b"))), 0, 1, "")
	// Other partitions have sequences of their own, and a client without one none.
	wantResult(t, c.one(1, sequenced(1, 99, conditional(0, "a"))), 0, 0, "")
	wantResult(t, c.one(0, conditional(2, "c")), 0, 2, "")
	if got, want := l.values("fenced", 0), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v in the log, want %v", got, want)
	}
	if got := r.outcomes(outcomeSequence); got != 3 {
		t.Errorf("got %d counted as out of sequence, want 3", got)
	}
	if got := r.metrics.producers.Load(); got != 2 {
		t.Errorf("got %d producer ids remembered, want one in each of 2 partitions", got)
	}
}

func TestProducersAreBounded(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{MaxProducers: 2, IdleProducers: 3}, l)
	c := r.dial()
	for i := range int64(5) {
		batch := conditional(i, "x")
		wire.Stamp(batch, 100+i, 0, 0, time.Now().UnixMilli())
		wantResult(t, c.one(0, batch), 0, i, "")
	}
	if got, evicted := r.metrics.producers.Load(), r.metrics.producersEvicted.Load(); got != 2 || evicted != 3 {
		t.Errorf("got %d remembered and %d evicted, want 2 and 3", got, evicted)
	}
	// Two idle partitions with two each are one too many.
	for i := range int64(2) {
		batch := conditional(i, "x")
		wire.Stamp(batch, 100+i, 0, 0, time.Now().UnixMilli())
		wantResult(t, c.one(1, batch), 0, i, "")
	}
	r.await("both partitions are idle", func() bool { return r.lanes() == 0 })
	if got, evicted := r.metrics.producers.Load(), r.metrics.producersEvicted.Load(); got != 2 || evicted != 5 {
		t.Errorf("got %d remembered and %d evicted, want 2 and 5", got, evicted)
	}
}

// A gap is accepted on a newer connection, at last: what lies between may be on its
// way, or have gone through another proxy.
func TestGapOnANewerConnection(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	older, newer := r.dial(), r.dial()
	wantResult(t, older.one(0, sequenced(0, 0, conditional(0, "a"))), 0, 0, "")
	const overtook = "not appended, send again: overtook"
	for range 6 {
		wantResult(t, newer.one(0, sequenced(0, 5, conditional(1, "b"))), 6, -1, overtook)
	}
	wantResult(t, newer.one(0, sequenced(0, 5, conditional(1, "b"))), 0, 1, "")
	wantResult(t, older.one(0, sequenced(0, 9, conditional(2, "c"))), 45, -1, messageSequence)
	wantResult(t, newer.one(0, sequenced(0, 9, conditional(2, "c"))), 45, -1, messageSequence)
	newest := r.dial()
	wantResult(t, newest.one(0, sequenced(0, 9, conditional(2, "c"))), 6, -1, overtook)
	wantResult(t, newest.one(0, sequenced(0, 6, conditional(2, "between"))), 0, 2, "")
}

// A client pipelines two batches while its topic cannot be looked up, and again
// can: the second must not be appended before the first.
func TestWhatIsPipelinedBehindAFailedLookupDoesNotOvertake(t *testing.T) {
	for name, wrap := range map[string]func(epoch int16, sequence int32, batch []byte) []byte{
		"idempotent":     sequenced,
		"not idempotent": func(_ int16, _ int32, batch []byte) []byte { return batch },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, enforceAll, l)
			c := r.dial()
			wantResult(t, c.one(0, plain("before")), 0, 0, "")
			l.change(func() { l.codes[kmsg.Metadata] = 5 })
			r.fencing.topics.forget("fenced")
			first := c.send(oneFenced(wrap(0, 0, plain("k"))))
			got := resultsOf(c.expect(first, 9))[0]
			wantResult(t, got, 6, -1, "the topic cannot be looked up now; send again")
			l.change(func() { delete(l.codes, kmsg.Metadata) })
			if name == "not idempotent" { // nobody has promised it an order
				wantResult(t, c.one(0, plain("behind")), 0, 1, "")
				return
			}
			c.ExpectClosed()
			if got, want := l.values("fenced", 0), []string{"before"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
		})
	}
}
