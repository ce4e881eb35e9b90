package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Fairness says when a proxy leaves a partition to other proxies for a moment.
// One that appends from acknowledgements is faster than all that must read views
// first: without pauses they hardly ever win, and it never sees them. The zero
// value: no pauses. See Turn for what they cost.
type Fairness struct {
	// ContendedFor is the least time for which another writer is taken to be there
	// after it was noticed; 0: no pauses.
	ContendedFor time.Duration
	// Turn is the least time from one pause to the next while another writer is
	// there. A pause takes a twentieth of it at most: when it must be longer, so
	// are the turns.
	Turn time.Duration
	// TurnAlone is the least time from one pause to the next while nobody else is
	// noticed. It varies up to four times that, so that proxies do not keep step.
	// Pauses, and the views read after them, take about a hundredth of the time at
	// most.
	TurnAlone time.Duration
	// TellWithin is the longest that a batch is kept from being told that its place
	// is taken, while others race for the next ones; 0: it is told at once. See
	// racers.
	TellWithin time.Duration
}

const (
	// turnPauses and turnPausesAlone are how many pauses fit into a turn, and
	// farPauseEvery how many long ones into the time from one to the next.
	turnPauses, turnPausesAlone, farPauseEvery = 20, 100, 600
	// longestTrip bounds what a client's way is taken to be; those who are
	// further away leave gaps of their own.
	longestTrip = 20 * time.Millisecond
	// longestPause bounds a pause, and maxStretch how much longer it is than what
	// this proxy itself would need.
	longestPause = 50 * time.Millisecond
	longestTurn  = 400 * time.Millisecond
	maxStretch   = 32
	// stretchUnit is a stretch of 1, which is counted in eighths.
	stretchUnit = 8
	// nearStretch is that of most pauses while nobody was noticed.
	nearStretch = stretchUnit * 3 / 2
	// longSitOut is which of a proxy's turns is followed by a long time out.
	longSitOut = 4
)

// farStretches are those of long pauses while nobody was noticed.
var farStretches = [...]int{maxStretch * stretchUnit, maxStretch / 4 * stretchUnit}

// turn is a run of appends by this proxy, from one pause to the next.
type turn struct {
	// rivalAt is when another writer was last noticed: it had appended something,
	// or a race was lost to it; 0: never.
	rivalAt ps.Instant
	// since is the turn's first append; 0: none yet.
	since ps.Instant
	// lastWin is the last append of all, behind which the log ended at end.
	// awaited: no batch has come for that place yet.
	lastWin ps.Instant
	end     ps.Offset
	awaited bool
	// pauseEnd is when the pause ends that is on; 0: none is.
	pauseEnd ps.Instant
	// outUntil: until then it is another's turn, unless the log's end stands still;
	// it was first seen where it is at stillSince.
	outUntil, stillSince ps.Instant
	// overtaken: others did not wait for the end of the last turn, but are so much
	// faster that this proxy must take what it gets.
	overtaken bool
	// lookedAt is when a view was asked for last.
	lookedAt ps.Instant

	// stretch is how much longer pauses are than this proxy itself would need, in
	// eighths: those that nobody used are followed by longer ones.
	stretch      int
	unusedPauses int // in a row
	// turns and pauses count them; farPauses is when the last long pauses began.
	turns     int
	pauses    int
	farPauses [len(farStretches)]ps.Instant

	// viewTime and trip are moving averages: of the reading of a view, and of the
	// time from an acknowledgement to the first batch for the next place.
	viewTime, trip time.Duration
}

// pause is how long others need to see the end of the log and to have a client
// of theirs send for it, if they and their clients are as far away as ours; and
// so much longer, in eighths.
func (u *turn) pause(ackTime time.Duration, stretch int) time.Duration {
	// What the first view took says more of its connection.
	need := min(u.viewTime, 4*ackTime) + u.trip
	return min(need*time.Duration(max(stretch, stretchUnit))/stretchUnit, longestPause)
}

// length is how long a turn lasts, with pauses of this length, while others are
// there.
func (u *turn) length(f *Fairness, pause time.Duration) time.Duration {
	return max(f.Turn, min(turnPauses*pause, longestTurn))
}

