package wire

import (
	"encoding/binary"
	"fmt"
)

// Versions of Produce that Parse reads. The format changes at 3
// (transactional id, KIP-98), 9 (compact types and tagged fields, KIP-482)
// and 13 (topic ids, KIP-516); between those only its meaning does.
const (
	MinProduceVersion = 0
	MaxProduceVersion = 13

	produceTransactional = 3
	produceFlexible      = 9
	produceTopicIDs      = 13
)

// MaxProducePartitions is the most partitions that one Produce request may
// hold. It bounds what Parse allocates: six bytes of a frame are enough to
// name a partition, and each costs a ProducePartition.
const MaxProducePartitions = 1 << 17

// produceKeptPartitions is the largest Partitions slice that is kept from
// one request to the next, so that one huge request does not cost for ever.
const produceKeptPartitions = 4096

// Produce is a view of one Produce request, versions 0 to 13. The zero value
// is ready; Parse may be called again and again, and allocates nothing once
// Partitions has grown. All slices alias the body given to Parse.
type Produce struct {
	// Version of the request as parsed.
	Version int16
	// TransactionalID is nil if null or before version 3.
	TransactionalID []byte
	// Acks is −1, 0 or 1 from sane clients; any value is passed through.
	Acks int16
	// TimeoutMillis is how long the broker may wait for acks, milliseconds.
	TimeoutMillis int32
	// Partitions in the order of the request, its topics flattened.
	Partitions []ProducePartition

	body    []byte
	acksPos int // of acks in body; the timeout follows it
}

// ProducePartition is what a Produce request holds for one partition.
type ProducePartition struct {
	// Topic is the topic's name; nil from version 13 on.
	Topic []byte
	// TopicID is the topic's id; zero before version 13.
	TopicID [16]byte
	// Partition is the partition's number, unchecked.
	Partition int32
	// TopicIndex counts the request's topic entries from 0. Two entries may
	// name the same topic; answers are grouped by entry, not by name.
	TopicIndex int
	// Records is one record batch (version 3 on) or a message set, as sent;
	// nil if null. Its bytes may be edited in place (see Stamp).
	Records []byte

	at int // of Records, in the body
	// sum is the checksum of the batch in Records, if summed. See Arriving.
	sum    uint32
	summed bool
}

// Batch is ParseBatch of Records.
func (p *ProducePartition) Batch() (BatchHeader, error) {
	if !p.summed {
		return ParseBatch(p.Records)
	}
	return parseBatch(p.Records, &p.sum)
}

// Parse reads a request body: what follows the request header, up to the
// frame's end. Every length is checked against the bytes left, and bytes
// after the last field are an error. Errors wrap ErrMalformed, ErrVersion or
// ErrTooLarge (more than MaxProducePartitions); after an error the view
// holds no partitions.
func (p *Produce) Parse(body []byte, version int16) error {
	partitions := p.Partitions
	clear(partitions) // let go of the last frame
	if cap(partitions) > produceKeptPartitions {
		partitions = nil
	}
	*p = Produce{Version: version, Partitions: partitions[:0]}
	if version < MinProduceVersion || version > MaxProduceVersion {
		return fmt.Errorf("produce version %d: %w", version, ErrVersion)
	}
	p.body = body
	r := fieldReader{buf: body, flexible: version >= produceFlexible}
	if version >= produceTransactional {
		p.TransactionalID = r.nullableString()
	}
	p.acksPos = r.at
	p.Acks = int16(r.uint16())
	p.TimeoutMillis = int32(r.uint32())
	p.parseTopics(&r)
	if r.failed || r.at != len(body) || len(p.Partitions) > MaxProducePartitions {
		err := ErrMalformed
		if len(p.Partitions) > MaxProducePartitions {
			err = ErrTooLarge
		}
		clear(p.Partitions)
		p.Partitions = p.Partitions[:0]
		p.body = nil
		return fmt.Errorf("produce version %d at byte %d: %w", version, r.at, err)
	}
	return nil
}

func (p *Produce) parseTopics(r *fieldReader) {
	topics := r.arrayLen()
	for topic := 0; topic < topics && !r.failed; topic++ {
		var entry ProducePartition
		entry.TopicIndex = topic
		if p.Version >= produceTopicIDs {
			copy(entry.TopicID[:], r.take(16))
		} else if entry.Topic = r.nullableString(); entry.Topic == nil {
			r.failed = true
		}
		partitions := r.arrayLen()
		for range partitions {
			entry.Partition = int32(r.uint32())
			entry.Records = r.nullableBytes()
			entry.at = r.at - len(entry.Records)
			r.skipTags()
			if r.failed || len(p.Partitions) > MaxProducePartitions {
				r.failed = true
				return
			}
			p.Partitions = append(p.Partitions, entry)
		}
		r.skipTags()
	}
	r.skipTags()
}

// Forget lets go of the body, of which the view then knows nothing.
func (p *Produce) Forget() {
	clear(p.Partitions)
	*p = Produce{Partitions: p.Partitions[:0]}
}

// PatchAcks overwrites acks in the view and in the body it was parsed from.
func (p *Produce) PatchAcks(acks int16) {
	p.Acks = acks
	binary.BigEndian.PutUint16(p.body[p.acksPos:], uint16(acks))
}

