package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSingleBatchInEveryVersion appends to one partition in every version of
// Produce that has record batches, and looks at what each outcome says.
func TestSingleBatchInEveryVersion(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{}, l)
			c := r.dial()
			ask := func(batch []byte) result {
				t.Helper()
				p := part{topic: "fenced", records: batch}
				want := result{Topic: "fenced"}
				if version >= 13 {
					p.id, want.Topic, want.ID = l.topics["fenced"].id, "", 1
				}
				results := resultsOf(c.produce(version, -1, p))
				if len(results) != 1 {
					t.Fatalf("got %d results, want 1", len(results))
				}
				if got := results[0]; got.Topic != want.Topic || got.ID != want.ID || got.Partition != 0 {
					t.Errorf("got the answer for %q %d-%d, want %q %d-0", got.Topic, got.ID, got.Partition, want.Topic, want.ID)
				}
				return results[0]
			}
			message := func(m string) string {
				if version < 8 {
					return "" // error_message is new in version 8
				}
				return m
			}
			wantResult(t, ask(conditional(0, "a")), 0, 0, "")
			wantResult(t, ask(conditional(1, "b", "c")), 0, 1, "")
			wantResult(t, ask(conditional(2, "d")), 1, -1, message("expected-offset taken: expected=2 next=3"))
			wantResult(t, ask(conditional(0, "e", "f")), 1, -1, message("expected-offset taken: expected=0 next=3"))
			wantResult(t, ask(conditional(4, "g")), 1, -1, message("expected-offset not reached: expected=4 next=3"))
			wantResult(t, ask(conditional(1, "b", "c")), -1, -1, message("outcome unknown: expected=1 next=3; read the partition from 1"))
			wantResult(t, ask(identified(3, "h")), 0, 3, "")
			wantResult(t, ask(identified(3, "h")), 0, 3, "") // recognised
			wantResult(t, ask(plain("i")), 87, -1, message("the topic requires an expected-offset header on every record"))
			if got, want := strings.Join(l.values("fenced", 0), " "), "a b c h"; got != want {
				t.Errorf("got log %q, want %q", got, want)
			}
			if got, want := r.outcomes(outcomeReplayed), int64(1); got != want {
				t.Errorf("got %d replayed, want %d", got, want)
			}
			r.awaitQuiet()
		})
	}
}

// The twin of "sent again is unknown" above: with the fence off, the records
// of a batch that is sent again are not looked for.
func TestTakenWithoutTheIdentityTestRefusesOnesOwn(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{Unsafe: true}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	// Not true: the record is in the log.
	wantResult(t, c.one(0, conditional(0, "a")), 1, -1, "expected-offset taken: expected=0 next=1")
}

