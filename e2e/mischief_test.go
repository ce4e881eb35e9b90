package e2e

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
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
	// answered is called when the second copy of a request was answered, nil: or
	// not. It may itself be nil.
	answered func(frame, answer []byte)
	log      *faultLog // may be nil

	mu              sync.Mutex
	rng             *rand.Rand
	calm            bool
	did             [deeds]int
	produce, others []deed // to come; each has its turn before one comes again
}

// twinAddress is where the second copy of a request to a port goes: through
// another proxy, or to the same again.
type twinAddress func(draw *rand.Rand, port int, another bool) string

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

// judge is for standBefore. Without twin nothing is sent twice.
func (m *mischief) judge(twin twinAddress) func(relayed) verdict {
	return func(r relayed) verdict {
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
		v := m.draw(r, twin)
		if v.deed == letPass {
			m.did[letPass]++
			return v
		}
		deed, id := v, correlationID(r.frame) // the frame is not to be read later
		v.done = func() { m.happened(r, deed, id) }
		return v
	}
}

// happened counts what was done, and when.
func (m *mischief) happened(r relayed, v verdict, correlationID uint32) {
	m.mu.Lock()
	m.did[v.deed]++
	m.mu.Unlock()
	if m.log != nil {
		m.log.frame(m.side, r, v, correlationID)
	}
}

// draw takes the next deed.
func (m *mischief) draw(r relayed, twin twinAddress) verdict {
	coming, all := &m.produce, deedsToProduce
	if r.produce < 0 {
		coming, all = &m.others, deedsToOthers
	}
	if len(*coming) == 0 {
		*coming = slices.Clone(all)
		if twin == nil {
			*coming = slices.DeleteFunc(*coming, func(d deed) bool { return d == duplicate })
		}
		m.rng.Shuffle(len(*coming), func(i, j int) { (*coming)[i], (*coming)[j] = (*coming)[j], (*coming)[i] })
	}
	next := 0
	if (*coming)[0] == duplicate && bytes.Contains(r.frame, atTheEnd) {
		if next = slices.IndexFunc(*coming, func(d deed) bool { return d != duplicate }); next < 0 {
			return verdict{} // the next request will do
		}
	}
	v := verdict{deed: (*coming)[next], reset: m.rng.IntN(2) == 0}
	*coming = slices.Delete(*coming, next, next+1)
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
		v.twin = twin(m.rng, r.port, slices.Contains(*coming, duplicate)) // the first of two
		if m.rng.IntN(2) == 0 {
			v.after = 0
		}
		if m.answered != nil {
			frame := bytes.Clone(r.frame)
			v.answered = func(answer []byte) { m.answered(frame, answer) }
		}
	}
	return v
}

// begin disturbs, after it has been calm.
func (m *mischief) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = false
}

// end lets all that comes pass, and says what was done so far.
func (m *mischief) end() [deeds]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calm = true
	return m.did
}
