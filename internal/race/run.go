package race

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Config describes a race.
type Config struct {
	// Proxies lists the bootstrap addresses of each proxy; the writers are
	// dealt out to them in turn.
	Proxies [][]string
	// Topic is where the race is; nobody else may write to the partition.
	Topic string
	// Partition is what is raced for.
	Partition appender.Partition
	// Writers is how many race; at least 1.
	Writers int
	// Duration is how long new attempts are started.
	Duration time.Duration
	// AttemptTimeout bounds one attempt; default 15 s.
	AttemptTimeout time.Duration
	// Value names the run; each record's value begins with it.
	Value string
}

const (
	// settleTimeout bounds the wait until a new topic is known to every proxy.
	settleTimeout = 30 * time.Second
	// settlePause lies between two looks at what is not ready yet.
	settlePause = 20 * time.Millisecond
)

// Run lets the writers race and returns all attempts, by writer, in order. It
// returns when all its goroutines are gone. An error that repeating does not
// cure ends the race; so does the end of ctx, whose cause is then returned.
func Run(ctx context.Context, cfg Config) ([]Attempt, error) {
	if cfg.AttemptTimeout <= 0 {
		cfg.AttemptTimeout = 15 * time.Second
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	writers := make([]*writer, cfg.Writers)
	for i := range writers {
		writers[i] = &writer{
			cfg: &cfg,
			id:  i + 1,
			client: appender.New(appender.Config{
				Bootstrap: cfg.Proxies[i%len(cfg.Proxies)],
				ClientID:  fmt.Sprintf("race-writer-%d", i+1),
			}),
		}
		defer writers[i].client.Close()
	}
	for _, w := range writers {
		if err := w.settle(ctx); err != nil {
			return nil, err
		}
	}
	end := time.Now().Add(cfg.Duration)
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() {
			if err := w.race(ctx, end); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()

	var attempts []Attempt
	for _, w := range writers {
		attempts = append(attempts, w.attempts...)
	}
	return attempts, context.Cause(ctx)
}

// writer is one contender. Only its goroutine uses it while the race runs.
type writer struct {
	cfg      *Config
	id       int
	client   *appender.Client
	attempts []Attempt
}

// settle waits until the writer can see the partition's end.
func (w *writer) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		_, err := w.client.NextOffset(ctx, w.cfg.Topic, w.cfg.Partition)
		if err == nil {
			return nil
		}
		if pause(ctx) != nil {
			return fmt.Errorf("topic %s is not to be seen through the proxy: %w", w.cfg.Topic, err)
		}
	}
}

// race appends at what it believes to be the end until time is up.
func (w *writer) race(ctx context.Context, end time.Time) error {
	next := appender.NoOffset
	for n := 1; time.Now().Before(end) && ctx.Err() == nil; n++ {
		if next == appender.NoOffset {
			at, err := w.client.NextOffset(ctx, w.cfg.Topic, w.cfg.Partition)
			if err != nil {
				pause(ctx)
				continue
			}
			next = at
		}
		a := Attempt{
			Writer:   w.id,
			Value:    fmt.Sprintf("%s writer %d attempt %d", w.cfg.Value, w.id, n),
			Expected: next,
		}
		attemptCtx, cancel := context.WithTimeout(ctx, w.cfg.AttemptTimeout)
		a.Answered, a.Err = w.client.Append(attemptCtx, appender.Record{
			Topic:     w.cfg.Topic,
			Partition: w.cfg.Partition,
			Expected:  next,
			AppendID:  appender.NewAppendID(),
			Value:     []byte(a.Value),
			Timestamp: time.Now().UnixMilli(),
		})
		cancel()
		var fatal bool
		a.Outcome, fatal = classify(a.Err)
		w.attempts = append(w.attempts, a)
		if fatal {
			return fmt.Errorf("writer %d: %w", w.id, a.Err)
		}
		next = appender.NoOffset
		var refused *appender.RefusedError
		switch {
		case a.Outcome == Won:
			next = a.Answered + 1
		case errors.As(a.Err, &refused):
			next = refused.Next
		case a.Outcome == NotSent:
			pause(ctx)
		}
	}
	return nil
}

// pause spaces out repetitions of what failed.
func pause(ctx context.Context) error {
	timer := time.NewTimer(settlePause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
