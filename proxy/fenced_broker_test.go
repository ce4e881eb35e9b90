package proxy

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// fate is what becomes of a Produce request at the scripted leader.
type fate int

const (
	fateAnswer    fate = iota // handled and answered
	fateCutBefore             // nothing appended, connection cut
	fateCutAfter              // appended, connection cut without an answer
	fateCutMid                // appended, connection cut within the answer
	fateSilent                // appended, never answered; the connection stays
	fateAnswerCut             // handled, answered, connection cut behind it
)

// leader is a scripted broker, node 0, that leads every partition and behaves
// as Apache Kafka does to idempotent batches: under the fence's producer id it
// appends a batch if its base sequence is the next one, marks the last one sent
// again by its timestamp, and answers 45 otherwise. All fields and logs are
// guarded by mu, which hooks are called without.
type leader struct {
	t      testing.TB
	server *kafkatest.Server
	closed chan struct{} // the test has ended: hooks that block return
	// lenient: requests that cannot be read are the client's, and end the
	// connection as they do at a broker. Set before use.
	lenient bool

	mu      sync.Mutex
	topics  map[string]*topicLog
	configs map[string]string // of the broker; nil: not to be read
	// topicConfigs are those of all topics besides their timestamp type.
	topicConfigs map[string]string
	// onProduce and onOther may block. A nil hook answers; onOther returns
	// false to cut the connection.
	onProduce func(r *kmsg.ProduceRequest) fate
	// producing is the connection that the last Produce came on.
	producing *kafkatest.Conn
	onOther   func(r kmsg.Request) bool
	// onFrame gets each Produce request as it arrived, without its length.
	onFrame func(frame []byte)
	// rights is what clients are told who ask for their rights to a topic; nil:
	// that they may write. rightsAsked counts such requests.
	rights      func(topic string) int16
	rightsAsked int
	// edit changes what is answered.
	edit     func(a *kmsg.ProduceResponse)
	codes    map[kmsg.Key]int16 // answered by readings
	received []*kmsg.ProduceRequest
	asked    map[kmsg.Key]int
}

type topicLog struct {
	id         [16]byte
	appendTime bool
	partitions []*partitionLog
}

// partitionLog is a log whose high watermark is its end unless set.
type partitionLog struct {
	batches [][]byte
	end     int64
	high    int64 // −1: end
	has     bool
	epoch   int16
	base    int32 // of the last batch, whose place is at
	next    int32
	at      int64
	stamp   int64
	probed  map[int64]probedID
}

// fenceTestConfigs are the brokers' defaults.
func fenceTestConfigs() map[string]string {
	return map[string]string{configProducerExpiry: "86400000", configConnectionIdle: "600000", configExpiryCheck: "600000"}
}

// newLeader runs a leader with topics of 4 partitions each.
func newLeader(t testing.TB, topics ...string) *leader {
	t.Helper()
	l := &leader{t: t, closed: make(chan struct{}), topics: map[string]*topicLog{}, configs: fenceTestConfigs(), codes: map[kmsg.Key]int16{}, asked: map[kmsg.Key]int{}}
	for i, name := range topics {
		l.topics[name] = newTopicLog(byte(i + 1))
	}
	up := make(chan struct{})
	l.server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		for r, ok := c.Next(); ok && l.serve(c, r); r, ok = c.Next() {
		}
	})
	close(up)
	t.Cleanup(func() { close(l.closed) })
	return l
}

func newTopicLog(id byte) *topicLog {
	log := &topicLog{id: [16]byte{15: id}}
	for range 4 {
		log.partitions = append(log.partitions, &partitionLog{high: -1})
	}
	return log
}

// wait blocks a hook until ch is closed or the test ends.
func (l *leader) wait(ch <-chan struct{}) {
	select {
	case <-ch:
	case <-l.closed:
	}
}