// lengthAlone is length while nobody was noticed.
func (u *turn) lengthAlone(f *Fairness, pause time.Duration) time.Duration {
	// Multiples of the golden ratio spread over 0 … 1, whatever the offsets.
	const golden = 0x9e3779b97f4a7c15
	spread := time.Duration(uint64(u.end) * golden >> 44)
	return max(f.TurnAlone+3*f.TurnAlone*spread>>20, turnPausesAlone*(pause+u.viewTime))
}

// contended reports whether another writer is taken to be there.
func (u *turn) contended(f *Fairness, now ps.Instant, pause time.Duration) bool {
	return u.rivalAt != 0 && now.Sub(u.rivalAt) < max(f.ContendedFor, 3*u.length(f, pause))
}

// stretchAlone is the stretch of a pause that begins now, while nobody was
// noticed. Nothing can be learnt from those, so most are short, and a few are long
// for rivals who are further away.
func (u *turn) stretchAlone(now ps.Instant, ackTime time.Duration) int {
	for i, s := range farStretches {
		if now.Sub(u.farPauses[i]) >= farPauseEvery*u.pause(ackTime, s) {
			u.farPauses[i] = now
			return s
		}
	}
	return nearStretch
}

// won notes an append.
func (u *turn) won(now ps.Instant, end ps.Offset) {
	if u.since == 0 {
		u.since = now
	}
	if u.lastWin == 0 {
		u.farPauses = [...]ps.Instant{now, now}
	}
	u.lastWin, u.end, u.awaited = now, end, true
}

// came notes that a batch came for a place.
func (u *turn) came(f *Fairness, now ps.Instant, place ps.Offset, ackTime time.Duration) {
	if !u.awaited || place != u.end {
		return
	}
	u.awaited = false
	gap := now.Sub(u.lastWin)
	if u.contended(f, now, u.pause(ackTime, u.stretch)) {
		average(&u.trip, min(gap, longestTrip))
		return
	}
	u.rested(now, gap, ackTime)
	// A client that waits for other partitions, which pause, is not further away.
	sample := min(gap, longestTrip)
	if u.trip != 0 {
		sample = min(sample, tripGrowth*u.trip)
	}
	average(&u.trip, sample)
}

// tripGrowth bounds what one sample can make of the trip while nobody else was
// noticed.
const tripGrowth = 4

// rested notes that nothing was sent for a time, for want of a batch, while nobody
// else was noticed: others have had their chance as in a pause. One client's batches
// for many partitions wait for each other in the client, so that all of them rest
// while one pauses.
func (u *turn) rested(now ps.Instant, gap, ackTime time.Duration) {
	due := false // for a longer pause
	for i, s := range farStretches {
		if far := u.pause(ackTime, s); gap >= far {
			u.farPauses[i] = now
		} else if now.Sub(u.farPauses[i]) >= farPauseEvery*far {
			due = true
		}
	}
	if u.pauseEnd == 0 && !due && gap >= u.pause(ackTime, nearStretch) {
		u.since = 0
	}
}

// average moves a moving average.
func average(a *time.Duration, sample time.Duration) {
	if *a == 0 {
		*a = sample
	}
	*a += (sample - *a) / 8
}

// lost notes that another writer was noticed: it is its turn. That lasts for
// nearly as long as this proxy's did: who is slower could not keep it otherwise.
// Now and then it is longer, for somebody who is slower than those who take this
// proxy's place.
func (u *turn) lost(f *Fairness, now ps.Instant, pause time.Duration) {
	if u.since != 0 {
		u.overtaken = u.pauseEnd == 0
		out := min(now.Sub(u.since), u.length(f, pause)) * 3 / 4
		if u.turns++; u.turns%longSitOut == 0 {
			out = out * 8 / 3
		}
		u.outUntil = now.Add(out)
	}
	if u.pauseEnd != 0 {
		u.stretch -= u.stretch / stretchUnit // it may have been too long
		u.unusedPauses = 0
	}
	u.rivalAt, u.since, u.pauseEnd = now, 0, 0
}

// unused notes that nobody used the pause: a longer one may do.
func (u *turn) unused() {
	if u.unusedPauses++; u.unusedPauses >= 2 {
		u.unusedPauses = 0
		u.stretch = min(2*max(u.stretch, stretchUnit), maxStretch*stretchUnit)
	}
	u.since, u.pauseEnd, u.overtaken = 0, 0, false
}
