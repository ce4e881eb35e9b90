package wire

import (
	"encoding/binary"
	"fmt"
)

// ProduceAnswerWriter writes the body of an answer to Produce, versions 0 to
// 13, without tagged fields. It panics where fewer or more topics or partitions are
// written than were announced.
type ProduceAnswerWriter struct {
	w          fieldWriter
	version    int16
	open       bool // within a topic
	topics     int  // not begun
	partitions int  // of the topic, not written
}

// AppendProduceAnswer begins an answer behind dst, which it may reallocate, and
// is followed by as many calls of Topic as topics says, and by End. It panics
// on versions that it does not know.
func AppendProduceAnswer(dst []byte, version int16, topics int) ProduceAnswerWriter {
	if version < MinProduceVersion || version > MaxProduceVersion {
		panic(fmt.Sprintf("wire: produce answer version %d", version))
	}
	a := ProduceAnswerWriter{w: fieldWriter{buf: dst, flexible: version >= produceFlexible}, version: version, topics: topics}
	a.w.arrayLen(topics)
	return a
}

// Topic begins a topic, and is followed by as many calls of Partition as
// partitions says. Before version 13 topics have names, of at most 32,767
// bytes, and from then on ids; the other is not used.
func (a *ProduceAnswerWriter) Topic(name string, id [16]byte, partitions int) {
	a.endTopic()
	if a.topics == 0 {
		panic("wire: more topics than announced")
	}
	a.topics--
	a.open, a.partitions = true, partitions
	if a.version >= produceTopicIDs {
		a.w.buf = append(a.w.buf, id[:]...)
	} else {
		a.w.string(name)
	}
	a.w.arrayLen(partitions)
}

// Partition writes a partition of the topic: what the version has of it. Its
// ErrorRecords are those of an answer of this version, its ErrorMessage has at
// most 32,767 bytes.
func (a *ProduceAnswerWriter) Partition(p *ProduceResult) {
	if a.partitions == 0 {
		panic("wire: more partitions than announced")
	}
	a.partitions--
	be := binary.BigEndian
	b := be.AppendUint32(a.w.buf, uint32(p.Partition))
	b = be.AppendUint16(b, uint16(p.ErrorCode))
	b = be.AppendUint64(b, uint64(p.BaseOffset))
	if a.version >= answerAppendTime {
		b = be.AppendUint64(b, uint64(p.LogAppendTime))
	}
	if a.version >= answerLogStart {
		b = be.AppendUint64(b, uint64(p.LogStartOffset))
	}
	a.w.buf = b
	if a.version >= answerErrors {
		if p.ErrorRecords != nil {
			a.w.buf = append(a.w.buf, p.ErrorRecords...)
		} else {
			a.w.arrayLen(0)
		}
		a.w.nullableString(p.ErrorMessage)
	}
	a.w.noTags()
}

// End writes what follows the topics, the throttle time in milliseconds, and
// returns all: dst and the answer.
func (a *ProduceAnswerWriter) End(throttleMillis int32) []byte {
	a.endTopic()
	if a.topics != 0 {
		panic("wire: fewer topics than announced")
	}
	if a.version >= answerThrottle {
		a.w.uint32(uint32(throttleMillis))
	}
	a.w.noTags()
	return a.w.buf
}

func (a *ProduceAnswerWriter) endTopic() {
	if a.partitions != 0 {
		panic("wire: fewer partitions than announced")
	}
	if a.open {
		a.open = false
		a.w.noTags()
	}
}
