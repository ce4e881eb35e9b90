package wire

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// answerIndex finds the partitions of a large answer that has them in an order
// of its own. It is made at the first search that needs it.
type answerIndex struct {
	// places is a hash table with linear probing, its size a power of two; nil
	// until it is made. It holds the first of equal partitions, so that a chain
	// is as long as there are partitions that collide, and the hash is seeded.
	places []answerPlace
	made   bool
	name   []byte // of the topic that is looked for
}

// answerPlace is where a partition stands in the body; at is 0 in an empty
// place.
type answerPlace struct{ topic, at uint32 }

// answerKeptPlaces is the largest table that is kept from one answer to the
// next, so that one huge answer does not cost for ever.
const answerKeptPlaces = 8192

var answerSeed = maphash.MakeSeed()

// forget is called before another answer.
func (x *answerIndex) forget() {
	x.made = false
	if cap(x.places) > answerKeptPlaces {
		x.places = nil
	}
}

func (x *answerIndex) find(a *ProduceAnswer, topic string, id [16]byte, partition int32) (p AnsweredPartition, ok bool) {
	if !x.made {
		x.make(a)
	}
	x.name = append(x.name[:0], topic...)
	h := answerHash(maphash.Bytes(answerSeed, x.name), id, partition)
	place := x.probe(a, h, x.name, id, partition, &p)
	return p, place.at != 0
}

func (x *answerIndex) make(a *ProduceAnswer) {
	size := 1
	for size < 2*a.Partitions {
		size *= 2
	}
	if cap(x.places) < size {
		x.places = make([]answerPlace, size)
	}
	x.places = x.places[:size]
	clear(x.places)
	x.made = true
	w := beginAnswer(a.body, a.Version)
	var p, other AnsweredPartition
	for w.nextTopic() {
		topicHash := maphash.Bytes(answerSeed, w.topic)
		for at := w.r.at; w.nextPartition(&p); at = w.r.at {
			h := answerHash(topicHash, p.TopicID, p.Partition)
			if place := x.probe(a, h, w.topic, p.TopicID, p.Partition, &other); place.at == 0 {
				*place = answerPlace{uint32(w.topicAt), uint32(at)}
			}
		}
	}
}

// probe is the place of a partition, or the empty one where it would be. It
// reads the partition into p.
func (x *answerIndex) probe(a *ProduceAnswer, h uint64, topic []byte, id [16]byte, partition int32, p *AnsweredPartition) *answerPlace {
	mask := uint64(len(x.places) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		place := &x.places[i]
		if place.at == 0 {
			*p = AnsweredPartition{}
			return place
		}
		// Partitions are told apart before topics, since they are the more.
		if int32(binary.BigEndian.Uint32(a.body[place.at:])) != partition {
			continue
		}
		w := answerWalk{version: a.Version, r: fieldReader{buf: a.body, at: int(place.topic), flexible: a.Version >= produceFlexible}}
		w.beginTopic()
		w.r.at = int(place.at)
		w.readPartition(p)
		if bytes.Equal(p.Topic, topic) && p.TopicID == id {
			return place
		}
	}
}

func answerHash(topic uint64, id [16]byte, partition int32) uint64 {
	var key [28]byte
	binary.LittleEndian.PutUint64(key[:], topic)
	copy(key[8:], id[:])
	binary.LittleEndian.PutUint32(key[24:], uint32(partition))
	return maphash.Bytes(answerSeed, key[:])
}
