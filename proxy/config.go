package proxy

import (
	"context"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// BrokerKind says by which rules the upstream brokers mark duplicates and
// show producer state (see docs/semantics.md, "What kind of broker").
type BrokerKind int

const (
	// AutoKind has each broker probed, on Config.ProbeTopic.
	AutoKind BrokerKind = iota
	// ApacheKafka marks a duplicate by log_append_time and lists idle
	// producers in DescribeProducers.
	ApacheKafka
	// EmbeddedKfake marks a duplicate by log_start_offset −1 and shows
	// producer state only in the log's tail batch. For demo, dev and tests.
	EmbeddedKfake
)

// PortRange is an inclusive range of TCP ports. The broker with node id n is
// served on First+n, so every replica of the proxy agrees without talking to
// the others. A node id that falls outside needs an entry in
// Config.NodePorts; without one the broker is left out of what clients see.
type PortRange struct{ First, Last int }

// Config is everything a Proxy needs. The zero value of an optional field
// means its default, given beside it. InForce shows what a configuration comes
// to, with its defaults; New uses that and names the bad field.
type Config struct {
	// Bootstrap lists upstream host:port addresses; at least one.
	Bootstrap []string
	// Listen is Listener.Listen of a plain listener; empty if Listeners are all
	// there are.
	Listen string
	// AdvertisedHost is its Listener.AdvertisedHost.
	AdvertisedHost string
	// BrokerPorts is its Listener.BrokerPorts.
	BrokerPorts PortRange
	// NodePorts is its Listener.NodePorts.
	NodePorts map[int32]int
	// Listeners are others, or all.
	Listeners []Listener

	// Credentials are the proxy's own for the brokers; the zero value: none.
	// The principal needs DESCRIBE, READ and DESCRIBE_CONFIGS on fenced topics,
	// and DESCRIBE_CONFIGS on the cluster.
	Credentials Credentials

	// Rules are tried in order; no match means Default.
	Rules []Rule
	// Default is the mode of topics that no rule matches; zero: ModeOff. A last
	// rule "*" has options too.
	Default Mode

	// FenceID is the constant producer id of all proxies of a cluster;
	// default 0x4f66667365740001.
	FenceID int64
	// BrokerKind; zero: AutoKind. Another is the operator's word, which is only
	// doubted if brokers are seen to be otherwise.
	BrokerKind BrokerKind
	// ProbeTopic is where brokers are probed; default "__offsetproxy_probe". It
	// is created if it does not exist and the brokers' kind is not asserted.
	// Besides the rights that Credentials name, the principal needs DESCRIBE,
	// READ and WRITE on it, and CREATE to create it, ALTER to add partitions for
	// brokers that are new.
	ProbeTopic string
	// Unsafe switches the fence off: batches are checked against the cached
	// high watermark only and then forwarded. For demonstrations and twins
	// of safety tests; it loses the races that the fence wins.
	Unsafe bool

	// ViewMaxAge bounds how old a view may be when it is used; default 60 s.
	ViewMaxAge time.Duration
	// AdmissionWait is the least time after which the head of a partition's
	// queue stops waiting for the batch in flight; default 50 ms.
	AdmissionWait time.Duration
	// AnswerMax bounds how long the broker's answer to a stamped batch is waited
	// for, whatever timeout its client chose; default 2 min. Then its fate is
	// unknown. It counts in what producer.id.expiration.ms must cover.
	AnswerMax time.Duration
	// AssertedProducerExpiry, if positive, is the operator's word for the
	// brokers' producer.id.expiration.ms where it cannot be read.
	AssertedProducerExpiry time.Duration
	// AssertedConnectionIdle, if positive, is the operator's word for the
	// brokers' connections.max.idle.ms where it cannot be read.
	AssertedConnectionIdle time.Duration
	// AssertedExpiryCheck, if positive, is the operator's word for the brokers'
	// producer.id.expiration.check.interval.ms where it cannot be read. With
	// the two above asserted nothing is read, and without this one the interval
	// is taken to be Kafka's default, 10 min.
	AssertedExpiryCheck time.Duration
	// ClockSkew is how far apart the clocks of clients, proxies and brokers
	// may be; default 10 s.
	ClockSkew time.Duration
	// IdleViews is how many partitions' views are kept while nothing is in
	// flight for them; default 100,000. Each costs about 1 KiB, and more after
	// idempotent clients.
	IdleViews int
	// ProducerKeep is how long an idempotent client's last batches in a partition
	// are remembered after the last of them; default 10 min.
	ProducerKeep time.Duration
	// MaxProducers bounds the producer ids of which they are in one partition;
	// default 1,024. The one not used for longest makes room, unless it has a
	// batch in flight. Each costs about 310 bytes.
	MaxProducers int
	// IdleProducers bounds the producer ids of all partitions for which nothing
	// is in flight; default 250,000. The partition not used for longest makes
	// room.
	IdleProducers int
	// MaxRuleTopics bounds the topics whose rule is remembered, so that the
	// patterns are not tried for each request; default 100,000.
	MaxRuleTopics int

	// MaxFrameBytes is the largest request frame accepted; default 100 MiB.
	MaxFrameBytes int
	// MaxDecompressedBytes bounds a batch after decompression; default 64 MiB.
	MaxDecompressedBytes int
	// MaxProducePartitions bounds the partitions of a Produce request of which
	// some are under a rule; default 16,384.
	MaxProducePartitions int
	// MaxAddPartitionsBytes bounds an AddPartitionsToTxn request, which is
	// decoded if any topic may be under a rule; default 1 MiB, enough for some
	// 10,000 topics.
	MaxAddPartitionsBytes int
	// MaxTopics bounds the topics of which is remembered what it takes to fence
	// them, and the topic ids whose names are; default 100,000. The one unused
	// for longest is looked up again when it is needed.
	MaxTopics int
	// MaxUnknown bounds a partition's batches that are upstream or of unknown
	// fate; default 1,024. Beyond it new ones are given back to be sent again.
	MaxUnknown int
	// MaxReadings bounds the readings of views and records that go on at one
	// broker at the same time; default 32. Others wait for their turn.
	MaxReadings int
	// OldReadsPerSecond bounds, for each client connection, the batches that
	// expect an offset so far back that its record has to be read from the log
	// each time, to tell whether it is their own; default 100, and twice as many
	// at once. Others are held until it is their turn.
	OldReadsPerSecond int
	// MaxReadBackBytes bounds what one round of reading records back takes in;
	// default 8 MiB. At least one batch is read whole.
	MaxReadBackBytes int
	// MaxControlBytes bounds an answer to the proxy's own requests; default 64
	// MiB. It must exceed the brokers' largest batch.
	MaxControlBytes int
	// ControlTimeout bounds how long a broker may leave the proxy's own requests
	// without any answer; default 5 s.
	ControlTimeout time.Duration
	// MaxPendingRequests bounds the requests of one connection that are not
	// answered yet; reading pauses at it. Default 1,024.
	MaxPendingRequests int
	// MaxConnections bounds client connections; default 10,000.
	MaxConnections int
	// MaxConnectionsPerAddress bounds those of one client address, or of one /64
	// network with IPv6, of which a machine has all; default 0: no limit of its own,
	// since behind a load balancer or NAT all clients may have one address.
	MaxConnectionsPerAddress int
	// MaxBufferedBytes bounds the memory that all connections together hold frames
	// in: three quarters for requests that are read whole, one for answers. Beyond it
	// reading waits, in order. What each connection may hold besides is small:
	// 128 KiB in each direction, and one frame if it is larger than all the room.
	// Default 1 GiB.
	MaxBufferedBytes int
	// ArrivalTimeout is how long a request or an answer that is read whole may take to
	// arrive while others wait for the memory that it has; default 30 s. Then its
	// connection is closed.
	ArrivalTimeout time.Duration
	// MaxRewrittenBytes bounds an answer that has to be read whole because
	// addresses in it are replaced; default 64 MiB. Others are streamed.
	MaxRewrittenBytes int
	// MaxHeldBytes bounds the answers of one connection that have arrived and
	// wait for an earlier one; reading upstream pauses at it. Default 1 MiB.
	MaxHeldBytes int
	// DialTimeout bounds one upstream connection attempt; default 5 s.
	DialTimeout time.Duration
	// HandshakeTimeout is how long a new connection may take to send its
	// first whole request; default 30 s.
	HandshakeTimeout time.Duration
	// IdleTimeout closes connections on which nothing moved; default 0: the
	// broker's own idle limit decides.
	IdleTimeout time.Duration
	// WriteTimeout closes the connection of a client that takes none of the bytes
	// that wait for it; default 2 min.
	WriteTimeout time.Duration
	// LongestHold bounds how long a batch is held for its turn, which is at most
	// half of its request's timeout; default 1 min.
	LongestHold time.Duration
	// LookupTimeout bounds the readings, all together, that a request waits for
	// before it can be judged, of names and configurations of topics; default 5 s.
	LookupTimeout time.Duration
	// ReadingTimeout bounds a reading of the end of a partition or of records;
	// default 15 s. Under load that bypasses the proxies an end may never come to
	// rest.
	ReadingTimeout time.Duration
	// DrainDelay is how long connections are still accepted after Run's context has
	// ended and the proxy is not ready any more, so that load balancers see that
	// first; default 0.
	DrainDelay time.Duration
	// DrainTimeout bounds the drain after that; default 10 s.
	DrainTimeout time.Duration

	// Logger; default slog.Default().
	Logger *slog.Logger
	// Meter; default: metrics are not recorded. It is read until its provider is shut
	// down, also after Run has returned.
	Meter metric.Meter
	// MetricTopics is how many topics have series of their own in metrics, those that
	// batches under a rule come for first; others are counted together. Default 0: none
	// has.
	MetricTopics int
	// Tracing; default: nothing is traced.
	Tracing *Tracing
	// Dial opens upstream connections (the seam for TLS); default net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ListenFunc opens listeners (the seam for TLS and tests); default net.Listen.
	ListenFunc func(network, address string) (net.Listener, error)
}