// change calls fn while nothing is handled.
func (l *leader) change(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

func (l *leader) hook(fn func(r *kmsg.ProduceRequest) fate) { l.change(func() { l.onProduce = fn }) }

// cut ends the connection that the last Produce came on, whatever becomes of it.
func (l *leader) cut() { l.change(func() { _ = l.producing.Close() }) }

func (l *leader) partition(topic string, p int) *partitionLog {
	return l.topics[topic].partitions[p]
}

// end is the log end of a partition.
func (l *leader) end(topic string, p int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partition(topic, p).end
}

// values lists the values in a partition.
func (l *leader) values(topic string, p int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var values []string
	for _, b := range l.partition(topic, p).batches {
		values = append(values, batchValues(l.t, b)...)
	}
	return values
}

// requests are the Produce requests received so far.
func (l *leader) requests() []*kmsg.ProduceRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*kmsg.ProduceRequest(nil), l.received...)
}

func (l *leader) count(key kmsg.Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[key]
}

// bypass appends a batch that went around the proxies.
func (l *leader) bypass(topic string, p int, values ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []record
	for _, v := range values {
		records = append(records, record{value: v})
	}
	l.partition(topic, p).store(batchOf(batchOptions{}, records...), false)
}

func (l *leader) serve(c *kafkatest.Conn, r kafkatest.Request) bool {
	request, err := r.Decode()
	if err != nil && l.lenient {
		return false
	}
	if err != nil {
		l.t.Errorf("broker: api key %d version %d cannot be read: %v", r.APIKey, r.APIVersion, err)
		return false
	}
	if produce, ok := request.(*kmsg.ProduceRequest); ok {
		return l.serveProduce(c, r, produce)
	}
	l.mu.Lock()
	hook := l.onOther
	l.asked[kmsg.Key(r.APIKey)]++
	l.mu.Unlock()
	if hook != nil && !hook(request) {
		return false
	}
	l.mu.Lock()
	answer := l.answer(request)
	l.mu.Unlock()
	c.Answer(r, answer)
	return true
}

// tellRights answers the question whether a client may write to topics, which is a
// Produce of nothing to no partition.
func (l *leader) tellRights(c *kafkatest.Conn, r kafkatest.Request, request *kmsg.ProduceRequest) {
	l.mu.Lock()
	l.rightsAsked++
	answer := kmsg.NewPtrProduceResponse()
	for _, t := range request.Topics {
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.BaseOffset, p.ErrorCode = rightsPartition, -1, kerr.UnknownTopicOrPartition.Code
		if l.rights != nil {
			p.ErrorCode = l.rights(t.Topic)
		}
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.Partitions = t.Topic, append(topic.Partitions, p)
		answer.Topics = append(answer.Topics, topic)
	}
	l.mu.Unlock()
	c.Answer(r, answer)
}

func (l *leader) serveProduce(c *kafkatest.Conn, r kafkatest.Request, request *kmsg.ProduceRequest) bool {
	if len(request.Topics) > 0 && len(request.Topics[0].Partitions) > 0 && request.Topics[0].Partitions[0].Partition == rightsPartition {
		l.tellRights(c, r, request)
		return true
	}
	l.mu.Lock()
	l.received = append(l.received, request)
	hook := l.onProduce
	l.producing = c
	if l.onFrame != nil {
		l.onFrame(r.Frame)
	}
	l.mu.Unlock()
	do := fateAnswer
	if hook != nil {
		do = hook(request)
	}
	if do == fateCutBefore {
		return false
	}
	l.mu.Lock()
	answer := l.produce(request)
	if l.edit != nil {
		l.edit(answer)
	}
	l.mu.Unlock()
	answer.SetVersion(r.APIVersion)
	frame := kafkatest.AnswerFrame(r, answer.AppendTo(nil))
	switch {
	case request.Acks == 0:
		return do == fateAnswer
	case do == fateCutMid:
		_, _ = c.Write(frame[:len(frame)/2])
		return false
	case do == fateAnswer, do == fateAnswerCut:
		_, _ = c.Write(frame)
		return do == fateAnswer
	}
	return do == fateSilent
}

