package wire

import (
	"encoding/binary"
	"fmt"
)

// Versions of the Produce answer at which its format changes, beside those at
// which that of the request does.
const (
	answerThrottle   = 1
	answerAppendTime = 2
	answerLogStart   = 5 // KIP-107
	answerErrors     = 8 // KIP-467
)

// ProduceResult is what an answer to Produce says of one partition.
type ProduceResult struct {
	// Partition is the partition's number, unchecked.
	Partition int32
	// ErrorCode is Kafka's, 0 for none.
	ErrorCode int16
	// BaseOffset is the offset of the batch's first record; −1 with an error.
	BaseOffset int64
	// LogAppendTime, in milliseconds since 1970, is −1 unless the topic has
	// LogAppendTime, and before version 2.
	LogAppendTime int64
	// LogStartOffset is the partition's first offset; −1 before version 5, and
	// where the broker does not say.
	LogStartOffset int64
	// ErrorRecords are the records at fault (KIP-467) as the answer's version
	// encodes them, their number in front; nil if there are none, and before
	// version 8.
	ErrorRecords []byte
	// ErrorMessage is nil if null, and before version 8.
	ErrorMessage []byte
}

// AnsweredPartition is one partition of an answer, with its topic. Its slices
// alias the body of the answer.
type AnsweredPartition struct {
	// Topic is the topic's name; nil from version 13 on.
	Topic []byte
	// TopicID is the topic's id; zero before version 13.
	TopicID [16]byte
	ProduceResult
}

// ProduceAnswer is a view of the body of one answer to Produce, versions 0 to
// 13. The zero value is ready. Parse may be called again and again, and
// allocates nothing; Find allocates only for answers of many partitions in an
// order of their own. Not for concurrent use.
type ProduceAnswer struct {
	// Version of the answer as parsed.
	Version int16
	// ThrottleMillis is how long the client is to wait before its next request,
	// in milliseconds; 0 before version 1.
	ThrottleMillis int32
	// Partitions is how many partitions the answer has, in all its topics.
	Partitions int
	// Tagged: a partition, a topic or the answer itself has tagged fields, among which
	// KIP-951 put new leaders and their addresses, or bytes follow its end.
	Tagged bool

	body  []byte
	walk  answerWalk
	index answerIndex
}

// Parse reads a body: what follows the answer's header, up to the frame's end.
// It goes through all of it, so that Next and Find meet nothing malformed.
// Every length is checked against the bytes left. Null arrays count as empty
// ones, and bytes after the last field are ignored, as kmsg does. Errors wrap
// ErrMalformedAnswer or ErrVersion; after one the view has no partitions.
func (a *ProduceAnswer) Parse(body []byte, version int16) error {
	a.index.forget()
	a.Version, a.ThrottleMillis, a.Partitions, a.Tagged = version, 0, 0, false
	a.body, a.walk = nil, answerWalk{}
	if version < MinProduceVersion || version > MaxProduceVersion {
		return fmt.Errorf("produce answer version %d: %w", version, ErrVersion)
	}
	w := beginAnswer(body, version)
	n := 0
	for w.nextTopic() {
		for w.nextPartition(nil) {
			n++
		}
	}
	tagged, throttle := w.tagged, int32(0)
	if version >= answerThrottle {
		throttle = int32(w.r.uint32())
	}
	if w.r.skipTags() || w.r.at < len(body) {
		tagged = true
	}
	if w.r.failed {
		return fmt.Errorf("produce answer version %d at byte %d: %w", version, w.r.at, ErrMalformedAnswer)
	}
	a.ThrottleMillis, a.Partitions, a.Tagged = throttle, n, tagged
	a.body = body
	a.Rewind()
	return nil
}

// Rewind lets Next begin at the first partition again.
func (a *ProduceAnswer) Rewind() {
	a.walk = answerWalk{}
	if a.Partitions > 0 {
		a.walk = beginAnswer(a.body, a.Version)
	}
}

// Next is the partition that follows the one that Next or Find returned last;
// false after the last.
func (a *ProduceAnswer) Next() (p AnsweredPartition, ok bool) {
	ok = a.walk.next(&p)
	return p, ok
}

// answerScanned is the size up to which an answer in another order is gone
// through for each search; above it is indexed, lest an answer of n partitions
// takes n² steps.
const answerScanned = 16

// Find is the answer for a partition, false if there is none. Of topic and id
// the one that the answer's version does not have is empty and zero. A search goes on
// where the last one ended: in the order of the answer it takes one step.
// Brokers that keep answers in a hash table use no order at all. Where the answer has
// a partition twice, any of the two may be found.
func (a *ProduceAnswer) Find(topic string, id [16]byte, partition int32) (p AnsweredPartition, ok bool) {
	if a.walk.isNext(topic, id, partition) {
		a.walk.nextPartition(&p)
		return p, true
	}
	if a.Partitions > answerScanned {
		before := a.walk
		if a.walk.next(&p) && p.is(topic, id, partition) { // the first of its topic
			return p, true
		}
		a.walk = before
		return a.index.find(a, topic, id, partition)
	}
	for range a.Partitions {
		if !a.walk.next(&p) {
			a.Rewind()
			a.walk.next(&p)
		}
		if p.is(topic, id, partition) {
			return p, true
		}
	}
	return AnsweredPartition{}, false
}

