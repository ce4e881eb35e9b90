package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// habit is how a writer comes by the offset that its record is to get.
type habit int

const (
	// blind writers expect nothing.
	blind habit = iota
	// looking writers ask for the end of the log before each append and hope that
	// nobody is faster: what one does without a fence. Their records are
	// unconditional.
	looking
	// conditional writers ask once. Then they expect what lies behind their last
	// append, or the offset that a refusal tells them.
	conditional
	// ending writers say "end".
	ending
)

// racer appends in a closed loop to one partition, where others may do the same:
// what is refused it tries again at once. Its fields are valid when run has
// returned.
type racer struct {
	conn  *appendConn
	frame *appendFrame
	ends  endRequest
	habit habit
	id    uint64

	// tries counts the frames that were sent: refused of them found their place
	// taken, unsettled of them got an answer that asks to look or to send again.
	tries, refused, unsettled int
	appends                   []raced
	// took is the time of each append, from its first try.
	took []time.Duration
}

// raced is an append as its writer was told of it.
type raced struct {
	mark         mark
	expected, at offset
}

// entrant is what a racer is to be: where it sends, how, and what.
type entrant struct {
	target    *target
	topic     string
	partition int32
	habit     habit
	shape     batchShape
}

// newRacer connects a writer; ids tell those of a race apart.
func newRacer(ctx context.Context, e entrant, id uint64) (*racer, error) {
	conn, err := dialAppend(ctx, e.target)
	if err != nil {
		return nil, err
	}
	e.shape.atEnd = e.habit == ending
	return &racer{
		conn: conn, frame: newAppendFrame(e.topic, e.partition, e.shape), ends: newEndRequest(e.topic, e.partition),
		habit: e.habit, id: id,
	}, nil
}

// run appends until the time is up.
func (r *racer) run(until time.Time) error {
	next, err := r.conn.end(r.ends)
	if err != nil {
		return fmt.Errorf("ask for the end of the log: %w", err)
	}
	for count := uint64(1); ; count += uint64(r.frame.records()) {
		begun := time.Now()
		if !begun.Before(until) {
			return nil
		}
		m := mark{writer: r.id, count: count}
		for done := false; !done; {
			if next, done, err = r.try(next, m); err != nil {
				return err
			}
		}
		r.took = append(r.took, time.Since(begun))
	}
}

// try sends the batch once and gives what to expect next.
func (r *racer) try(next offset, m mark) (following offset, done bool, err error) {
	if r.habit == looking {
		if next, err = r.conn.end(r.ends); err != nil {
			return next, false, err
		}
	}
	r.frame.expect(next, m)
	answer, err := r.conn.call(r.frame)
	if err != nil {
		return next, false, err
	}
	r.tries++
	told := answer.err(next)
	var (
		refused *appender.RefusedError
		unknown *appender.UnknownError
		passing *appender.BrokerError
	)
	switch {
	case told == nil:
		r.appends = append(r.appends, raced{mark: m, expected: next, at: answer.base})
		return answer.base + offset(r.frame.records()), true, nil
	case errors.As(told, &refused) && refused.Next != appender.NoOffset:
		r.refused++
		return offset(refused.Next), false, nil
	case errors.As(told, &unknown) && r.habit == conditional:
		// A writer would look whether its record is there. This one gives it up.
		r.unsettled++
		following, err = r.conn.end(r.ends)
		return following, true, err
	case errors.As(told, &passing) && passing.MayPass():
		r.unsettled++
		return next, false, nil
	}
	return next, false, told
}

// race is what racers did together.
type race struct {
	took                      time.Duration
	tries, refused, unsettled int
	appends                   []raced
	// each is the time of each append.
	each []time.Duration
}

// runRace has a racer for each entrant append for so long.
func runRace(ctx context.Context, entrants []entrant, lasts time.Duration) (*race, error) {
	racers := make([]*racer, 0, len(entrants))
	defer func() {
		for _, r := range racers {
			r.conn.close()
		}
	}()
	for i, e := range entrants {
		r, err := newRacer(ctx, e, uint64(i+1))
		if err != nil {
			return nil, err
		}
		racers = append(racers, r)
	}
	errs := make([]error, len(racers))
	begun := time.Now()
	until := begun.Add(lasts)
	var group sync.WaitGroup
	for i, r := range racers {
		group.Go(func() { errs[i] = r.run(until) })
	}
	group.Wait()
	all := &race{took: time.Since(begun)}
	for i, r := range racers {
		if errs[i] != nil {
			return nil, fmt.Errorf("writer %d to %s of %s: %w", i+1, entrants[i].topic, entrants[i].target.name, errs[i])
		}
		all.tries += r.tries
		all.refused += r.refused
		all.unsettled += r.unsettled
		all.appends = append(all.appends, r.appends...)
		all.each = append(all.each, r.took...)
	}
	return all, nil
}

// perSecond is how many appends there were a second.
func (r *race) perSecond() float64 { return float64(len(r.appends)) / r.took.Seconds() }

// triesAnAppend is how often writers sent for each append.
func (r *race) triesAnAppend() float64 { return float64(r.tries) / float64(max(len(r.appends), 1)) }
