package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// told is what a client was told of one batch.
type told struct {
	code    int16
	offset  int64 // −1 if nothing was appended
	message string
}

func toldOf(answer kmsg.ProduceResponseTopicPartition) told {
	got := told{code: answer.ErrorCode, offset: answer.BaseOffset}
	if answer.ErrorMessage != nil {
		got.message = *answer.ErrorMessage
	}
	return got
}

// The answers of docs/semantics.md, word for word.

func wonAt(offset int64) told { return told{offset: offset} }

func takenAt(expected, next int64) told {
	return told{kerr.OffsetOutOfRange.Code, -1, fmt.Sprintf("expected-offset taken: expected=%d next=%d", expected, next)}
}

func goneAt(expected, next, logStart int64) told {
	return told{kerr.OffsetOutOfRange.Code, -1, fmt.Sprintf("expected-offset taken: expected=%d next=%d log_start=%d", expected, next, logStart)}
}

func unknownAt(expected, next int64) told {
	return told{kerr.UnknownServerError.Code, -1, fmt.Sprintf("outcome unknown: expected=%d next=%d; read the partition from %d", expected, next, expected)}
}

func violationAt(expected, at int64) told {
	return told{kerr.UnknownServerError.Code, -1, fmt.Sprintf("appended at %d, expected %d: another writer bypasses the proxy", at, expected)}
}

func notReachedAt(expected, next int64) told {
	return told{kerr.OffsetOutOfRange.Code, -1, fmt.Sprintf("expected-offset not reached: expected=%d next=%d", expected, next)}
}

// mustTell sends one batch to partition 0, acks=all, and wants this answer.
func (c *rawConn) mustTell(t *testing.T, topic string, batch []byte, want told) {
	t.Helper()
	answer, err := c.produce(topic, 0, batch)
	if err != nil {
		t.Fatal(err)
	}
	if got := toldOf(answer); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// dialLeader connects, through a proxy, to the leader of a topic's partition 0.
func dialLeader(t *testing.T, p *proxyProcess, topic string) *rawConn {
	t.Helper()
	conn, err := dialRaw(leaderAddress(t, p, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	return conn
}

// mustHold wants these values in partition 0, from offset 0 on.
func mustHold(t *testing.T, topic string, values ...string) {
	t.Helper()
	var want []logRecord
	for i, value := range values {
		want = append(want, logRecord{int64(i), value})
	}
	if got := readLog(t, topic, 0); !slices.Equal(got, want) {
		t.Errorf("the log of %s holds %v, want %v", topic, got, want)
	}
}
