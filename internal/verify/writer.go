package verify

import (
	"context"
	"math/rand/v2"
	"time"
)

// What writers do how often.
const (
	stayOneIn  = 30 // another partition after so many appends
	readOneIn  = 40 // reads of the end
	oldOneIn   = 25 // expecting a place that is taken for sure
	oldestBack = 30
	nearest    = 4 // half of what is ahead of the end is ahead by so much at most
	furthest   = 60
	homeOneIn  = 50 // back to its own proxy
)

const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	// lastWords is how long after the run's end fates are still asked for.
	lastWords = 10 * time.Second
)

// writer makes one append after the other. Only its goroutine uses it.
type writer struct {
	run       *running
	id        int32
	rng       *rand.Rand
	links     []*link // by proxy, and once more for a second copy
	home, at  int     // proxies
	partition Partition
	next      []Offset // what it takes for the end, by partition
	hope      Offset   // how far the end may be beyond that
	producers []producer
	number    AppendNumber
	builder   batchBuilder
	lines     []byte
	op        Op // reused
	failures  int
}

func newWriter(run *running, id int) *writer {
	w := &writer{
		run: run, id: int32(id), rng: rand.New(rand.NewPCG(run.cfg.Seed, uint64(id))),
		home: id % len(run.cfg.Proxies), next: make([]Offset, len(run.begins)), producers: make([]producer, len(run.begins)),
		builder: batchBuilder{run: run.setup.Run},
	}
	w.at = w.home
	copy(w.next, run.begins)
	for i := range w.producers {
		w.producers[i].id = -1
	}
	for i := range 2 * len(run.cfg.Proxies) {
		w.links = append(w.links, newLink(&run.cfg, i%len(run.cfg.Proxies), len(run.begins)))
	}
	w.partition = Partition(id % len(run.begins))
	return w
}

func (w *writer) clock() Moment { return Moment(time.Since(w.run.began)) }

// oneIn is true once in n times.
func (w *writer) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

// writeLoop appends until ctx ends, and sees the last append through.
func (w *writer) writeLoop(ctx context.Context) {
	defer func() {
		for _, l := range w.links {
			l.close()
		}
	}()
	for ctx.Err() == nil {
		if w.oneIn(stayOneIn) {
			w.partition = Partition(w.rng.IntN(len(w.next)))
			if w.oneIn(2) {
				w.read(ctx)
			}
		} else if w.oneIn(readOneIn) {
			w.read(ctx)
		}
		if w.at != w.home && w.oneIn(homeOneIn) {
			w.at = w.home
		}
		id := w.choose()
		w.append(ctx, id)
		w.learn()
		w.run.progress.note(&w.op)
		if w.failures > 0 {
			w.pause(ctx, w.failures)
		}
	}
}

// read reads the end of the partition.
func (w *writer) read(ctx context.Context) {
	r := EndRead{Start: w.clock(), Proxy: uint16(w.at)}
	var err error
	if r.Offset, err = w.links[w.at].readEnd(ctx, w.partition); err != nil {
		return
	}
	r.End = w.clock()
	w.next[w.partition] = max(w.next[w.partition], r.Offset)
	w.lines = appendEndRead(w.lines[:0], w.partition, r)
	w.run.recorder.write(w.lines)
}

// choose decides what to append next and where.
func (w *writer) choose() AppendID {
	cfg := &w.run.cfg
	id := AppendID{w.id, w.number}
	w.number++
	w.op = Op{Partition: w.partition, Records: uint16(1 + w.rng.IntN(cfg.MaxRecords)), Tries: w.op.Tries[:0]}
	if w.run.ends && w.rng.Float64() < cfg.EndShare {
		w.op.Habit, w.op.Expected = End, NoOffset
		return id
	}
	w.op.Habit = w.run.habits[w.rng.IntN(len(w.run.habits))]
	next, begin := w.next[w.partition]+w.hope, w.run.begins[w.partition]
	switch {
	case w.oneIn(oldOneIn):
		next = max(begin, next-1-Offset(w.rng.IntN(oldestBack)))
	case w.rng.Float64() < cfg.AheadShare:
		most := furthest
		if w.oneIn(2) {
			most = nearest
		}
		next += 1 + Offset(w.rng.IntN(most))
	}
	w.op.Expected = next
	return id
}

// learn draws conclusions about the end from what was told.
func (w *writer) learn() {
	next := &w.next[w.partition]
	w.hope = 0
	w.failures++
	for i := range w.op.Tries {
		t := &w.op.Tries[i]
		switch t.Outcome {
		case OK:
			*next, w.failures = max(*next, t.Offset+Offset(t.Records)), 0
		case Taken, NotReached:
			*next, w.failures = max(*next, t.Next), 0
		}
	}
	if w.failures > 0 && w.op.Expected == *next && w.op.outcome() == Unknown && w.oneIn(2) {
		w.hope = Offset(w.op.Records) // perhaps it was appended
	}
	if w.failures > 2 {
		w.at = (w.at + 1) % len(w.run.cfg.Proxies)
	}
}

// pause spaces out what fails, the longer the more often it has.
func (w *writer) pause(ctx context.Context, failures int) {
	most := min(firstPause<<min(failures, 10), lastPause)
	timer := time.NewTimer(most/2 + time.Duration(w.rng.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
