package verify

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// running is what the writers of a run share.
type running struct {
	cfg      Config
	setup    Setup
	began    time.Time
	begins   []Offset // the end of each partition before
	habits   []Habit  // but End
	ends     bool
	recorder *recorder
	progress progress
}

// UselessError means that the run was given up because everything was refused for a
// reason that does not pass.
type UselessError struct {
	// Code and Message are the answer's.
	Code    appender.Code
	Message string
}

// Error implements error.
func (e *UselessError) Error() string {
	return fmt.Sprintf("all appends are refused with %v: %s", e.Code, e.Message)
}

// Run appends and writes the history to out. It returns when all its goroutines are
// gone. The end of ctx ends the appends early; what is in flight is waited for and
// the log is read all the same. Errors: ErrConfig, ErrNoTopic, ErrUnprepared,
// *UselessError, ErrUnreadable and those of out.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	topic := topicAdmin{cfg: &cfg}
	begins, err := topic.prepare(ctx)
	if err != nil {
		return err
	}
	r := &running{cfg: cfg, begins: begins, recorder: newRecorder(out), began: time.Now()}
	r.setup = Setup{
		Run: newRunName(), Topic: cfg.Topic, Proxies: cfg.Proxies, Partitions: len(begins), Writers: cfg.Writers, Seed: cfg.Seed,
	}
	r.ends = slices.Contains(cfg.Habits, End)
	r.habits = slices.DeleteFunc(slices.Clone(cfg.Habits), func(h Habit) bool { return h == End })
	r.recorder.setup(r.setup)
	for p, at := range begins {
		r.recorder.write(appendBegin(nil, Partition(p), at))
	}
	told, err := r.write(ctx)
	if err != nil {
		return err
	}
	// From here on the log is read, whatever was asked for meanwhile.
	ctx = context.WithoutCancel(ctx)
	settle(ctx, cfg.Settle)
	logs, err := readLogs(ctx, &cfg, r.setup.Run, begins, told)
	if err != nil {
		_ = r.recorder.flush() // so that what was told is not lost as well
		return err
	}
	for p := range logs {
		r.recorder.log(Partition(p), &logs[p])
	}
	return r.recorder.flush()
}

func settle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// write has the writers append until the time is up or ctx ends, and gives the
// furthest end of each partition that one of them was told.
func (r *running) write(ctx context.Context) (told []Offset, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Duration)
	defer cancel()
	r.progress.giveUp = cancel
	var group sync.WaitGroup
	var writers []*writer
	for i := range r.cfg.Writers {
		w := newWriter(r, i)
		writers = append(writers, w)
		group.Go(func() { w.writeLoop(ctx) })
	}
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { r.progress.reportLoop(r.cfg.Progress, done) })
	group.Wait()
	close(done)
	reporter.Wait()
	told = slices.Clone(r.begins)
	for _, w := range writers {
		for p, end := range w.next {
			told[p] = max(told[p], end)
		}
	}
	return told, r.progress.useless()
}

const (
	progressEvery = 10 * time.Second
	// uselessAfter is how many appends are refused for good before a run in which none
	// fared better is given up.
	uselessAfter = 50
)

// progress counts what comes of appends. For concurrent use.
type progress struct {
	operations, good, bad atomic.Int64
	giveUp                context.CancelFunc
	refusal               atomic.Pointer[UselessError]
}

// note counts an append.
func (p *progress) note(op *Op) {
	p.operations.Add(1)
	switch op.outcome() {
	case OK, Taken, NotReached, Unknown:
		p.good.Add(1)
	case Refused:
		if last := &op.Tries[len(op.Tries)-1]; !last.passing() && p.bad.Add(1) >= uselessAfter && p.good.Load() == 0 {
			p.giveUp()
		}
	}
}

// answered keeps the first refusal that does not pass.
func (p *progress) answered(f *flight) {
	if f.try.Outcome == Refused && !f.try.passing() && p.refusal.Load() == nil {
		p.refusal.CompareAndSwap(nil, &UselessError{appender.Code(f.try.Code), f.message})
	}
}

// useless tells why the run was given up; nil: it was not.
func (p *progress) useless() error {
	if refusal := p.refusal.Load(); p.good.Load() == 0 && p.bad.Load() >= uselessAfter && refusal != nil {
		return refusal
	}
	return nil
}

// reportLoop tells from time to time how far the run is, until done is closed.
func (p *progress) reportLoop(out io.Writer, done <-chan struct{}) {
	began := time.Now()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(out, "%v: %d appends\n", time.Since(began).Round(time.Second), p.operations.Load())
		case <-done:
			return
		}
	}
}
