package proxy

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// Steps of a client's plan, the first byte of each.
const (
	stepRaw       = iota // arbitrary bytes
	stepFramed           // arbitrary bytes in a frame of an api and version
	stepRequest          // a request of an api and version
	stepProduce          // a Produce request with batches
	stepBomb             // a batch that is large when it is unpacked
	stepWait             // for a moment, and until nothing moves any more
	stepPipelined        // many requests at once
	stepHalfFrame        // a frame that is announced and does not come whole
	stepNames            // learns what brokers and topics are
	steps
)

// How a client ends.
const (
	endHalfClosed = iota // closes its side, and waits for the proxy to close
	endOpen              // does nothing any more
	endClosed            // closes
	ends
)

// fuzzKeys are the apis that the proxy looks into, and some that it does not.
var fuzzKeys = [...]kmsg.Key{
	kmsg.Produce, kmsg.Metadata, kmsg.ApiVersions, kmsg.FindCoordinator, kmsg.InitProducerID, kmsg.AddPartitionsToTxn,
	kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.ShareFetch, kmsg.ShareAcknowledge, kmsg.Fetch, kmsg.DescribeCluster,
	kmsg.DescribeQuorum, kmsg.ListOffsets, kmsg.ControlledShutdown, kmsg.ListGroups, kmsg.OffsetCommit, 1000,
}

// fuzzTopics are under all rules, and under none.
var fuzzTopics = []string{"fenced", "free", "seen", "fencedappendtime", "fenced-none", ""}

// fuzzMoment is enough for a proxy to look for its brokers.
const fuzzMoment = 50 * time.Millisecond

// fuzzClient writes what a plan says.
type fuzzClient struct {
	plan    fuzzBytes
	write   func(b []byte)
	wait    func()
	sent    []byte // all of it
	nextID  int32
	written int // requests and other steps
}

// maxClientBytes bounds what one client sends, and maxClientSteps how often.
const (
	maxClientBytes = 1 << 20
	maxClientSteps = 48
)

// run writes until the plan ends. What it returns is how the client ends.
func (c *fuzzClient) run() (end int) {
	end = c.plan.upTo(ends)
	for c.written < maxClientSteps && len(c.plan.rest) > 0 && len(c.sent) < maxClientBytes {
		c.written++
		switch c.plan.upTo(steps) {
		case stepRaw:
			c.send(bytes.Clone(c.plan.bytes(int(c.plan.byte()))), 0)
		case stepFramed:
			frame := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(c.key()))
			frame = binary.BigEndian.AppendUint16(frame, uint16(c.plan.upTo(20)))
			frame = binary.BigEndian.AppendUint32(frame, uint32(c.id()))
			frame = append(frame, c.plan.bytes(int(c.plan.byte()))...)
			c.plan.setLength(frame, false)
			c.send(frame, 0)
		case stepRequest:
			key, version := c.key(), int16(c.plan.byte()%18)
			c.sendFrame(requestFrame(c.id(), key, version), c.plan.byte())
		case stepProduce:
			how := c.plan.byte()
			c.sendFrame(kafkatest.RequestFrame(c.id(), c.produce()), how)
		case stepBomb:
			version, codec, topic := int16(3+c.plan.upTo(11)), 1+c.plan.upTo(3), c.topic()
			c.sendFrame(kafkatest.RequestFrame(c.id(), produceOf(version, -1, part{topic: topic, id: fuzzTopicID(topic), records: fuzzBombs()[codec]})), 0)
		case stepWait:
			time.Sleep(fuzzMoment)
			c.wait()
		case stepPipelined:
			key, version := c.key(), int16(c.plan.upTo(4))
			var frames []byte
			for range 1 + c.plan.upTo(64) {
				frames = append(frames, requestFrame(c.id(), key, version)...)
			}
			c.send(frames, 0)
		case stepHalfFrame:
			size, how := c.plan.uint16()<<2, c.plan.upTo(4)
			request := kmsg.Request(kmsg.NewPtrListGroupsRequest()) // passes as it comes
			if how&2 != 0 {
				request = produceOf(9, -1) // has to be whole
			}
			frame := kafkatest.RequestFrame(c.id(), request)
			binary.BigEndian.PutUint32(frame, uint32(min(size+len(frame), maxClientBytes)+how&1<<28))
			c.send(append(frame, make([]byte, size)...), 0)
		case stepNames:
			r := kmsg.NewPtrMetadataRequest()
			r.Version = int16(c.plan.upTo(13))
			names := slices.Clone(fuzzTopics[:4])
			for range c.plan.byte() { // which brokers tell that they do not know
				names = append(names, strings.Repeat("n", 1000))
			}
			for _, name := range names {
				topic := kmsg.NewMetadataRequestTopic()
				topic.Topic = kmsg.StringPtr(name)
				r.Topics = append(r.Topics, topic)
			}
			c.sendFrame(kafkatest.RequestFrame(c.id(), r), c.plan.byte())
		}
	}
	return end
}

