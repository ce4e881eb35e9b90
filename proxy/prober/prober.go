package prober

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/offsetproxy/offsetproxy/wire"
)

// StateSource says where a broker shows the fence's producer state.
type StateSource int

const (
	// Describe reads it by DescribeProducers, which on Apache Kafka 2.8 and
	// later lists idle producers too (KIP-664).
	Describe StateSource = iota
	// TailBatch reads it from the header of the log's last batch, for brokers
	// that do not list idle producers (kfake).
	TailBatch
)

// Config is what a Pool needs. Zero values mean the default given.
type Config struct {
	// Dial opens a connection to the broker with this node id, authenticated
	// and ready for requests. Required. It is called from several goroutines
	// and must honour its context. The Pool owns what it returns.
	Dial func(ctx context.Context, nodeID int32) (net.Conn, error)
	// ClientID is sent with each request; default "offsetproxy".
	ClientID string
	// Logger; default slog.Default().
	Logger *slog.Logger

	// MaxFrame bounds an answer, in bytes; default 64 MiB. It must exceed the
	// brokers' largest batch, which a Fetch returns whole (KIP-74).
	MaxFrame int
	// RequestTimeout bounds dialling with its version handshake, each write,
	// and the time from a request's write to its answer; default 5 s.
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

	// Names are the record headers that read-backs look for.
	Names wire.HeaderNames
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

// Topic names a topic. Where ID is not zero it is used as well, so that a
// topic deleted and created again under the same name is told apart
// (KIP-516): in Fetch, and whenever the leader epoch is asked for.
type Topic struct {
	Name string
	ID   [16]byte
}

// A Pool holds the control connections. Its methods may be called from any
// number of goroutines.
type Pool struct {
	cfg    Config
	ctx    context.Context // ends with Run; parent of dials
	cancel context.CancelCauseFunc

	epochs *lru.Cache[epochKey, int32]

	// wg counts dials and connection loops. Add only under mu with closed
	// false, so that Run's Wait cannot miss one.
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	slots  map[int32]*slot
}
