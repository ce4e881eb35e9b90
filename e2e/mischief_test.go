package e2e

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"sync"
	"time"
)

// mischief is what a relay may do to frames, at random.
type mischief struct {
	// side names the relay in the log of faults.
	side string
	// one Produce in so many is disturbed.
	one int
	// longest is for how long a request may be held up at most.
	longest time.Duration
	// twin gives an address for the second copy of a request to a port; nil:
	// nothing is sent twice. answered is called when that copy was answered, with
	// when it was held, and must not keep the frame.
	twin     func(draw *rand.Rand, port int) string
	answered func(frame []byte, began time.Time, answer []byte)
	log      *faultLog // may be nil

	mu   sync.Mutex
	rng  *rand.Rand
	calm bool
	did  [deeds]int
}

// Of a frame that carries no Produce, only the connection is of interest.
var (
	deedsToProduce = []deed{
		cutBefore, cutWithin, cutBehind, deliverLate, deliverLate, stall, stall, duplicate, duplicate,
		loseAnswer, loseAnswer, cutAnswer, cutBehindAnswer, stallAnswer,
	}
	deedsToOthers = []deed{cutBefore, cutWithin, cutBehind, stall, loseAnswer, cutAnswer, cutBehindAnswer, stallAnswer}
)

// rarely is by how much rarer a frame without a Produce is disturbed.
const rarely = 4

// atTheEnd is in the records of a batch that is appended wherever the log ends: a
// second copy of it would be a second append, by promise.
var atTheEnd = []byte("\x1eexpected-offset\x06end")

// judge is for standBefore.
func (m *mischief) judge(r relayed) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.one
	if r.produce < 0 {
		one *= rarely
	}
	if m.calm || m.rng.IntN(one) > 0 {
		m.did[letPass]++
		return verdict{}
	}
	of := deedsToProduce
	if r.produce < 0 {
		of = deedsToOthers
	}
	v := verdict{deed: of[m.rng.IntN(len(of))], reset: m.rng.IntN(2) == 0}
	v.after = time.Duration(m.rng.Int64N(int64(time.Second)))
	longest := cmp.Or(m.longest, 8*time.Second) // longer than its answer is waited for
	switch v.deed {
	case deliverLate:
		if v.after *= 4; m.rng.IntN(8) == 0 {
			v.after = time.Duration(m.rng.Int64N(int64(longest)))
		}
	case stall:
		if m.rng.IntN(8) == 0 {
			v.after = longest
		}
	case duplicate:
		if m.twin == nil || bytes.Contains(r.frame, atTheEnd) {
			v.deed = cutBehindAnswer
			break
		}
		m.sendTwice(&v, r)
	}
	m.did[v.deed]++
	if m.log != nil {
		m.log.frame(m.side, r, v)
	}
	return v
}

// sendTwice has a request go to the same proxy again, or to another one.
func (m *mischief) sendTwice(v *verdict, r relayed) {
	v.twin = m.twin(m.rng, r.port)
	if m.rng.IntN(2) == 0 {
		v.after = 0
	}
	if m.answered != nil {
		frame, began := bytes.Clone(r.frame), time.Now()
		v.answered = func(answer []byte) { m.answered(frame, began, answer) }
	}
}

// begin disturbs, after it has been calm.
func (m *mischief) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = false
}

// end lets all that comes pass, and says what was done.
func (m *mischief) end() [deeds]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = true
	return m.did
}