func (c *fuzzClient) id() int32 {
	c.nextID++
	return c.nextID
}

func (c *fuzzClient) key() kmsg.Key { return fuzzKeys[c.plan.upTo(len(fuzzKeys))] }
func (c *fuzzClient) topic() string { return fuzzTopics[c.plan.upTo(len(fuzzTopics))] }
func fuzzTopicID(name string) [16]byte {
	for i, known := range fuzzTopics[:4] {
		if known == name {
			return [16]byte{15: byte(i + 1)}
		}
	}
	return [16]byte{15: 99}
}

// sendFrame writes a frame: how says how it lies, and where it is cut into two
// writes.
func (c *fuzzClient) sendFrame(frame []byte, how byte) {
	for range how & 3 {
		frame = c.plan.lie(frame, min(4, len(frame)))
	}
	if len(frame) < 4 {
		frame = make([]byte, 4)
	}
	c.plan.setLength(frame, how&4 != 0)
	cut := 0
	if how&8 != 0 {
		cut = c.plan.uint16() % len(frame)
	}
	c.send(frame, cut)
}

func (c *fuzzClient) send(b []byte, cut int) {
	c.sent = append(c.sent, b...)
	if cut > 0 {
		c.write(b[:cut])
		c.wait()
	}
	c.write(b[cut:])
}

// requestFrame is a request with an item in each of its lists that matter here.
// An api that nobody knows has a header and nothing else.
func requestFrame(id int32, key kmsg.Key, version int16) []byte {
	request := kmsg.RequestForKey(key.Int16())
	if request == nil {
		frame := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 8}, uint16(key))
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(frame, uint16(version)), uint32(id))
	}
	// One version is of the time to come.
	request.SetVersion(min(version, request.MaxVersion()+1))
	switch r := request.(type) {
	case *kmsg.ProduceRequest:
		*r = *produceOf(r.Version, -1, part{topic: "fenced", id: fuzzTopicID("fenced"), records: conditional(0, "a")})
	case *kmsg.AddPartitionsToTxnRequest:
		*r = *addTopics(r.Version, "free", "fenced")
	case *kmsg.SASLHandshakeRequest:
		r.Mechanism = "PLAIN"
	case *kmsg.SASLAuthenticateRequest:
		r.SASLAuthBytes = []byte("\x00user\x00password")
	case *kmsg.FetchRequest:
		p := kmsg.NewFetchRequestTopicPartition()
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID, topic.Partitions = "free", fuzzTopicID("free"), append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
	case *kmsg.ShareFetchRequest:
		topic := kmsg.NewShareFetchRequestTopic()
		topic.Partitions = append(topic.Partitions, kmsg.NewShareFetchRequestTopicPartition())
		r.Topics = append(r.Topics, topic)
	case *kmsg.ListOffsetsRequest:
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic, topic.Partitions = "free", append(topic.Partitions, kmsg.NewListOffsetsRequestTopicPartition())
		r.Topics = append(r.Topics, topic)
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKey, r.CoordinatorKeys = "group", []string{"group"}
	}
	return kafkatest.RequestFrame(id, request)
}

