package proxy

import (
	"fmt"
	"slices"
	"sync"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// keptEvents is how many events of a kind are remembered.
const keptEvents = 32

// eventRing remembers the last events of a kind. Its methods may be called
// concurrently.
type eventRing struct {
	mu   sync.Mutex
	kept []EventStatus
	next int // where the next one goes, once the ring is full
}

func (r *eventRing) note(key ps.Key, what string) {
	e := EventStatus{At: wall().UTC(), Topic: key.Topic, Partition: key.Partition, What: what}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < keptEvents {
		r.kept = append(r.kept, e)
		return
	}
	r.kept[r.next] = e
	r.next = (r.next + 1) % keptEvents
}

// newestFirst lists them.
func (r *eventRing) newestFirst() []EventStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append(make([]EventStatus, 0, len(r.kept)), r.kept[r.next:]...)
	list = append(list, r.kept[:r.next]...)
	slices.Reverse(list)
	return list
}

// fenceEvents are what a person has to look at.
type fenceEvents struct{ violations, alarms eventRing }

func (e *fenceEvents) violation(key ps.Key, expected, at ps.Offset) {
	e.violations.note(key, fmt.Sprintf("a batch that expected offset %d was appended at %d: check that only proxies with the same rules and fence id write this topic", expected, at))
}

// alarmWords say what an alarm means.
var alarmWords = map[fence.Alarm]string{
	fence.Misplaced:   "a record whose fate was unknown was found at offset %d, where it was not promised to be",
	fence.Bypassed:    "another producer wrote at offset %d, where a stamped batch was sent",
	fence.Undecidable: "the broker keeps refusing offset %d, which each new view says is next",
}

func (e *fenceEvents) alarm(key ps.Key, alarm fence.Alarm, at ps.Offset) {
	e.alarms.note(key, fmt.Sprintf(alarmWords[alarm], at)+": check that only proxies with the same rules and fence id write this topic")
}
