package proxy

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// fuzzBytes reads a fuzz target's input as a plan; beyond its end all is 0.
type fuzzBytes struct{ rest []byte }

func (b *fuzzBytes) byte() byte {
	if len(b.rest) == 0 {
		return 0
	}
	v := b.rest[0]
	b.rest = b.rest[1:]
	return v
}

// upTo is a number from 0 to n−1.
func (b *fuzzBytes) upTo(n int) int { return int(b.byte()) % n }

func (b *fuzzBytes) uint16() int { return int(b.byte())<<8 | int(b.byte()) }

// bytes takes n bytes at most.
func (b *fuzzBytes) bytes(n int) []byte {
	n = min(n, len(b.rest))
	taken := b.rest[:n]
	b.rest = b.rest[n:]
	return taken
}

// liesInt are what lengths and counts are replaced by.
var liesInt = [...]int32{-1, 0, 1, 2, -2, 7, 127, 128, 1 << 14, 1 << 20, 1<<31 - 1, -1 << 31}

// lie changes one place of a message.
func (b *fuzzBytes) lie(frame []byte, from int) []byte {
	if len(frame) <= from {
		return frame
	}
	kind, value := b.byte(), liesInt[b.upTo(len(liesInt))]
	at := from + b.uint16()%(len(frame)-from)
	switch kind % 6 {
	case 0:
		frame[at] = b.byte()
	case 1:
		if at+4 <= len(frame) {
			binary.BigEndian.PutUint32(frame[at:], uint32(value))
		}
	case 2:
		if at+2 <= len(frame) {
			binary.BigEndian.PutUint16(frame[at:], uint16(value))
		}
	case 3:
		var compact [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(compact[:], uint64(uint32(value)))
		frame = bytes.Join([][]byte{frame[:at], frame[min(at+1, len(frame)):]}, compact[:n])
	case 4:
		frame = append(frame[:at], frame[min(at+1+int(kind/6)%8, len(frame)):]...)
	case 5:
		frame = bytes.Join([][]byte{frame[:at], frame[at:]}, bytes.Repeat([]byte{byte(value)}, 1+int(kind/6)))
	}
	return frame
}

// setLength makes a frame's length its own, or a lie that is chosen by b.
func (b *fuzzBytes) setLength(frame []byte, lies bool) {
	n := int32(len(frame) - 4)
	if lies {
		n += liesInt[b.upTo(len(liesInt))]
	}
	binary.BigEndian.PutUint32(frame, uint32(n))
}

// lyingBroker is a leader whose answers are as the plans say: one for clients,
// one for the proxy's own connections. A plan that has ended, and that of a
// broker that is honest, answers what leaders answer.
type lyingBroker struct {
	*leader

	mu            sync.Mutex
	clients, owns fuzzBytes
	honest        bool
	sent          int // bytes
	answers       int
}

// newLyingBroker makes one that serves what it is given.
func newLyingBroker(l *leader) *lyingBroker { return &lyingBroker{leader: l} }

func (b *lyingBroker) beHonest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.honest = true
}

func (b *lyingBroker) counts() (sent, answers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent, b.answers
}

func (b *lyingBroker) serve(c *kafkatest.Conn) {
	for r, ok := c.Next(); ok && b.respond(c, r); r, ok = c.Next() {
	}
}

// respond answers a request; false cuts the connection.
func (b *lyingBroker) respond(c *kafkatest.Conn, r kafkatest.Request) bool {
	frame, ok := b.honestAnswer(r)
	if !ok {
		return false
	}
	b.mu.Lock()
	plan := &b.clients
	if string(r.ClientID) == clientID {
		plan = &b.owns
	}
	if b.honest {
		plan = &fuzzBytes{}
	}
	frame, again := b.distort(plan, frame)
	b.sent += len(frame)
	b.answers++
	b.mu.Unlock()
	if frame != nil {
		_, _ = c.Write(frame)
	}
	return again
}