func (l *leader) produce(request *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	answer := kmsg.NewPtrProduceResponse()
	for _, t := range request.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		log := l.log(t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.BaseOffset, part.LogStartOffset = p.Partition, -1, 0
			switch {
			case log == nil && request.Version >= 13:
				part.ErrorCode = 100
			case log == nil || p.Partition < 0 || int(p.Partition) >= len(log.partitions):
				part.ErrorCode = 3
			default:
				log.partitions[p.Partition].append(p.Records, log.appendTime, &part)
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

func (l *leader) log(name string, id [16]byte) *topicLog {
	if log, ok := l.topics[name]; ok {
		return log
	}
	for _, log := range l.topics {
		if id != ([16]byte{}) && log.id == id {
			return log
		}
	}
	return nil
}

// append is the broker's own compare-and-set.
func (p *partitionLog) append(batch []byte, appendTime bool, answer *kmsg.ProduceResponseTopicPartition) {
	h, err := wire.ParseBatch(batch)
	if err != nil {
		answer.ErrorCode = kafkaCode(err)
		return
	}
	if isProbe(h.ProducerID) {
		p.appendProbe(h, batch, answer)
		return
	}
	if h.ProducerID == defaultFenceID && p.has {
		switch {
		case h.BaseSequence == p.base && h.BaseSequence+h.NumRecords == p.next:
			answer.BaseOffset, answer.LogAppendTime = p.at, p.stamp
			return
		case h.BaseSequence != p.next:
			answer.ErrorCode = 45
			return
		}
	}
	answer.BaseOffset = p.end
	if appendTime {
		answer.LogAppendTime = h.MaxTimestamp
	}
	p.store(batch, appendTime)
}

func (p *partitionLog) store(batch []byte, appendTime bool) {
	stored := append([]byte(nil), batch...)
	binary.BigEndian.PutUint64(stored, uint64(p.end))
	if appendTime {
		stored[22] |= 8
		binary.BigEndian.PutUint32(stored[17:], crc32.Checksum(stored[21:], castagnoliTable))
	}
	h, _, err := wire.ParseStoredBatch(stored)
	if err != nil {
		panic(err)
	}
	if h.ProducerID == defaultFenceID {
		p.has, p.epoch, p.base, p.next, p.at, p.stamp = true, h.ProducerEpoch, h.BaseSequence, h.BaseSequence+h.NumRecords, p.end, h.MaxTimestamp
	}
	p.batches = append(p.batches, stored)
	p.end += int64(h.NumRecords)
}

func (p *partitionLog) highWatermark() int64 {
	if p.high >= 0 {
		return p.high
	}
	return p.end
}

// answer is that to a reading, or to a client.
func (l *leader) answer(request kmsg.Request) kmsg.Response {
	code := l.codes[kmsg.Key(request.Key())]
	switch r := request.(type) {
	case *kmsg.ApiVersionsRequest:
		a := kmsg.NewPtrApiVersionsResponse()
		for key := range int16(70) {
			if k := kmsg.RequestForKey(key); k != nil {
				a.ApiKeys = append(a.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: k.MaxVersion()})
			}
		}
		return a
	case *kmsg.MetadataRequest:
		return l.metadata(r, code)
	case *kmsg.DescribeConfigsRequest:
		return l.describeConfigs(r, code)
	case *kmsg.OffsetForLeaderEpochRequest:
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition, p.ErrorCode = r.Topics[0].Partitions[0].Partition, code
		p.LeaderEpoch, p.EndOffset = 5, l.partition(r.Topics[0].Topic, int(p.Partition)).end
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic, t.Partitions = r.Topics[0].Topic, append(t.Partitions, p)
		a := kmsg.NewPtrOffsetForLeaderEpochResponse()
		a.Topics = append(a.Topics, t)
		return a
	case *kmsg.DescribeProducersRequest:
		return l.describeProducers(r, code)
	case *kmsg.ListOffsetsRequest:
		q := r.Topics[0].Partitions[0]
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.Partition, p.ErrorCode = q.Partition, code
		if p.Offset = 0; q.Timestamp == -1 {
			p.Offset = l.partition(r.Topics[0].Topic, int(q.Partition)).highWatermark()
		}
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic, t.Partitions = r.Topics[0].Topic, append(t.Partitions, p)
		a := kmsg.NewPtrListOffsetsResponse()
		a.Topics = append(a.Topics, t)
		return a
	case *kmsg.FetchRequest:
		return l.fetch(r, code)
	case *kmsg.CreateTopicsRequest:
		return l.createTopic(r, code)
	}
	return kmsg.ResponseForKey(request.Key())
}

func (l *leader) metadata(r *kmsg.MetadataRequest, code int16) kmsg.Response {
	a := kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: l.server.Port()})
	for _, asked := range r.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode = asked.Topic, asked.TopicID, 3
		if asked.Topic == nil {
			t.ErrorCode = 100
		}
		for name, log := range l.topics {
			if asked.Topic != nil && *asked.Topic != name || asked.Topic == nil && asked.TopicID != log.id {
				continue
			}
			t.Topic, t.TopicID, t.ErrorCode = kmsg.StringPtr(name), log.id, 0
			for i := range log.partitions {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.LeaderEpoch = int32(i), 5
				t.Partitions = append(t.Partitions, p)
			}
		}
		if code != 0 {
			t.ErrorCode = code
		}
		a.Topics = append(a.Topics, t)
	}
	return a
}

