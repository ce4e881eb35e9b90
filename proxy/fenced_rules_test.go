package proxy

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// to produces to partition 0 of a topic and gives its result.
func (c *fencedClient) to(topic string, batch []byte) result {
	c.t.Helper()
	results := resultsOf(c.produce(9, -1, part{topic: topic, records: batch}))
	if len(results) != 1 {
		c.t.Fatalf("got %d results, want 1", len(results))
	}
	return results[0]
}

// headed is a batch of one record with these headers.
func headed(value string, headers ...kmsg.Header) []byte {
	return batchOf(batchOptions{}, record{value: value, headers: headers})
}

func header(key, value string) kmsg.Header { return kmsg.Header{Key: key, Value: []byte(value)} }

func int64Text(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// Each rule refuses with its own code; all else keeps its.
func TestRefusalsHaveTheRulesCode(t *testing.T) {
	l := newLeader(t, "fenced", "code44", "code87")
	r := newFencedRig(t, Config{Rules: []Rule{
		{Topics: "code44", Mode: ModeRequire, Options: RuleOptions{ErrorCode: 44}},
		{TopicsRegexp: "code(87|88)", Mode: ModeEnforce, Options: RuleOptions{ErrorCode: 87}},
	}}, l)
	client := r.dial()
	for topic, code := range map[string]int16{"fenced": 1, "code44": 44, "code87": 87} {
		wantResult(t, client.to(topic, conditional(0, "a")), 0, 0, "")
		wantResult(t, client.to(topic, conditional(0, "b")), code, -1, "expected-offset taken: expected=0 next=1")
		wantResult(t, client.to(topic, conditional(5, "c")), code, -1, "expected-offset not reached: expected=5 next=1")
		l.bypass(topic, 0, "d")
		wantResult(t, client.to(topic, conditional(0, "d")), code, -1, "expected-offset taken: expected=0 next=1")
		wantResult(t, client.to(topic, conditional(0, "a")), -1, -1, "outcome unknown: expected=0 next=1; read the partition from 0")
	}
}

// A rule's headers count, and only those; the same names tell one's own records
// in the log from a twin's.
func TestRulesNameTheirHeaders(t *testing.T) {
	l := newLeader(t, "fenced", "own")
	cfg := Config{Rules: []Rule{{Topics: "own", Mode: ModeRequire, Options: RuleOptions{
		ExpectedOffsetHeader: "place", AppendIDHeader: "once", Encoding: EncodingInt64,
	}}}}
	client := newFencedRig(t, cfg, l).dial()
	place, usual := header("place", int64Text(0)), header("expected-offset", "7")
	mine := headed("a", usual, place, header("once", "id"))
	wantResult(t, client.to("own", mine), 0, 0, "")
	wantResult(t, client.to("own", headed("b", header("expected-offset", "1"))), 87, -1,
		`the topic requires an expected-offset header on every record, which is named "place" here`)
	wantResult(t, client.to("own", headed("b", header("place", "1"))), 87, -1, `record 0: place is neither 8 bytes, a big-endian number, nor "end"`)
	wantResult(t, client.to("own", headed("b", header("place", int64Text(-1)))), 87, -1, "record 0: place is negative")
	wantResult(t, client.to("own", headed("b", header("place", int64Text(1)), header("once", ""))), 87, -1, "record 0: once is empty")
	wantResult(t, client.to("own", headed("b", place)), 1, -1, "expected-offset taken: expected=0 next=1")
	wantResult(t, client.to("own", headed("end", header("place", "end"))), 0, 1, "")
	wantResult(t, client.to("fenced", conditional(0, "with the usual headers")), 0, 0, "")

	// Another proxy, which has to read the log.
	other := newFencedRig(t, cfg, l).dial()
	wantResult(t, other.to("own", mine), 0, 0, "")
	unmarked := headed("c", header("place", int64Text(2)), header("append-id", "not the rule's"))
	wantResult(t, client.to("own", unmarked), 0, 2, "")
	wantResult(t, other.to("own", unmarked), -1, -1, "outcome unknown: expected=2 next=3; read the partition from 2")
	// The twin: by the usual names it is another's, or nobody's.
	usually := newFencedRig(t, Config{Rules: []Rule{{Topics: "own", Mode: ModeRequire, Options: RuleOptions{
		ExpectedOffsetHeader: "place", Encoding: EncodingInt64,
	}}}}, l).dial()
	wantResult(t, usually.to("own", mine), -1, -1, "outcome unknown: expected=0 next=3; read the partition from 0")
}

// What passes for one's own append is up to the rule. Another proxy judges, by
// the log alone.
func TestReplayByTheRule(t *testing.T) {
	const unknown = "outcome unknown: expected=0 next=1; read the partition from 0"
	for _, c := range []struct {
		replay           Replay
		equal, equalByID string // the message; "" a success
	}{
		{ReplayID, unknown, ""},
		{ReplayContent, "", ""},
		{ReplayOff, unknown, unknown},
	} {
		l := newLeader(t, "fenced", "equal", "byid")
		cfg := Config{Rules: []Rule{{Topics: "*", Mode: ModeRequire, Options: RuleOptions{Replay: c.replay}}}}
		first := newFencedRig(t, cfg, l).dial()
		wantResult(t, first.to("equal", conditional(0, "a")), 0, 0, "")
		wantResult(t, first.to("byid", identified(0, "a")), 0, 0, "")
		second := newFencedRig(t, cfg, l).dial()
		for topic, message := range map[string]string{"equal": c.equal, "byid": c.equalByID} {
			batch := conditional(0, "a")
			if topic == "byid" {
				batch = identified(0, "a")
			}
			code, base := int16(0), int64(0)
			if message != "" {
				code, base = -1, -1
			}
			wantResult(t, second.to(topic, batch), code, base, message)
		}
		wantResult(t, second.to("equal", conditional(0, "b")), 1, -1, "expected-offset taken: expected=0 next=1")
	}
}

// Old timestamps are refused unless the rule allows them; none at all always.
func TestOldTimestampsByTheRule(t *testing.T) {
	l := newLeader(t, "fenced", "old")
	client := newFencedRig(t, Config{Rules: []Rule{{Topics: "old", Mode: ModeRequire, Options: RuleOptions{AllowOldTimestamps: true}}}}, l).dial()
	old := batchOptions{timestamp: time.Now().Add(-100 * time.Hour).UnixMilli()}
	wantResult(t, client.to("old", batchOf(old, record{value: "a", expected: "0"})), 0, 0, "")
	wantResult(t, client.to("fenced", batchOf(old, record{value: "a", expected: "0"})), 32, -1,
		"timestamps are older than 12h0m0s, half of producer.id.expiration.ms: the brokers would forget the fence; load old events into a topic with LogAppendTime")
	wantResult(t, client.to("old", batchOf(batchOptions{timestamp: 1}, record{value: "a", expected: "1", delta: -2})), 32, -1, "records of a fenced topic need a timestamp")
}

// In enforce a header of anybody's is only that on batches without a condition.
func TestEnforceLeavesUnconditionalHeadersAlone(t *testing.T) {
	l := newLeader(t, "free")
	client := newFencedRig(t, Config{Rules: []Rule{{Topics: "free", Mode: ModeEnforce}}}, l).dial()
	batch := batchOf(batchOptions{}, record{value: "a", appendID: "x"}, record{value: "b"}, record{value: "c", headers: []kmsg.Header{header("append-id", "")}})
	wantResult(t, client.to("free", batch), 0, 0, "")
}

// Why old timestamps are refused: the broker forgets the fence with such a batch,
// and another proxy, whose view is not old yet, appends at another offset than it
// promised. Allowed, that is told as a violation; refused, it cannot happen.
func TestWhatAllowingOldTimestampsCosts(t *testing.T) {
	for _, allow := range []bool{true, false} {
		l := newLeader(t, "old")
		cfg := Config{Rules: []Rule{{Topics: "old", Mode: ModeRequire, Options: RuleOptions{AllowOldTimestamps: allow}}}}
		other := newFencedRig(t, cfg, l).dial()
		wantResult(t, other.to("old", conditional(0, "a")), 0, 0, "")

		loader := newFencedRig(t, cfg, l).dial()
		old := batchOf(batchOptions{timestamp: time.Now().Add(-100 * time.Hour).UnixMilli()}, record{value: "b", expected: "1"})
		if got, want := loader.to("old", old).Code == 0, allow; got != want {
			t.Errorf("allow %v: appended %v", allow, got)
		}
		l.change(func() { // the broker's check: expiry counts from the last batch's timestamp
			p := l.partition("old", 0)
			p.has = time.Since(time.UnixMilli(p.stamp)) < 24*time.Hour
		})
		if got := other.to("old", conditional(1, "c")); allow {
			wantResult(t, got, -1, -1, "appended at 2, expected 1: another writer bypasses the proxy")
		} else {
			wantResult(t, got, 0, 1, "")
		}
	}
}

// Only refusals take the code that a rule chooses.
func TestWhatTakesTheRulesCode(t *testing.T) {
	usual, chosen := newRule(Rule{Mode: ModeRequire}), newRule(Rule{Mode: ModeRequire, Options: RuleOptions{ErrorCode: 44}})
	refusals := map[fence.Kind]bool{fence.Taken: true, fence.NotReached: true, fence.PredecessorRefused: true}
	for kind := fence.Won; kind <= fence.PredecessorRefused; kind++ {
		v := fence.Verdict{Kind: kind, Next: 7, Code: 45}
		code, message := usual.tell(v, 5)
		other, same := chosen.tell(v, 5)
		if message != same || refusals[kind] && (code != 1 || other != 44) || !refusals[kind] && code != other {
			t.Errorf("%v: got codes %d and %d, %q and %q", kind, code, other, message, same)
		}
	}
}

// A batch that asked for no offset, and was tried at none, is told of none.
func TestMessagesOfBatchesThatWereTriedNowhere(t *testing.T) {
	r := newRule(Rule{Mode: ModeEnforce})
	for kind, want := range map[fence.Kind]string{
		fence.PredecessorRefused: "predecessor refused: expected=end",
		fence.Unknown:            "outcome unknown: expected=end next=7; read the partition near its end",
	} {
		if _, got := r.tell(fence.Verdict{Kind: kind, Next: 7}, ps.NoOffset); got != want {
			t.Errorf("%v: got %q, want %q", kind, got, want)
		}
	}
}
