package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCopiesByRelaysAreTransmissions: a record that was refused, and is in the log,
// is a broken promise, unless a relay had sent another copy of it.
func TestCopiesByRelaysAreTransmissions(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	dir := t.TempDir()
	plain, merged := filepath.Join(dir, "plain.jsonl"), filepath.Join(dir, "merged.jsonl")
	history := strings.Join([]string{
		`{"type":"run","run":"ab","topic":"t","proxies":["a:1"],"partitions":1,"writers":1,"seed":1}`,
		`{"type":"begin","partition":0,"offset":0}`,
		`{"type":"op","writer":0,"op":0,"partition":0,"habit":"once","expected":0,"records":2}`,
		`{"type":"try","writer":0,"op":0,"proxy":0,"start":10,"end":20,"outcome":"refused","code":6}`,
		`{"type":"op","writer":0,"op":1,"partition":0,"habit":"once","expected":2,"records":1}`,
		`{"type":"try","writer":0,"op":1,"proxy":0,"start":30,"end":40,"outcome":"ok","offset":2}`,
		`{"type":"log","partition":0,"offset":0,"names":["0/0/0","0/0/1","0/1/0"]}`,
		`{"type":"read","partition":0,"offset":3}`,
	}, "\n") + "\n"
	if err := os.WriteFile(plain, []byte(history), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runProgram(t, "verify", "--history", plain); got.status != exitFailed {
		t.Errorf("without the copy: got %+v, want a violation", got)
	}
	batch := encodeBatch(conditional(0, "verify/ab/0/0/0"), conditional(1, "verify/ab/0/0/1"))
	frame := (&rawConn{formatter: kmsg.NewRequestFormatter()}).frame(produceRequest("t", 0, batch))
	for name, c := range map[string]struct {
		answer []byte
		want   twin
		status int
	}{
		"no answer": {nil, twin{Outcome: "unknown"}, exitDone},
		"success":   {producedAnswer(0, 0, nil), twin{Outcome: "ok", Offset: new(int64(0))}, exitDone},
		// It is neither there nor can it come.
		"taken": {producedAnswer(1, -1, new("expected-offset taken: expected=0 next=5")), twin{Outcome: "taken", Code: 1, Next: new(int64(5))}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var log twinLog
			log.add(frame, c.answer)
			if len(log.all) != 1 {
				t.Fatalf("got %d copies, want 1", len(log.all))
			}
			got := log.all[0]
			if got.Outcome != c.want.Outcome || got.Code != c.want.Code || !equal(got.Offset, c.want.Offset) ||
				!equal(got.Next, c.want.Next) || got.Records != 2 || got.First != 0 {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if added, err := log.merge(plain, merged); err != nil || added != 1 {
				t.Fatalf("merge: got %d, %v", added, err)
			}
			if got := runProgram(t, "verify", "--history", merged); got.status != c.status {
				t.Errorf("with the copy: got %+v, want status %d", got, c.status)
			}
		})
	}
}

func equal(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// producedAnswer is an answer of version 9 for one partition, with its length.
func producedAnswer(code int16, offset int64, message *string) []byte {
	response := kmsg.NewPtrProduceResponse()
	response.Version = 9
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic = "t"
	partition := kmsg.NewProduceResponseTopicPartition()
	partition.ErrorCode, partition.BaseOffset, partition.ErrorMessage = code, offset, message
	topic.Partitions = append(topic.Partitions, partition)
	response.Topics = append(response.Topics, topic)
	// Length and correlation id, which nobody looks at, and no tags.
	return response.AppendTo(make([]byte, 9))
}