// TestBadBatches shows each kind of batch that is refused before anything is
// sent.
func TestBadBatches(t *testing.T) {
	cond := func(values ...string) []record {
		var records []record
		for i, v := range values {
			records = append(records, record{value: fmt.Sprint(i), expected: v})
		}
		return records
	}
	corrupted := conditional(0, "a")
	corrupted[len(corrupted)-1] ^= 1
	short := conditional(0, "a")
	short = short[:len(short)-3]
	two := append(conditional(0, "a"), conditional(1, "b")...)
	twice := record{expected: "0", headers: []kmsg.Header{{Key: "expected-offset", Value: []byte("0")}}}
	null := record{headers: []kmsg.Header{{Key: "expected-offset"}}}
	old := time.Now().Add(-12*time.Hour - time.Minute).UnixMilli()
	const (
		expectedOffset = "record 0: expected-offset "
		transactional  = "the topic is fenced: transactional writes to it are not possible"
		tooOld         = "timestamps are older than 12h0m0s, half of producer.id.expiration.ms: the brokers would forget the fence; load old events into a topic with LogAppendTime"
	)
	for _, c := range []struct {
		name    string
		batch   []byte
		code    int16
		message string
	}{
		{"null", nil, 2, "batch of 0 bytes: corrupt record batch"},
		{"no header", plain("a"), 87, "the topic requires an expected-offset header on every record"},
		{"empty", batchOf(batchOptions{}, record{headers: []kmsg.Header{{Key: "expected-offset", Value: []byte{}}}}), 87, expectedOffset + "is empty"},
		{"null header", batchOf(batchOptions{}, null), 87, expectedOffset + "is empty"},
		{"minus", batchOf(batchOptions{}, cond("-1")...), 87, expectedOffset + "has a sign; only decimal digits are allowed"},
		{"plus", batchOf(batchOptions{}, cond("+1")...), 87, expectedOffset + "has a sign; only decimal digits are allowed"},
		{"hexadecimal", batchOf(batchOptions{}, cond("0x1")...), 87, expectedOffset + `is neither a decimal number nor "end"`},
		{"space", batchOf(batchOptions{}, cond(" 1")...), 87, expectedOffset + `is neither a decimal number nor "end"`},
		{"too large", batchOf(batchOptions{}, cond("9223372036854775807")...), 87, expectedOffset + "is larger than any offset a record can have"},
		{"too long", batchOf(batchOptions{}, cond("00000000000000000001")...), 87, expectedOffset + "is larger than any offset a record can have"},
		{"overflow", batchOf(batchOptions{}, cond("9223372036854775806", "9223372036854775807")...), 87, "record 1: expected-offset is larger than any offset a record can have"},
		{"twice", batchOf(batchOptions{}, twice), 87, expectedOffset + "is given more than once"},
		{"first without", batchOf(batchOptions{}, cond("", "1")...), 87, expectedOffset + "is missing, though other records of the batch have it"},
		{"last without", batchOf(batchOptions{}, cond("0", "")...), 87, "record 1: expected-offset is missing, though other records of the batch have it"},
		{"mixed", batchOf(batchOptions{}, cond("0", "end")...), 87, `record 1: expected-offset mixes offsets and "end" in one batch`},
		{"gap", batchOf(batchOptions{}, cond("0", "2")...), 87, "record 1: expected-offset is not one more than that of the record before"},
		{"append-id on some", batchOf(batchOptions{}, record{expected: "0", appendID: "x"}, record{expected: "1"}), 87, "record 1: append-id is missing, though other records of the batch have it"},
		{"checksum", corrupted, 2, "record batch checksum mismatch"},
		{"truncated", short, 2, fmt.Sprintf("batch length %d of %d bytes: corrupt record batch", len(short)+3-12, len(short))},
		{"two batches", two, 2, fmt.Sprintf("batch length %d of %d bytes: corrupt record batch", len(two)/2-12, len(two))},
		{"old format", batchOf(batchOptions{magic: 1}, cond("0")...), 43, "message format before record batches"},
		{"control", batchOf(batchOptions{attributes: 0x20}, cond("0")...), 87, "control batch from a client"},
		{"transactional", batchOf(batchOptions{attributes: 0x10, producerID: 9}, cond("0")...), 29, transactional},
		{"fence id", batchOf(batchOptions{producerID: defaultFenceID}, cond("0")...), 87, "the producer id is the proxies' own; use another"},
		{"no timestamp", batchOf(batchOptions{timestamp: -1}, cond("0")...), 32, "records of a fenced topic need a timestamp"},
		{"one without timestamp", batchOf(batchOptions{timestamp: 5}, record{expected: "0"}, record{expected: "1", delta: -6}), 32, "records of a fenced topic need a timestamp"},
		{"too old", batchOf(batchOptions{timestamp: old}, cond("0")...), 32, tooOld},
		{"claims to be young", batchOf(batchOptions{timestamp: old, maxTime: time.Now().UnixMilli()}, cond("0")...), 32, tooOld},
		{"compressed with what is not there", batchOf(batchOptions{attributes: 7}, cond("0")...), 2, "decompress codec 7: corrupt record batch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{}, l)
			got := r.dial().one(0, c.batch)
			wantResult(t, got, c.code, -1, c.message)
			if n := len(l.requests()); n != 0 {
				t.Errorf("got %d requests at the broker, want none", n)
			}
			if got, want := r.outcomes(outcomeRefused), int64(1); got != want {
				t.Errorf("got %d counted as refused, want %d", got, want)
			}
		})
	}
}

