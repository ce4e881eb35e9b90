package prober

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/offsetproxy/offsetproxy/wire"
)

// StateSource says where a broker shows the fence's producer state.
type StateSource int

const (
	// Describe reads it by DescribeProducers, which on Apache Kafka 2.8 and
	// later lists idle producers too (KIP-664).
	Describe StateSource = iota
	// TailBatch reads it from the header of the log's last batch, for brokers
	// that do not list idle producers (kfake). It sees no state when that
	// batch is not the fence's or has been deleted, though there may be some.
	TailBatch
	// DescribeOrTail is for brokers that may or may not list idle producers: as
	// Describe, but where that shows nothing and the log's last batch is the
	// fence's and too young for its state to have expired, as TailBatch.
	DescribeOrTail
	// AsProbed decides for each connection, by Probe or Assume. Without either
	// views are not read.
	AsProbed
)

// Config is what a Pool needs. Zero values mean the default given.
type Config struct {
	// Dial opens a connection to the broker with this node id, authenticated
	// and ready for requests. Required. It is called from several goroutines
	// and must honour its context. The Pool owns what it returns. A connection
	// with a method UseUntil() time.Time gets no calls after that time: another
	// takes its place (its login may end, KIP-368).
	Dial func(ctx context.Context, nodeID int32) (net.Conn, error)
	// ClientID is sent with each request; default "offsetproxy".
	ClientID string
	// Logger; default slog.Default().
	Logger *slog.Logger

	// MaxFrame bounds an answer, in bytes; default 64 MiB. It must exceed the
	// brokers' largest batch, which a Fetch returns whole (KIP-74).
	MaxFrame int
	// RequestTimeout bounds dialling with its version handshake, each write, and
	// the time until the next answer arrives while any is awaited; default 5 s.
	RequestTimeout time.Duration
	// MaxWaiting bounds the calls that wait on one broker's connection;
	// default 4,096. Beyond it a call gets ErrBusy.
	MaxWaiting int
	// MaxInFlight bounds those of them that are on the wire; default 64.
	MaxInFlight int

	// FenceID is the producer id whose state is read. Required.
	FenceID int64
	// StateFrom; zero: Describe.
	StateFrom StateSource
	// Epochs is how many partitions' leader epochs are remembered; default
	// 100,000.
	Epochs int
	// EpochMaxAge is for how long a leader epoch is remembered, and with it
	// that the topic's name stands for its id; default 30 s.
	EpochMaxAge time.Duration
	// Clock tells the time since some moment, for the age of epochs. Where the
	// machine may be suspended it must run on meanwhile. Default: Go's monotonic
	// clock, which does not.
	Clock func() time.Duration
	// WallClock tells how old records are by their timestamps; default time.Now.
	WallClock func() time.Time

	// Names gives the record headers that read-backs of a topic look for; nil:
	// the defaults. It is called from several goroutines.
	Names func(topic string) wire.HeaderNames
	// MaxDecompressed bounds one stored batch after decompression, in bytes;
	// default 64 MiB.
	MaxDecompressed int
	// ReadBytes ends a ReadRecords once that many bytes have been fetched;
	// default 8 MiB.
	ReadBytes int
	// MaxRecords ends a ReadRecords once that many records have been found;
	// default 262,144.
	MaxRecords int
}

// withDefaults returns c with its zero values replaced.
func (c Config) withDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "offsetproxy"
	}
	if c.Names == nil {
		c.Names = func(string) wire.HeaderNames { return wire.HeaderNames{} }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 5 * time.Second
	}
	if c.Clock == nil {
		began := time.Now()
		c.Clock = func() time.Duration { return time.Since(began) }
	}
	if c.WallClock == nil {
		c.WallClock = time.Now
	}
	if c.EpochMaxAge == 0 {
		c.EpochMaxAge = 30 * time.Second
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&c.MaxFrame, 64 << 20},
		{&c.MaxWaiting, 4096},
		{&c.MaxInFlight, 64},
		{&c.Epochs, 100_000},
		{&c.MaxDecompressed, 64 << 20},
		{&c.ReadBytes, 8 << 20},
		{&c.MaxRecords, 1 << 18},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c
}

// validate checks a Config that has its defaults.
func (c Config) validate() error {
	switch {
	case c.Dial == nil:
		return errors.New("prober: Config.Dial is missing")
	case c.FenceID <= 0:
		return errors.New("prober: Config.FenceID must be positive")
	case c.StateFrom < Describe || c.StateFrom > AsProbed:
		return errors.New("prober: Config.StateFrom is unknown")
	case c.RequestTimeout < 0 || c.EpochMaxAge < 0:
		return errors.New("prober: a time in Config is negative")
	case c.MaxFrame < 0 || c.MaxWaiting < 0 || c.MaxInFlight < 0 || c.Epochs < 0 ||
		c.MaxDecompressed < 0 || c.ReadBytes < 0 || c.MaxRecords < 0:
		return errors.New("prober: a bound in Config is negative")
	}
	return nil
}