// produce is a Produce request with up to three partitions, whose batches fit
// and may lie within.
func (c *fuzzClient) produce() *kmsg.ProduceRequest {
	var parts []part
	version, acks, flags := int16(c.plan.upTo(15)), int16(c.plan.upTo(3)-1), c.plan.byte()
	for range 1 + flags&1 + flags>>1&1 {
		topic := c.topic()
		parts = append(parts, part{topic: topic, id: fuzzTopicID(topic), partition: int32(c.plan.upTo(6)) - 1, records: c.batch()})
	}
	r := produceOf(version, acks, parts...)
	if flags&4 != 0 {
		r.TransactionID = kmsg.StringPtr("tx")
	}
	if flags&8 != 0 {
		r.TimeoutMillis = liesInt[c.plan.upTo(len(liesInt))]
	}
	return r
}

// batch is a batch of one to four records.
func (c *fuzzClient) batch() []byte {
	kind, how, expected := c.plan.byte(), c.plan.byte(), int64(c.plan.byte())
	if expected == 255 {
		expected = 1<<62 + 7
	}
	var records []record
	for i := range int64(1 + kind>>4&3) {
		r := record{value: "v", expected: strconv.FormatInt(expected+i, 10)}
		switch kind & 7 {
		case 1:
			r.appendID = "id"
		case 2:
			r.expected = "end"
		case 3:
			r.expected = ""
		case 4:
			r.expected = "-7"
		}
		records = append(records, r)
	}
	var o batchOptions
	switch how & 7 {
	case 1:
		o.producerID = 9
	case 2:
		o.attributes = 16 // of a transaction
	case 3:
		o.timestamp = -1
	case 4:
		o.maxTime = 1 << 62
	case 5:
		o.producerID = defaultFenceID
	case 6:
		o.magic = 1
	}
	batch := batchOf(o, records...)
	if codec := kind >> 6 & 3; codec != 0 {
		batch = packed(batch, int(codec))
	}
	for range how >> 4 & 3 {
		batch = c.plan.lie(batch, min(21, len(batch)))
	}
	if how&8 == 0 {
		seal(batch)
	}
	return batch
}

// seal makes a batch's length and checksum fit.
func seal(batch []byte) {
	if len(batch) >= 61 {
		binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
		binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoliTable))
	}
}

// packed compresses a batch's records. zstd is left out: its decoders are pooled
// with channels in them, which must not pass from one time to another.
func packed(batch []byte, codec int) []byte {
	var out bytes.Buffer
	records := batch[61:]
	switch codec {
	case 1:
		w, err := gzip.NewWriterLevel(&out, gzip.StatelessCompression) // others take much memory
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(records)
		_ = w.Close()
	case 2:
		out.Write(snappy.Encode(nil, records))
	case 3:
		w := lz4.NewWriter(&out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
			panic(err)
		}
		_, _ = w.Write(records)
		_ = w.Close()
	}
	packed := append(bytes.Clone(batch[:61]), out.Bytes()...)
	packed[22] = packed[22]&^7 | byte(codec)
	seal(packed)
	return packed
}

// bombBytes is what a bomb of the fuzz client unpacks to.
const bombBytes = 4 << 20

// fuzzBombs are batches by codec, which expect nothing of their place.
var fuzzBombs = sync.OnceValue(func() [4][]byte {
	var bombs [4][]byte
	for codec := 1; codec < len(bombs); codec++ {
		bombs[codec] = packed(batchOf(batchOptions{}, record{value: string(make([]byte, bombBytes)), expected: "0"}), codec)
	}
	return bombs
})