// PatchTimeout overwrites the timeout, in milliseconds, in the view and in
// the body it was parsed from.
func (p *Produce) PatchTimeout(ms int32) {
	p.TimeoutMillis = ms
	binary.BigEndian.PutUint32(p.body[p.acksPos+2:], uint32(ms))
}

// leftOut are the records of at least long bytes that were left out of a frame, each
// in front of the byte at that index.
type leftOut struct {
	long    int
	records []leftOutRecords
}

type leftOutRecords struct {
	at    int
	bytes []byte
}

// GatherFrame makes a whole request frame, its four length bytes included, that asks
// for the partitions with the given indexes into Partitions only. The indexes ascend;
// an index that is out of range or out of order panics. Partitions stay grouped as
// they were in the request; a topic entry of which nothing is kept is left out, and so
// are tagged fields (none is defined for Produce). A nil clientID is null; it has at
// most 32,767 bytes.
//
// The pieces that it appends to dst are the frame, in order. Records of at least long
// bytes are not copied, but alias the parsed body, so the pieces are valid for as long
// as it is. The first piece has at least the frame's length and its header.
func (p *Produce) GatherFrame(dst [][]byte, clientID []byte, correlationID int32, acks int16, timeoutMillis int32, keep []int, long int) [][]byte {
	left := leftOut{long: max(long, 1)}
	buf := p.appendFrame(make([]byte, 0, p.gatheredHead(clientID, keep, left.long)), clientID, correlationID, acks, timeoutMillis, keep, &left)
	size, from := len(buf), 0
	for _, a := range left.records {
		dst = append(dst, buf[from:a.at:a.at], a.bytes)
		size += len(a.bytes)
		from = a.at
	}
	if from < len(buf) {
		dst = append(dst, buf[from:])
	}
	binary.BigEndian.PutUint32(buf, uint32(size-4))
	return dst
}

// gatheredHead is no less than what GatherFrame copies.
func (p *Produce) gatheredHead(clientID []byte, keep []int, long int) int {
	const perEntry = 48 // lengths and numbers, in front of each partition and of all
	size := perEntry + len(clientID) + len(p.TransactionalID)
	for _, i := range keep {
		part := &p.Partitions[i]
		size += perEntry + len(part.Topic)
		if len(part.Records) < long {
			size += len(part.Records)
		}
	}
	return size
}

// appendFrame appends the frame with its length left zero, and without what left
// takes.
func (p *Produce) appendFrame(dst, clientID []byte, correlationID int32, acks int16, timeoutMillis int32, keep []int, left *leftOut) []byte {
	w := fieldWriter{buf: append(dst, 0, 0, 0, 0), flexible: p.Version >= produceFlexible}
	w.uint16(0) // the api key of Produce
	w.uint16(uint16(p.Version))
	w.uint32(uint32(correlationID))
	// Request header v2 kept the client id as it was in v1 (KIP-482).
	header := fieldWriter{buf: w.buf}
	header.nullableString(clientID)
	w.buf = header.buf
	w.noTags()

	if p.Version >= produceTransactional {
		w.nullableString(p.TransactionalID)
	}
	w.uint16(uint16(acks))
	w.uint32(uint32(timeoutMillis))
	w.arrayLen(p.countTopics(keep))
	for len(keep) > 0 {
		n := p.sameTopic(keep)
		first := &p.Partitions[keep[0]]
		if p.Version >= produceTopicIDs {
			w.buf = append(w.buf, first.TopicID[:]...)
		} else {
			w.nullableString(first.Topic)
		}
		w.arrayLen(n)
		for _, i := range keep[:n] {
			w.uint32(uint32(p.Partitions[i].Partition))
			w.nullableBytesOrLeave(p.Partitions[i].Records, left)
			w.noTags()
		}
		w.noTags()
		keep = keep[n:]
	}
	w.noTags()
	return w.buf
}

// nullableBytesOrLeave writes records, or their length only, if left takes them.
func (w *fieldWriter) nullableBytesOrLeave(records []byte, left *leftOut) {
	if len(records) < left.long {
		w.nullableBytes(records)
		return
	}
	w.arrayLen(len(records))
	left.records = append(left.records, leftOutRecords{len(w.buf), records})
}

// countTopics returns how many topic entries the kept partitions stand in,
// and panics if keep does not ascend.
func (p *Produce) countTopics(keep []int) int {
	topics := 0
	for i, k := range keep {
		if i > 0 && k <= keep[i-1] {
			panic(fmt.Sprintf("wire: partition indexes do not ascend: %d after %d", k, keep[i-1]))
		}
		if i == 0 || p.Partitions[k].TopicIndex != p.Partitions[keep[i-1]].TopicIndex {
			topics++
		}
	}
	return topics
}

// sameTopic returns how many of the first kept partitions share a topic entry.
func (p *Produce) sameTopic(keep []int) int {
	n := 1
	for n < len(keep) && p.Partitions[keep[n]].TopicIndex == p.Partitions[keep[0]].TopicIndex {
		n++
	}
	return n
}