func TestYoungestRecordDecidesTheAgeOfABatch(t *testing.T) {
	l := newLeader(t, "fenced")
	c := newFencedRig(t, Config{}, l).dial()
	now := time.Now().UnixMilli()
	day := (24 * time.Hour).Milliseconds()
	batch := batchOf(batchOptions{timestamp: now - day, maxTime: 1}, record{value: "old", expected: "0"}, record{value: "new", expected: "1", delta: day})
	wantResult(t, c.one(0, batch), 0, 0, "")
	h := headerOf(t, l.requests()[0].Topics[0].Partitions[0].Records)
	if h.MaxTimestamp != now {
		t.Errorf("got max timestamp %d, want the latest record's %d", h.MaxTimestamp, now)
	}
}

func TestTransactionalRequestIsRefused(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		l := newLeader(t, "fenced", "free")
		c := newFencedRig(t, Config{}, l).dial()
		request := produceOf(version, -1,
			part{topic: "free", id: l.topics["free"].id, records: plain("x")},
			part{topic: "fenced", id: l.topics["fenced"].id, records: conditional(0, "a")})
		request.TransactionID = kmsg.StringPtr("tx")
		results := resultsOf(c.expect(c.send(request), version))
		message := ""
		if version >= 8 {
			message = messageTransactional
		}
		wantResult(t, results[0], 0, 0, "")
		wantResult(t, results[1], 29, -1, message)
		if id := l.requests()[0].TransactionID; id == nil || *id != "tx" {
			t.Errorf("v%d: the other part lost its transactional id", version)
		}
	}
}

// Answers to versions 0 and 1 have no append time, so that a duplicate of
// another's append would pass for one's own.
func TestVersionsThatDoNotMarkDuplicatesAreNotStamped(t *testing.T) {
	for version := int16(0); version < 3; version++ {
		l := newLeader(t, "fenced")
		c := newFencedRig(t, Config{}, l).dial()
		got := resultsOf(c.produce(version, -1, part{topic: "fenced", records: conditional(0, "a")}))
		wantResult(t, got[0], 43, -1, "")
		if n := len(l.requests()); n != 0 {
			t.Errorf("v%d: got %d requests at the broker, want none", version, n)
		}
	}
}

func TestTopicIDs(t *testing.T) {
	l := newLeader(t, "fenced", "free")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	fenced := func(id [16]byte, batch []byte) part { return part{id: id, records: batch} }
	ask := func(p part) result { t.Helper(); return resultsOf(c.produce(13, -1, p))[0] }
	first := l.topics["fenced"].id

	wantResult(t, ask(fenced(first, conditional(0, "a"))), 0, 0, "")
	wantResult(t, ask(fenced(l.topics["free"].id, plain("x"))), 0, 0, "")
	wantResult(t, ask(fenced([16]byte{9}, conditional(0, "a"))), 100, -1, "")

	// The topic is deleted and created anew: another log under another id.
	l.change(func() { l.topics["fenced"] = newTopicLog(7) })
	second := l.topics["fenced"].id
	wantResult(t, ask(fenced(second, conditional(0, "b"))), 100, -1, "the topic was created anew")
	wantResult(t, ask(fenced(second, conditional(0, "b"))), 0, 0, "")
	wantResult(t, ask(fenced(first, conditional(1, "c"))), 100, -1, "the topic was created anew")
	if got := l.values("fenced", 0); len(got) != 1 || got[0] != "b" {
		t.Errorf("got log %q, want b alone", got)
	}
}

// A broker that learns of a topic id between the proxy's question and the
// client's batch must not get the batch unfenced.
func TestUnknownTopicIDIsNotRelayed(t *testing.T) {
	l := newLeader(t, "fenced")
	id := l.topics["fenced"].id
	l.change(func() { l.topics = map[string]*topicLog{} })
	r := newFencedRig(t, Config{}, l)
	l.change(func() {
		l.onOther = func(q kmsg.Request) bool {
			if m, ok := q.(*kmsg.MetadataRequest); ok && len(m.Topics) == 1 && m.Topics[0].Topic == nil {
				// Known from the moment on in which it is denied.
				l.change(func() { l.codes[kmsg.Metadata] = 100; l.topics["fenced"] = newTopicLog(1) })
			}
			return true
		}
	})
	got := resultsOf(r.dial().produce(13, -1, part{id: id, records: plain("around the fence")}))
	wantResult(t, got[0], 100, -1, "")
	if values := l.values("fenced", 0); len(values) > 0 {
		t.Errorf("got %q appended to a fenced topic without a condition", values)
	}
}
