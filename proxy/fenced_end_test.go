package proxy

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// atEnd is a batch that asks to be appended wherever the log ends.
func atEnd(values ...string) []byte {
	var records []record
	for _, v := range values {
		records = append(records, record{value: v, expected: "end"})
	}
	return batchOf(batchOptions{}, records...)
}

var enforceAll = Config{Rules: []Rule{{Topics: "fenced*", Mode: ModeEnforce}}}

// TestEndIsAppendedWhereTheLogEnds: an end batch and conditional ones share one
// sequence, in require and enforce.
func TestEndIsAppendedWhereTheLogEnds(t *testing.T) {
	for _, cfg := range []Config{{}, enforceAll} {
		l := newLeader(t, "fenced")
		c := newFencedRig(t, cfg, l).dial()
		wantResult(t, c.one(0, atEnd("a", "b")), 0, 0, "")
		wantResult(t, c.one(0, conditional(2, "c")), 0, 2, "")
		wantResult(t, c.one(0, atEnd("d")), 0, 3, "")
		wantResult(t, c.one(0, conditional(3, "e")), 1, -1, "expected-offset taken: expected=3 next=4")
		if got, want := l.values("fenced", 0), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("got %v in the log, want %v", got, want)
		}
	}
}

// TestUnconditionalIsFencedInEnforce: it is stamped, so that the sequence stays
// in step with the offset and conditional batches need no reading behind it.
func TestUnconditionalIsFencedInEnforce(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, enforceAll, l).dial()
	wantResult(t, c.one(0, plain("a")), 0, 0, "")
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
	l.change(func() {
		if p := l.partition("fenced", 0); p.next != 2 || int64(p.next) != p.end {
			t.Errorf("got sequence %d at %d, want 2 at 2", p.next, p.end)
		}
	})
}

// TestLostRaceOfUnconditionalBatchIsRunAgain: another proxy was faster, twice,
// and the client does not hear of it.
func TestLostRaceOfUnconditionalBatchIsRunAgain(t *testing.T) {
	for name, batch := range map[string][]byte{"unconditional": plain("mine"), "end": atEnd("mine")} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, "fenced", "plain")
			c := newFencedRig(t, enforceAll, l).dial()
			wantResult(t, c.one(0, plain("first")), 0, 0, "")
			races := 0
			l.hook(func(*kmsg.ProduceRequest) fate {
				if races++; races <= 2 {
					l.asOtherProxy(0, int32(races), plain("theirs"))
				}
				return fateAnswer
			})
			// Its neighbours in the request are not sent again with it.
			answer := c.produce(9, 1, part{topic: "plain", records: plain("neighbour")}, part{topic: "fenced", records: batch})
			results := resultsOf(answer)
			wantResult(t, results[0], 0, 0, "")
			wantResult(t, results[1], 0, 3, "")
			if got, want := l.values("fenced", 0), []string{"first", "theirs", "theirs", "mine"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
			if got, want := l.values("plain", 0), []string{"neighbour"}; !slices.Equal(got, want) {
				t.Errorf("got %v in the log, want %v", got, want)
			}
		})
	}
}

// TestUnknownOfUnconditionalBatchEndsTheConnection: its sender knows of no
// condition and is told as by a broker that fails. A batch that says "end" is
// told in words.
func TestUnknownOfUnconditionalBatchEndsTheConnection(t *testing.T) {
	l := newLeader(t, "fenced")
	rig := newFencedRig(t, enforceAll, l)
	c := rig.dial()
	wantResult(t, c.one(0, plain("first")), 0, 0, "")
	// Acknowledged by nobody, and not to be read back in time.
	l.change(func() {
		l.partition("fenced", 0).high = 1
		l.edit = func(a *kmsg.ProduceResponse) { a.Topics[0].Partitions[0].ErrorCode = 7 }
	})
	request := produceOf(9, -1, part{topic: "fenced", records: plain("mine")})
	request.TimeoutMillis = 100
	c.send(request)
	c.ExpectClosed()

	d := rig.dial()
	request = produceOf(9, -1, part{topic: "fenced", records: atEnd("mine, too")})
	request.TimeoutMillis = 400
	results := resultsOf(d.expect(d.send(request), 9))
	if results[0].Code != -1 {
		t.Errorf("got code %d, want −1", results[0].Code)
	}
}

// TestEndWithoutAcks: with acks=0 nothing is answered, and the batch is appended
// after a lost race as well.
func TestEndWithoutAcks(t *testing.T) {
	l := newLeader(t, "fenced")
	rig := newFencedRig(t, enforceAll, l)
	c := rig.dial()
	wantResult(t, c.one(0, plain("first")), 0, 0, "")
	raced := false
	l.hook(func(*kmsg.ProduceRequest) fate {
		if !raced {
			raced = true
			l.asOtherProxy(0, 1, plain("theirs"))
		}
		return fateAnswer
	})
	c.send(produceOf(9, 0, part{topic: "fenced", records: plain("mine")}))
	wantResult(t, c.one(0, conditional(3, "behind it")), 0, 3, "")
	if got, want := l.values("fenced", 0), []string{"first", "theirs", "mine", "behind it"}; !slices.Equal(got, want) {
		t.Errorf("got %v in the log, want %v", got, want)
	}
}
