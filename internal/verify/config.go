package verify

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Config is what a run needs.
type Config struct {
	// Proxies are bootstrap addresses, host:port, one for each proxy; at least 1.
	Proxies []string
	// ReadFrom are bootstrap addresses to read the log from; default: Proxies.
	ReadFrom []string
	// Topic is where to append. Nobody else may write to it meanwhile.
	Topic string
	// Create has the topic created if it is not there, with Partitions and
	// Replicas.
	Create bool
	// Partitions is how many of the topic's partitions are written, from 0 on;
	// default 8, or as many as there are.
	Partitions int
	// Replicas is how many a created topic has; default 3, or as many as there
	// are brokers.
	Replicas int
	// Writers is how many append at once; default 16.
	Writers int
	// Duration is how long new appends are begun; default 60 s.
	Duration time.Duration
	// MaxRecords is how many records a batch has at most; default 5.
	MaxRecords int
	// Habits are those of the writers; default: all.
	Habits []Habit
	// EndShare is which share of the appends have the habit End, if that is
	// among Habits; from 0 to 1, default 0.2; negative: 0.
	EndShare float64
	// AheadShare is which share of the others expect an offset that the log has
	// not reached, as far as is known; from 0 to 1, default 0.04; negative: 0.
	AheadShare float64
	// Seed is what all choices come from; the times they are made at differ.
	Seed uint64
	// RequestTimeout is what brokers and proxies are given; default 1.5 s. A
	// writer waits twice as long, and then counts the outcome as unknown.
	RequestTimeout time.Duration
	// Patience is how long an append whose fate is unknown is sent again, and the
	// end of a log asked for again that is before what was told; default 30 s.
	Patience time.Duration
	// Settle is how long to wait before the log is read, so that what is still on
	// its way can land; default 2 s; negative: 0.
	Settle time.Duration
	// Wait is how long brokers and proxies that are not there are waited for,
	// before the run and when the log is read; default 2 min.
	Wait time.Duration
	// Dial opens all connections, to the proxies and to where the log is read; nil: a
	// net.Dialer's DialContext. It is called concurrently.
	Dial appender.Dial
	// Progress gets a line every ten seconds; nil: none.
	Progress io.Writer
}

// ErrConfig means that a Config breaks what its fields say.
var ErrConfig = errors.New("bad configuration")

// dial opens connections.
func (c *Config) dial() appender.Dial {
	if c.Dial == nil {
		return new(net.Dialer).DialContext
	}
	return c.Dial
}

// withDefaults checks the fields and fills those that are zero.
func (c Config) withDefaults() (Config, error) {
	fill := func(n *int, or int) {
		if *n == 0 {
			*n = or
		}
	}
	wait := func(d *time.Duration, or time.Duration) {
		if *d == 0 {
			*d = or
		}
		*d = max(*d, 0)
	}
	fill(&c.Partitions, 8)
	fill(&c.Replicas, 3)
	fill(&c.Writers, 16)
	fill(&c.MaxRecords, 5)
	wait(&c.Duration, time.Minute)
	wait(&c.RequestTimeout, 1500*time.Millisecond)
	wait(&c.Patience, 30*time.Second)
	wait(&c.Settle, 2*time.Second)
	wait(&c.Wait, 2*time.Minute)
	if c.EndShare == 0 {
		c.EndShare = 0.2
	}
	c.EndShare = max(c.EndShare, 0)
	if c.AheadShare == 0 {
		c.AheadShare = 0.04
	}
	if len(c.Habits) == 0 {
		c.Habits = AllHabits()
	}
	if len(c.ReadFrom) == 0 {
		c.ReadFrom = c.Proxies
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	bad := func(format string, args ...any) (Config, error) {
		return c, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case len(c.Proxies) == 0 || len(c.Proxies) > maxProxies:
		return bad("%d proxies; there must be from 1 to %d", len(c.Proxies), maxProxies)
	case c.Topic == "":
		return bad("no topic")
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return bad("%d partitions; there must be from 1 to %d", c.Partitions, maxPartitions)
	case c.Replicas < 1 || c.Replicas > 1000:
		return bad("%d replicas", c.Replicas)
	case c.Writers < 1 || c.Writers > maxWriters:
		return bad("%d writers; there must be from 1 to %d", c.Writers, maxWriters)
	case c.MaxRecords < 1 || c.MaxRecords > maxBatch:
		return bad("%d records a batch; there must be from 1 to %d", c.MaxRecords, maxBatch)
	case c.EndShare > 1 || c.AheadShare > 1:
		return bad("a share of %g; there must be from 0 to 1", max(c.EndShare, c.AheadShare))
	case c.EndShare < 1 && !slices.ContainsFunc(c.Habits, func(h Habit) bool { return h != End }):
		c.EndShare = 1
	}
	return c, nil
}