func (p *AnsweredPartition) is(topic string, id [16]byte, partition int32) bool {
	return p.Partition == partition && string(p.Topic) == topic && p.TopicID == id
}

// answerWalk steps through an answer's topics and partitions. The zero value
// is at the end.
type answerWalk struct {
	r          fieldReader
	version    int16
	open       bool // within a topic
	tagged     bool // a partition or a topic had tagged fields
	topics     int  // not begun
	partitions int  // of the topic, not read
	topicAt    int  // where the topic begins
	topic      []byte
	topicID    [16]byte
}

// isNext reports whether the topic's next partition is the one given.
func (w *answerWalk) isNext(topic string, id [16]byte, partition int32) bool {
	return w.partitions > 0 && len(w.r.buf)-w.r.at >= 4 && int32(binary.BigEndian.Uint32(w.r.buf[w.r.at:])) == partition &&
		string(w.topic) == topic && w.topicID == id
}

func beginAnswer(body []byte, version int16) answerWalk {
	w := answerWalk{r: fieldReader{buf: body, flexible: version >= produceFlexible}, version: version}
	w.topics = max(0, w.r.nullableArrayLen())
	return w
}

// nextTopic begins the next topic; false at the end and after a failure.
func (w *answerWalk) nextTopic() bool {
	if w.topics == 0 || w.r.failed {
		return false
	}
	w.topics--
	w.beginTopic()
	return !w.r.failed
}

func (w *answerWalk) beginTopic() {
	w.topicAt = w.r.at
	if w.version >= produceTopicIDs {
		copy(w.topicID[:], w.r.take(16))
	} else if w.topic = w.r.nullableString(); w.topic == nil {
		w.r.failed = true
	}
	w.partitions = max(0, w.r.nullableArrayLen())
	w.open = true
}

// nextPartition reads the topic's next partition, or steps over it if p is nil; false
// at the topic's end, which it steps over, and after a failure.
func (w *answerWalk) nextPartition(p *AnsweredPartition) bool {
	if w.partitions == 0 || w.r.failed {
		if w.open {
			w.open = false
			w.tagged = w.r.skipTags() || w.tagged
		}
		return false
	}
	w.partitions--
	w.readPartition(p)
	return !w.r.failed
}

func (w *answerWalk) next(p *AnsweredPartition) bool {
	for !w.nextPartition(p) {
		if !w.nextTopic() {
			return false
		}
	}
	return true
}

// noErrorNoTags is how nearly all partitions end in the flexible versions: no error
// records, a null message, no tagged fields.
const noErrorNoTags = "\x01\x00\x00"

// readPartition takes the fields of fixed size at once.
func (w *answerWalk) readPartition(p *AnsweredPartition) {
	size := 4 + 2 + 8
	if w.version >= answerAppendTime {
		size += 8
	}
	if w.version >= answerLogStart {
		size += 8
	}
	b := w.r.take(size)
	var records, message []byte
	if w.version >= answerErrors && !(w.r.flexible && w.r.skip(noErrorNoTags)) {
		records = w.r.errorRecords()
		message = w.r.nullableString()
		if w.r.skipTags() {
			w.tagged = true
		}
	}
	if p == nil || w.r.failed {
		return
	}
	be := binary.BigEndian
	p.Topic, p.TopicID = w.topic, w.topicID
	p.Partition = int32(be.Uint32(b))
	p.ErrorCode = int16(be.Uint16(b[4:]))
	p.BaseOffset = int64(be.Uint64(b[6:]))
	p.LogAppendTime, p.LogStartOffset = -1, -1
	if w.version >= answerAppendTime {
		p.LogAppendTime = int64(be.Uint64(b[14:]))
	}
	if w.version >= answerLogStart {
		p.LogStartOffset = int64(be.Uint64(b[22:]))
	}
	p.ErrorRecords, p.ErrorMessage = records, message
}

// errorRecords returns an array of error records as it is encoded, nil if it
// has none.
func (r *fieldReader) errorRecords() []byte {
	start := r.at
	n := r.nullableArrayLen()
	if n <= 0 {
		return nil
	}
	for ; n > 0 && !r.failed; n-- {
		r.take(4) // index in the batch
		r.nullableString()
		r.skipTags()
	}
	if r.failed {
		return nil
	}
	return r.buf[start:r.at:r.at]
}
