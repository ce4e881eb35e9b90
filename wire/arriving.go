package wire

import (
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Arriving sums up the batches of a long Produce request while it comes: what has just
// been read is in the processor's cache, what came megabytes ago is not. Of the
// processor's time for a request of several MiB, a quarter went into checksums that
// waited for memory.
//
// It checks nothing. What it does not understand it leaves to Produce.Parse, and
// ParseBatch computes what it has not. The zero value is ready, and allocates only what
// it keeps of batches; it is not for concurrent use.
type Arriving struct {
	stage      arrivingStage
	at         int // in the frame; all before it is done with
	version    int16
	topics     int // that begin at at or later
	partitions int // of the topic at hand, in the same way
	batch      arrivedBatch
	summed     int // where in the frame the sum of batch ends so far
	batches    []arrivedBatch
}

// arrivedBatch is where in a frame the records of a partition are, and their sum.
type arrivedBatch struct {
	from, to int
	sum      uint32
}

// arrivingStage is what comes next in a Produce request.
type arrivingStage uint8

const (
	arrivingHead arrivingStage = iota
	arrivingTopic
	arrivingPartition
	arrivingRecords
	arrivingTags // behind a partition's records
	arrivingEnd  // nothing that is of interest
)

// arrivingItem is within how many bytes what is between two batches has to be whole.
// Looking at more again and again, whenever a little comes, would be work for nothing,
// and much of it if somebody wants it to be.
const arrivingItem = 8 << 10

// Reset forgets what was looked at: another frame is next.
func (a *Arriving) Reset() {
	batches := a.batches
	if cap(batches) > produceKeptPartitions {
		batches = nil
	}
	*a = Arriving{batches: batches[:0]}
}

// Look takes in what has come of a request's frame, without its length bytes, from the
// frame's beginning on. It is called whenever more has come, and may be called for a
// frame of any kind.
func (a *Arriving) Look(frame []byte) {
	for a.step(frame) {
	}
	if a.stage != arrivingRecords && len(frame)-a.at > arrivingItem {
		a.stage = arrivingEnd
	}
}

// step does one stage; false: more has to come first, or there is no more to do.
func (a *Arriving) step(frame []byte) bool {
	if a.stage == arrivingEnd {
		return false
	}
	if a.stage == arrivingHead {
		return a.head(frame)
	}
	r := fieldReader{buf: frame, at: a.at, flexible: a.version >= produceFlexible}
	next := a.stage
	switch a.stage {
	case arrivingTopic:
		if a.topics == 0 {
			a.stage = arrivingEnd
			return false
		}
		if a.version >= produceTopicIDs {
			r.take(16)
		} else {
			r.nullableString()
		}
		if partitions := r.arrayLen(); !r.failed {
			a.topics, a.partitions = a.topics-1, partitions
			next = arrivingPartition
		}
	case arrivingPartition:
		if a.partitions == 0 {
			r.skipTags()
			next = arrivingTopic
			break
		}
		r.uint32()
		size := 0
		if r.flexible {
			size = int(r.uvarint()) - 1
		} else {
			size = int(int32(r.uint32()))
		}
		if !r.failed {
			a.partitions--
			a.batch, a.summed = arrivedBatch{from: r.at, to: r.at + max(size, 0)}, r.at+batchAttributesPos
			next = arrivingRecords
		}
	case arrivingRecords:
		if r.at = a.records(frame); r.at < 0 {
			return false
		}
		next = arrivingTags
	case arrivingTags:
		r.skipTags()
		next = arrivingPartition
	}
	if r.failed {
		return false
	}
	a.at, a.stage = r.at, next
	return true
}

// head reads all in front of the first topic.
func (a *Arriving) head(frame []byte) bool {
	h, err := ParseRequestHeader(frame)
	if err != nil {
		return false
	}
	if h.APIKey != int16(kmsg.Produce) || h.BodyOffset < 0 || h.APIVersion > MaxProduceVersion {
		a.stage = arrivingEnd
		return false
	}
	r := fieldReader{buf: frame, at: h.BodyOffset, flexible: h.APIVersion >= produceFlexible}
	if h.APIVersion >= produceTransactional {
		r.nullableString()
	}
	r.take(2 + 4) // acks and timeout
	topics := r.arrayLen()
	if r.failed {
		return false
	}
	a.version, a.topics, a.at, a.stage = h.APIVersion, topics, r.at, arrivingTopic
	return true
}

// records sums what has come of a batch, and gives where it ends, or −1 if that is
// still to come.
func (a *Arriving) records(frame []byte) int {
	b := &a.batch
	if come := min(len(frame), b.to); come > a.summed {
		b.sum = crc32.Update(b.sum, castagnoli, frame[a.summed:come])
		a.summed = come
	}
	if len(frame) < b.to {
		return -1
	}
	if b.to-b.from >= batchHeaderSize {
		a.batches = append(a.batches, *b)
	}
	if len(a.batches) >= MaxProducePartitions {
		a.stage = arrivingEnd
		return -1
	}
	return b.to
}

// Tell has the partitions of a request know the sums of their batches. The request was
// parsed from the frame that was looked at, in which its body begins at bodyOffset,
// and of which no batch was changed since.
func (a *Arriving) Tell(p *Produce, bodyOffset int) {
	next := a.batches
	if len(next) == 0 {
		return
	}
	for i := range p.Partitions {
		part := &p.Partitions[i]
		from := bodyOffset + part.at
		for len(next) > 0 && next[0].from < from {
			next = next[1:]
		}
		if len(next) > 0 && next[0].from == from && next[0].to == from+len(part.Records) {
			part.sum, part.summed = next[0].sum, true
		}
	}
}
