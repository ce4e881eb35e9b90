package resources

import (
	"slices"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Needs is what the settings of a proxy let its clients have it use.
type Needs struct {
	// Connections is proxy.Config.MaxConnections.
	Connections int
	// Descriptors is how many may be open.
	Descriptors uint64
	// Buffered is proxy.Config.MaxBufferedBytes.
	Buffered int64
	// Idle is the memory of that many idle connections, Remembered that of what is
	// remembered of partitions and producers, in bytes. What else a process has is
	// added to neither.
	Idle, Remembered int64
}

// Memory is what all that is needed comes to, in bytes.
func (n Needs) Memory() int64 { return n.Buffered + n.Idle + n.Remembered + processMemory }

const (
	// otherDescriptors are all but those of clients: listeners, the proxy's own
	// connections, pipes that answers are spliced through, files, and the admin
	// endpoints.
	otherDescriptors = 200
	// perConnection is a client's socket and one to a broker.
	perConnection = 2
	// idlePlain is what an idle connection costs, with its upstream one, in bytes;
	// idleTLS what it costs more on each side that is in TLS. See docs/performance.md.
	idlePlain = 17 << 10
	idleTLS   = 24 << 10
	// perView and perProducer are what is remembered of a partition and of an
	// idempotent client's producer, in bytes.
	perView     = 1 << 10
	perProducer = 310
	// processMemory is what a process has without clients, in bytes.
	processMemory = 24 << 20
)

// Needed gives the needs of a proxy whose settings are in force; upstreamTLS: brokers
// are spoken to in TLS.
func Needed(cfg *proxy.Config, upstreamTLS bool) Needs {
	each := int64(idlePlain)
	if slices.ContainsFunc(cfg.Listeners, func(l proxy.Listener) bool { return l.TLS != nil }) {
		each += idleTLS
	}
	if upstreamTLS {
		each += idleTLS
	}
	return Needs{
		Connections: cfg.MaxConnections,
		Descriptors: uint64(cfg.MaxConnections)*perConnection + otherDescriptors,
		Buffered:    int64(cfg.MaxBufferedBytes),
		Idle:        int64(cfg.MaxConnections) * each,
		Remembered:  int64(cfg.IdleViews)*perView + int64(cfg.IdleProducers)*perProducer,
	}
}