// distort makes of an answer what a plan says; nil: no answer.
func (b *lyingBroker) distort(plan *fuzzBytes, frame []byte) (answer []byte, again bool) {
	switch plan.byte() % 16 {
	case 1, 2: // fields that lie in a frame that fits
		for range 1 + plan.upTo(3) {
			frame = plan.lie(frame, min(8, len(frame)))
		}
		if len(frame) < 8 {
			return frame, true
		}
		plan.setLength(frame, false)
	case 3: // a length that lies
		if len(frame) >= 4 {
			plan.setLength(frame, true)
		}
	case 4: // another's answer
		if len(frame) >= 8 {
			binary.BigEndian.PutUint32(frame[4:], uint32(liesInt[plan.upTo(len(liesInt))]))
		}
	case 5:
		return nil, false
	case 6:
		return frame[:plan.uint16()%(len(frame)+1)], false
	case 7:
		return nil, true
	case 8: // arbitrary bytes
		return plan.bytes(1 + plan.upTo(64)), true
	case 9:
		return append(frame, frame...), true
	case 10: // long, and true to its length
		if len(frame) >= 8 {
			frame = append(frame, make([]byte, plan.upTo(8)<<16+plan.uint16())...)
			plan.setLength(frame, false)
		}
	case 11: // as much as was announced never comes
		if len(frame) >= 8 {
			frame = append(frame, make([]byte, plan.uint16())...)
			binary.BigEndian.PutUint32(frame, uint32(len(frame)+plan.uint16()))
		}
	case 12: // an answer of the api, with nothing in it
		if len(frame) >= 8 {
			frame = frame[:8]
			frame = append(frame, make([]byte, 64)...)
			plan.setLength(frame, false)
		}
	}
	return frame, true
}

// honestAnswer is what a leader answers; nil to what gets none. False if the
// request is not one that a broker reads.
func (b *lyingBroker) honestAnswer(r kafkatest.Request) (frame []byte, ok bool) {
	defer func() {
		// A leader takes requests for the proxy's, which are whole.
		if recover() != nil {
			frame, ok = nil, false
		}
	}()
	if kmsg.RequestForKey(r.APIKey) == nil || r.BodyOffset < 0 {
		return kafkatest.AnswerFrame(kafkatest.Request{RequestHeader: wire.RequestHeader{CorrelationID: r.CorrelationID}}, nil), true
	}
	request, err := r.Decode()
	if err != nil {
		return nil, false
	}
	var answer kmsg.Response
	if produce, is := request.(*kmsg.ProduceRequest); is {
		answer = b.appendAll(produce)
		if produce.Acks == 0 {
			return nil, true
		}
	} else {
		answer = b.told(request)
	}
	answer.SetVersion(r.APIVersion)
	return kafkatest.AnswerFrame(r, answer.AppendTo(nil)), true
}

func (b *lyingBroker) appendAll(r *kmsg.ProduceRequest) kmsg.Response {
	l := b.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.produce(r)
}

func (b *lyingBroker) told(r kmsg.Request) kmsg.Response {
	l := b.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	switch key := kmsg.Key(r.Key()); key {
	case kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.ShareFetch, kmsg.ShareAcknowledge:
		answer := kmsg.ResponseForKey(r.Key())
		nameBrokers(answer)
		return answer
	case kmsg.ListOffsets, kmsg.Fetch, kmsg.OffsetForLeaderEpoch, kmsg.DescribeProducers:
		if len(topicsOf(r)) == 0 {
			return kmsg.ResponseForKey(r.Key())
		}
	}
	return l.answer(r)
}

// topicsOf lists the topics of a reading with one partition at least.
func topicsOf(r kmsg.Request) (names []string) {
	switch r := r.(type) {
	case *kmsg.ListOffsetsRequest:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	case *kmsg.FetchRequest:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	case *kmsg.DescribeProducersRequest:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	}
	return names
}
