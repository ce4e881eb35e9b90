package proxy

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/fence"
)

// A broker refuses the very sequence that its view names. The proxy cannot send
// a batch twice, so that each of the client's retries is another batch to it:
// the alarm has to come all the same, and go with the first success.
func TestRefusedOnConfirmedViewsRaisesTheAlarm(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	l.hook(func(r *kmsg.ProduceRequest) fate {
		batch := r.Topics[0].Partitions[0].Records
		sequence := batch[53:]
		binary.BigEndian.PutUint32(sequence, binary.BigEndian.Uint32(sequence)+7)
		binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoliTable))
		return fateAnswer
	})
	for range sameViewRounds - 1 {
		wantResult(t, c.one(0, conditional(1, "b")), 6, -1, "not appended, send again: view changed")
	}
	wantResult(t, c.one(0, conditional(1, "b")), 6, -1, "not appended, send again: same view refused")
	if got, want := r.metrics.alarms[fence.Undecidable.String()].Load(), int64(1); got != want {
		t.Errorf("got %d alarms, want %d", got, want)
	}
	l.hook(nil)
	wantResult(t, c.one(0, conditional(1, "b")), 0, 1, "")
}
