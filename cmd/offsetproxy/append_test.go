package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each answer that a proxy may give, and what a script makes of it.
func TestAppendExitCodes(t *testing.T) {
	answer := func(code int16, base int64, message string) func(*kmsg.ProduceRequest) *kmsg.ProduceResponse {
		return func(r *kmsg.ProduceRequest) *kmsg.ProduceResponse { return produceAnswer(r, code, base, message) }
	}
	for _, c := range []struct {
		golden  string // of standard error
		produce func(*kmsg.ProduceRequest) *kmsg.ProduceResponse
		code    int
		stdout  string
		outcome string
	}{
		{"", answer(0, 7, ""), exitOK, "7\n", "appended"},
		{"append-unknown", answer(-1, -1, "outcome unknown: expected=7 next=7; read the partition from 7"), exitUnknown, "", "unknown"},
		{"", func(*kmsg.ProduceRequest) *kmsg.ProduceResponse { return nil }, exitUnknown, "", "unknown"},
		{"append-taken", answer(1, -1, "expected-offset taken: expected=7 next=9"), exitRefused, "", "refused: taken"},
		{"append-not-served", answer(44, -1, "topic is not served: no reason"), exitFailed, "", "not appended"},
		{"append-malformed", answer(87, -1, "record 0: expected-offset is empty"), exitFailed, "", "not appended"},
	} {
		broker := newScriptedBroker(t, 0)
		broker.produce = c.produce
		args := []string{"append", "--bootstrap", broker.server.Addr(), "--topic", "events", "--expect", "7", "v"}
		got := call(t, "", args...)
		if got.code != c.code || got.stdout != c.stdout {
			t.Errorf("%s: got %+v, want code %d", c.outcome, got, c.code)
		}
		if (got.stderr == "") != (c.code == exitOK) {
			t.Errorf("%s: standard error %q", c.outcome, got.stderr)
		}
		inJSON := call(t, "", append(args, "--output", "json")...)
		var report appendReport
		if err := json.Unmarshal([]byte(inJSON.stdout), &report); err != nil {
			t.Fatalf("%v: %+v", err, inJSON)
		}
		if inJSON.code != c.code || report.Outcome != c.outcome || inJSON.stderr != "" {
			t.Errorf("in JSON: got %+v, want code %d and outcome %s", inJSON, c.code, c.outcome)
		}
		if c.golden != "" {
			golden(t, c.golden, withoutID(got.stderr))
		}
	}
}

// TestAppendAtTheEnd: any offset will do.
func TestAppendAtTheEnd(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	broker.produce = func(r *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if batch := r.Topics[0].Partitions[0].Records; !bytes.Contains(batch, []byte("expected-offset\x06end")) {
			t.Errorf("the record does not say end: %q", batch)
		}
		return produceAnswer(r, 0, 12, "")
	}
	args := []string{"append", "--bootstrap", broker.server.Addr(), "--topic", "events", "--expect", "end", "v"}
	if got := call(t, "", args...); got.code != exitOK || got.stdout != "12\n" {
		t.Errorf("got %+v, want 12", got)
	}
	if got := call(t, "", append(args, "--output", "json")...); strings.Contains(got.stdout, "expected") {
		t.Errorf("got %s, want no expected offset", got.stdout)
	}
}

// TestAppendAsARuleHasIt: other names of headers, and offsets of 8 bytes.
func TestAppendAsARuleHasIt(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	broker.produce = func(r *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		batch := r.Topics[0].Partitions[0].Records
		for _, want := range []string{"x-offset\x10\x00\x00\x00\x00\x00\x00\x00\x29", "x-id\x20"} {
			if !bytes.Contains(batch, []byte(want)) {
				t.Errorf("the record has no %q: %q", want, batch)
			}
		}
		return produceAnswer(r, 0, 41, "")
	}
	args := []string{"append", "--bootstrap", broker.server.Addr(), "--topic", "events", "--expect", "41",
		"--expected-offset-header", "x-offset", "--expected-offset-encoding", "int64", "--append-id-header", "x-id"}
	if got := call(t, "", append(args, "v")...); got.code != exitOK || got.stdout != "41\n" {
		t.Errorf("got %+v, want 41", got)
	}
	for _, wrong := range [][]string{
		append(args, "--header", "x-id=1", "v"), append(args, "--append-id-header", "x-offset", "v"), append(args, "--append-id-header", "", "v"),
	} {
		if got := call(t, "", wrong...); got.code != exitUsage {
			t.Errorf("%q: got %+v, want code %d", wrong, got, exitUsage)
		}
	}
}

// TestAppendElsewhereIsExplained in both forms of output.
func TestAppendElsewhereIsExplained(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	broker.produce = func(r *kmsg.ProduceRequest) *kmsg.ProduceResponse { return produceAnswer(r, 0, 12, "") }
	args := []string{"append", "--bootstrap", broker.server.Addr(), "--topic", "events", "--expect", "7", "v"}
	const why = "appended at 12, not at 7: nothing checked the condition"
	if got := call(t, "", args...); got.code != exitElsewhere || !strings.Contains(got.stderr, why) {
		t.Errorf("got %+v, want %q", got, why)
	}
	got := call(t, "", append(args, "--output", "json")...)
	var report appendReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitElsewhere || !strings.HasPrefix(report.Message, why) {
		t.Errorf("got %+v, %v, want %q", got, err, why)
	}
}

// withoutID takes out the append-id, which is another one each time.
func withoutID(s string) string {
	before, after, found := strings.Cut(s, "append-id ")
	if !found {
		return s
	}
	_, rest, _ := strings.Cut(after, " ")
	return before + "append-id … " + rest
}
