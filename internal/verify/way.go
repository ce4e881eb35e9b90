package verify

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// append makes an append in the way of its habit. Once begun it is seen through: the end of
// ctx only shortens how long its fate is asked for.
func (w *writer) append(ctx context.Context, id AppendID) {
	op := &w.op
	w.lines = appendOp(w.lines[:0], id, op)
	w.run.recorder.write(w.lines)
	began, stop := time.Now(), ctx.Done()
	patience := w.run.cfg.Patience
	stamp := time.Now().UnixMilli()
	through := w.at
	p := producer{id: -1}
	if op.Habit == Idempotent {
		p = w.producer(op.Partition)
		through = p.proxy
	}
	// What is in flight is waited for, whatever ctx says.
	ctx = context.WithoutCancel(ctx)
	for try := 0; ; try++ {
		if op.Habit == Restamping {
			stamp = time.Now().UnixMilli()
		}
		switch link := w.links[through]; {
		case op.Habit == Rebuilding && (try > 0 || w.oneIn(3)):
			w.rebuild(ctx, link, id, stamp)
		case op.Habit == Duplicating && try == 0:
			other := w.links[len(w.run.cfg.Proxies)+w.rng.IntN(len(w.run.cfg.Proxies))]
			w.twice(ctx, link, other, id, stamp)
		default:
			w.send(ctx, link, id, cut{0, op.Records}, stamp, p)
		}
		if !op.Habit.repeats() || w.settled() || op.Habit == Idempotent && w.forgotten() {
			break
		}
		select {
		case <-stop:
			stop, patience = nil, min(patience, time.Since(began)+lastWords)
		default:
		}
		if time.Since(began) > patience {
			break
		}
		w.pause(ctx, min(try, 6))
		if op.Habit == Moving || op.Habit != Idempotent && try%3 == 2 {
			through = (through + 1) % len(w.run.cfg.Proxies)
		}
	}
	if op.Habit == Idempotent {
		w.after(p)
	}
}

// send makes one transmission.
func (w *writer) send(ctx context.Context, l *link, id AppendID, c cut, stamp int64, p producer) *Try {
	f := w.depart(ctx, l, &w.op, c, w.builder.build(id, &w.op, c, stamp, p))
	w.arrive(&f)
	return w.tried(id, &f)
}

// tried notes a transmission.
func (w *writer) tried(id AppendID, f *flight) *Try {
	w.op.Tries = append(w.op.Tries, f.try)
	w.lines = appendTry(w.lines[:0], id, &w.op, &f.try)
	w.run.recorder.write(w.lines)
	w.run.progress.answered(f)
	return &w.op.Tries[len(w.op.Tries)-1]
}

// twice sends the same at once on two connections.
func (w *writer) twice(ctx context.Context, l, other *link, id AppendID, stamp int64) {
	c := cut{0, w.op.Records}
	batch := w.builder.build(id, &w.op, c, stamp, producer{id: -1})
	first := w.depart(ctx, l, &w.op, c, batch)
	second := w.depart(ctx, other, &w.op, c, batch)
	w.arrive(&first)
	w.arrive(&second)
	w.tried(id, &first)
	w.tried(id, &second)
}

// rebuild sends the records whose fate is not known, cut anew at random.
func (w *writer) rebuild(ctx context.Context, l *link, id AppendID, stamp int64) {
	for first := uint16(0); first < w.op.Records; {
		if w.decided(first) {
			first++
			continue
		}
		c := cut{first, 1}
		for first+c.records < w.op.Records && !w.decided(first+c.records) && !w.oneIn(2) {
			c.records++
		}
		first += c.records
		if w.send(ctx, l, id, c, stamp, producer{id: -1}).Outcome == NotSent {
			return
		}
	}
}

// settled tells whether nothing is to be gained from sending again.
func (w *writer) settled() bool {
	for place := range w.op.Records {
		if !w.decided(place) {
			return false
		}
	}
	return true
}

// decided tells that of one record.
func (w *writer) decided(place uint16) bool {
	f := w.op.fateOf(place)
	return f.outcome != Unknown && f.outcome != NotSent && !(f.outcome == Refused && f.by.passing())
}

// forgotten tells whether the proxy does not know the producer as it was.
func (w *writer) forgotten() bool {
	code := w.op.Tries[len(w.op.Tries)-1].Code
	return code == kerr.OutOfOrderSequenceNumber.Code || code == kerr.InvalidProducerEpoch.Code
}

const (
	firstProducer = int64(1) << 40
	newProducerIn = 4
)

// producer gives the partition's idempotent producer.
func (w *writer) producer(at Partition) producer {
	p := &w.producers[at]
	if p.id < 0 {
		*p = producer{id: firstProducer + w.rng.Int64N(firstProducer), proxy: w.at}
	}
	return *p
}

// after has the producer go on behind what was appended, and with the sequence of
// what was refused, as franz-go does, or as another producer, as others do.
func (w *writer) after(p producer) {
	switch outcome := w.op.outcome(); {
	case outcome == OK:
		p.sequence += int32(w.op.Records)
	case outcome == Unknown || w.forgotten() || w.oneIn(newProducerIn):
		p.id = -1
	}
	w.producers[w.op.Partition] = p
}