func (l *leader) describeConfigs(r *kmsg.DescribeConfigsRequest, code int16) kmsg.Response {
	a := kmsg.NewPtrDescribeConfigsResponse()
	for _, q := range r.Resources {
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName, res.ErrorCode = q.ResourceType, q.ResourceName, code
		configs := l.configs
		if q.ResourceType == kmsg.ConfigResourceTypeTopic {
			configs = map[string]string{configTimestampType: "CreateTime"}
			maps.Copy(configs, l.topicConfigs)
			if log := l.topics[q.ResourceName]; log != nil && log.appendTime {
				configs[configTimestampType] = "LogAppendTime"
			}
		} else if configs == nil {
			res.ErrorCode = 31 // CLUSTER_AUTHORIZATION_FAILED
		}
		for name, value := range configs {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			c.Name, c.Value = name, kmsg.StringPtr(value)
			res.Configs = append(res.Configs, c)
		}
		a.Resources = append(a.Resources, res)
	}
	return a
}

func (l *leader) describeProducers(r *kmsg.DescribeProducersRequest, code int16) kmsg.Response {
	p := kmsg.NewDescribeProducersResponseTopicPartition()
	p.Partition, p.ErrorCode = r.Topics[0].Partitions[0], code
	log := l.partition(r.Topics[0].Topic, int(p.Partition))
	p.ActiveProducers = log.probedIDs()
	if log.has {
		s := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		s.ProducerID, s.ProducerEpoch, s.LastSequence, s.LastTimestamp = defaultFenceID, int32(log.epoch), log.next-1, log.stamp
		p.ActiveProducers = append(p.ActiveProducers, s)
	}
	t := kmsg.NewDescribeProducersResponseTopic()
	t.Topic, t.Partitions = r.Topics[0].Topic, append(t.Partitions, p)
	a := kmsg.NewPtrDescribeProducersResponse()
	a.Topics = append(a.Topics, t)
	return a
}

func (l *leader) fetch(r *kmsg.FetchRequest, code int16) kmsg.Response {
	q := r.Topics[0].Partitions[0]
	log := l.log(r.Topics[0].Topic, r.Topics[0].TopicID).partitions[q.Partition]
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode, p.HighWatermark, p.LogStartOffset = q.Partition, code, log.highWatermark(), 0
	for _, b := range log.batches {
		h, _, _ := wire.ParseStoredBatch(b)
		if last := h.BaseOffset + int64(h.LastOffsetDelta); last >= q.FetchOffset && last < log.highWatermark() {
			if len(p.RecordBatches) > 0 && len(p.RecordBatches)+len(b) > int(q.PartitionMaxBytes) {
				break // the first is given whole, however large it is (KIP-74)
			}
			p.RecordBatches = append(p.RecordBatches, b...)
		}
	}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID, t.Partitions = r.Topics[0].Topic, r.Topics[0].TopicID, append(t.Partitions, p)
	a := kmsg.NewPtrFetchResponse()
	a.Topics = append(a.Topics, t)
	return a
}
