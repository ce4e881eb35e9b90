package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// reading is something to be read from a broker, for the fence.
type reading struct {
	// read does it, tells who asked what came of it, and returns the error it
	// came to.
	read func(ctx context.Context) error
	// fail is called instead of read if the broker cannot be reached.
	fail func(err error)
}

// readingKey names a queue of readings.
type readingKey struct {
	node int32 // unknownNode: whichever leads, which is to be found out
	// topics: they are about topics, which whole requests wait for, and do not
	// stand in line with those about partitions.
	topics bool
	// kinds: they are about the broker itself, which readings of topics wait for.
	kinds bool
}

// readingQueues runs readings on goroutines, at most so many at the same time
// for each broker, so that thousands of partitions that are used for the first
// time at once cost no more than some tens, and a broker that does not answer
// holds up no readings at others. Safe for concurrent use.
type readingQueues struct {
	atOnce  int           // readings of one queue at the same time
	timeout time.Duration // of each reading, once it has begun
	waited  func()        // called for each reading that has to wait, under mu
	// told is called for each reading; late: timeout has ended it.
	told func(at readingKey, err error, late bool)

	ctx context.Context // ends when the readings must end
	end context.CancelFunc
	wg  sync.WaitGroup // grows only under mu while ended is false

	mu     sync.Mutex
	ended  bool
	queues map[readingKey]*readingQueue // without those on which nothing goes on
}

// readingQueue is guarded by readingQueues.mu.
type readingQueue struct {
	running int
	waiting []reading
}

func newReadingQueues(atOnce int, timeout time.Duration, waited func(), told func(at readingKey, err error, late bool)) *readingQueues {
	q := &readingQueues{atOnce: atOnce, timeout: timeout, waited: waited, told: told, queues: map[readingKey]*readingQueue{}}
	q.ctx, q.end = context.WithCancel(context.Background())
	return q
}

// start runs a reading as soon as its queue has room, or not at all once stop
// was called. It never blocks.
func (q *readingQueues) start(key readingKey, r reading) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	queue := q.queues[key]
	if queue == nil {
		queue = new(readingQueue)
		q.queues[key] = queue
	}
	if queue.running == q.atOnce {
		queue.waiting = append(queue.waiting, r)
		q.waited()
		return
	}
	queue.running++
	q.wg.Go(func() { q.work(key, queue, r) })
}

// work runs a reading, and then those that wait until none does.
func (q *readingQueues) work(key readingKey, queue *readingQueue, r reading) {
	for again := true; again; {
		err := q.run(key, r)
		for _, other := range q.failing(queue, err) {
			other.fail(err)
		}
		r, again = q.next(key, queue)
	}
}

func (q *readingQueues) run(key readingKey, r reading) error {
	ctx, cancel := context.WithTimeout(q.ctx, q.timeout)
	defer cancel()
	err := r.read(ctx)
	q.told(key, err, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded))
	return err
}

// failing takes those that wait out of the queue if err says that the broker
// cannot be reached: one after the other they would find the same, each perhaps
// after its own timeout.
func (q *readingQueues) failing(queue *readingQueue, err error) []reading {
	if !errors.Is(err, prober.ErrUnreachable) || errors.Is(err, prober.ErrAnswerTooLarge) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all := queue.waiting
	queue.waiting = nil
	return all
}

func (q *readingQueues) next(key readingKey, queue *readingQueue) (r reading, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(queue.waiting) == 0 || q.ended {
		queue.waiting = nil
		if queue.running--; queue.running == 0 {
			delete(q.queues, key)
		}
		return r, false
	}
	r = queue.waiting[0]
	queue.waiting[0] = reading{}
	queue.waiting = queue.waiting[1:]
	return r, true
}

// stop ends what runs and begins nothing more.
func (q *readingQueues) stop() {
	q.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
}

// wait returns when no reading runs; to be called after stop.
func (q *readingQueues) wait() { q.wg.Wait() }
