package proxy

import (
	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// Messages of the codes that brokers give to idempotent producers (KIP-98). In
// fenced partitions the proxy gives them, since brokers see the fence's producer
// id and not the client's.
const (
	messageSequence    = "the producer's sequence number is not the one that follows"
	messageEpoch       = "a newer epoch of the producer id was seen"
	messageNoSequence  = "a batch with a producer id needs a sequence number"
	messagePredecessor = "predecessor refused: expected="
)

// idempotent notes where the batch stands among its client's, if the client is
// idempotent.
func (e *entry) idempotent(c *conn, h wire.BatchHeader) {
	if h.ProducerID < 0 {
		return
	}
	e.clientBatch = fence.ClientBatch{
		ID: ps.ProducerID(h.ProducerID), Epoch: ps.ProducerEpoch(h.ProducerEpoch),
		Sequence: ps.Sequence(h.BaseSequence), Connection: c.id,
	}
	e.ticket.Producer = &e.clientBatch
}

// isIdempotent reports whether a batch is whole and has a client's producer id.
func isIdempotent(batch []byte) bool {
	h, err := wire.ParseBatch(batch)
	return err == nil && h.ProducerID >= 0
}

// refusedBefore tells the partition of a batch that is refused for its records:
// what its client has pipelined behind it must not be appended either.
func (f *fencing) refusedBefore(key ps.Key, e *entry) {
	if e.ticket.Producer == nil {
		return
	}
	l := f.lane(key)
	defer l.users.Add(-1)
	l.step(e.x.clock(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.Refused(at, &e.ticket) })
}

// countProducersLocked keeps the count of virtual producer states.
func (l *lane) countProducersLocked() {
	if n := l.part.State().Producers(); n != l.producers {
		l.f.metrics.producers.Add(int64(n - l.producers))
		l.producers = n
	}
}
