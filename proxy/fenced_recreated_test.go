package proxy

import (
	"strings"
	"testing"
	"time"
)

// A topic is deleted and created anew, in the same leader epoch, while clients
// that name topics go on: its log ends below what was known, and that is a
// reason to look the topic up before its ten minutes are over.
func TestRecreatedTopicIsLookedUpAnew(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{ViewMaxAge: 50 * time.Millisecond}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a", "b")), 0, 0, "")
	l.change(func() { l.topics["fenced"] = newTopicLog(9) })
	const behind = "not appended, send again: leader behind"
	told := 0
	await(t, "the new topic takes its first batch", func() bool {
		got := c.one(0, conditional(0, "c"))
		if got.Message == behind {
			told++
		}
		// Within the age of what is known, the old topic's end is believed.
		if got.Code != 0 && got.Code != 1 && got.Message != behind {
			t.Fatalf("got %+v", got)
		}
		return got.Code == 0
	})
	if told != 1 {
		t.Errorf("told %d times that the leader is behind, want once", told)
	}
	wantResult(t, c.one(0, conditional(1, "d")), 0, 1, "")
	if got, want := strings.Join(l.values("fenced", 0), " "), "c d"; got != want {
		t.Errorf("got log %q, want %q", got, want)
	}
}
