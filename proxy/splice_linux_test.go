package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// vastBytes is more than sockets and a pipe hold of one answer.
const vastBytes = 48 << 20

func fetch() kmsg.Request { return kmsg.NewPtrFetchRequest() }

// noise is n bytes that no other place in a stream has.
func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = rng.Read(b)
	return b
}

// answersFetches answers Fetch with body, whole, and everything else as usual. It
// says on written when the last byte has left, or could not.
func answersFetches(body []byte, written chan<- error) func(*kafkatest.Conn, kafkatest.Request) bool {
	return func(c *kafkatest.Conn, q kafkatest.Request) bool {
		if q.APIKey != int16(kmsg.Fetch) {
			return answerAll(c, q)
		}
		_, err := c.Write(kafkatest.AnswerFrame(q, body))
		written <- err
		return err == nil
	}
}

// fenced hands the answer to each Produce to outcomes before the client gets it,
// as the fence does.
func fenced(outcomes chan<- error) func(*conn, wire.RequestHeader, []byte) error {
	return func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		return c.sendUpstream(frame, func(_ []byte, err error) {
			outcomes <- err
			s.complete(answerFrame(0))
		})
	}
}

// expectPart reads the answer to id from its beginning, up to n bytes of its body.
func (r *rig) expectPart(id int32, body []byte, n int) {
	r.t.Helper()
	head := make([]byte, 8+n)
	if _, err := io.ReadFull(r.client.Conn, head); err != nil {
		r.t.Fatalf("answer to %d: %v", id, err)
	}
	if got, want := int(binary.BigEndian.Uint32(head)), 4+len(body); got != want {
		r.t.Errorf("answer to %d: got length %d, want %d", id, got, want)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != id {
		r.t.Errorf("got an answer to %d, want %d", got, id)
	}
	if !bytes.Equal(head[8:], body[:n]) {
		r.t.Errorf("answer to %d: the first %d bytes are others than were sent", id, n)
	}
}

// expectRest reads what expectPart has left.
func (r *rig) expectRest(body []byte, n int) {
	r.t.Helper()
	rest := make([]byte, len(body)-n)
	if _, err := io.ReadFull(r.client.Conn, rest); err != nil {
		r.t.Fatalf("rest of an answer: %v", err)
	}
	if !bytes.Equal(rest, body[n:]) {
		r.t.Errorf("the bytes behind %d are others than were sent", n)
	}
}

// stalled waits until nothing moves to the client any more, for nobody reads.
func (r *rig) stalled() {
	r.t.Helper()
	sent := &r.conn.p.metrics.bytesOut
	last, since := sent.Load(), time.Now()
	await(r.t, "the answer comes to a halt", func() bool {
		if now := sent.Load(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > 100*time.Millisecond
	})
}

func (r *rig) keptPipes() int {
	p := &r.conn.p.pipes
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// Answers of all lengths, in one write and in several, are what the broker sent.
func TestLongAnswersArriveUnchanged(t *testing.T) {
	sizes := []int{
		0, 4, 100, inboxBytes - 8, inboxBytes, spliceMin, spliceMin + inboxBytes - 9, spliceMin + inboxBytes - 8, spliceMin + inboxBytes,
		streamBytes, 2 * streamBytes, spliceBytes, spliceBytes + spliceMin, 3*spliceBytes + 1, 7,
	}
	for name, split := range map[string]bool{"as they are": false, "in pieces": true} {
		for how, pipesAreGone := range map[string]bool{"spliced": false, "streamed": true} {
			t.Run(name+"_"+how, func(t *testing.T) {
				turn := 0
				r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
					frame := kafkatest.AnswerFrame(q, noise(sizes[turn%len(sizes)]))
					turn++
					if split && len(frame) > 20_000 {
						for _, at := range []int{10_000, 10_001} {
							if _, err := c.Write(frame[:at]); err != nil {
								return false
							}
							frame = frame[at:]
						}
					}
					_, err := c.Write(frame)
					return err == nil
				}, nil)
				if pipesAreGone {
					r.conn.p.pipes.close()
				}
				const rounds = 4
				var frames []byte
				for id := range int32(rounds * len(sizes)) {
					frames = append(frames, kafkatest.RequestFrame(id, fetch())...)
				}
				r.client.SendBytes(frames[:len(frames)/2])
				for id := range int32(rounds * len(sizes)) {
					if int(id) == rounds*len(sizes)/4 {
						r.client.SendBytes(frames[len(frames)/2:])
					}
					body := noise(sizes[int(id)%len(sizes)])
					r.expectPart(id, body, len(body))
				}
				if got := r.keptPipes(); (got == 0) != pipesAreGone {
					t.Errorf("%d pipes were left", got)
				}
			})
		}
	}
}

func TestClientClosesWithinALongAnswer(t *testing.T) {
	body := noise(vastBytes)
	written, outcomes := make(chan error, 1), make(chan error, 1)
	r := newRig(t, Config{}, answersFetches(body, written), fenced(outcomes))
	r.client.Send(1, fetch(), kmsg.NewPtrProduceRequest())
	r.expectPart(1, body, 2<<20)
	r.stalled()
	_ = r.client.Conn.(*net.TCPConn).SetLinger(0)
	_ = r.client.Close()
	// What is owed behind the answer is learnt all the same.
	if err := receive(t, "outcome", outcomes); err != nil {
		t.Errorf("got %v, want the broker's answer", err)
	}
	if err := receive(t, "rest", written); err != nil {
		t.Errorf("the broker could not write its answer: %v", err)
	}
	r.awaitEnd()
	if got := r.keptPipes(); got != 0 {
		t.Errorf("%d pipes were kept that may hold bytes", got)
	}
}

func TestUpstreamClosesWithinALongAnswer(t *testing.T) {
	body := noise(vastBytes)
	outcomes := make(chan error, 1)
	r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		_, _ = c.Write(kafkatest.AnswerFrame(q, body)[:vastBytes/2])
		return false
	}, fenced(outcomes))
	r.client.Send(1, fetch(), kmsg.NewPtrProduceRequest())
	const part = vastBytes/2 - 8
	r.expectPart(1, body, part)
	if rest := r.client.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %d bytes behind the cut", len(rest))
	}
	if err := receive(t, "outcome", outcomes); !errors.Is(err, errUpstreamLost) || errors.Is(err, errNotSent) {
		t.Errorf("got %v, want that it is not known", err)
	}
	r.awaitEnd()
}

func TestReaderThatStallsWithinALongAnswerGoesOn(t *testing.T) {
	body := noise(vastBytes)
	written := make(chan error, 1)
	r := newRig(t, Config{}, answersFetches(body, written), nil)
	r.client.Send(1, fetch(), listGroups())
	r.expectPart(1, body, 1<<20)
	r.stalled()
	if len(written) > 0 {
		t.Fatal("the whole answer has left the broker, though nobody reads")
	}
	moved := r.conn.activity.Load()
	r.expectRest(body[:vastBytes/2], 1<<20)
	// Seen while the answer is still on its way, or it would count as idle.
	await(t, "movement is seen", func() bool { return r.conn.activity.Load() > moved })
	r.expectRest(body, vastBytes/2)
	r.expect(2)
	if err := receive(t, "rest", written); err != nil {
		t.Error(err)
	}
}

func TestDrainWithinALongAnswerFinishesIt(t *testing.T) {
	body := noise(vastBytes)
	r := newRig(t, Config{}, answersFetches(body, make(chan error, 1)), nil)
	r.client.Send(1, fetch())
	r.expectPart(1, body, 1<<20)
	r.stalled()
	r.conn.closeAfter(errDraining)
	r.expectRest(body, 1<<20)
	if rest := r.client.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %d bytes behind the answer", len(rest))
	}
	r.awaitEnd()
}

func TestConnectionCutWithinALongAnswerEnds(t *testing.T) {
	body := noise(vastBytes)
	outcomes := make(chan error, 1)
	r := newRig(t, Config{}, answersFetches(body, make(chan error, 1)), fenced(outcomes))
	r.client.Send(1, fetch(), kmsg.NewPtrProduceRequest())
	r.expectPart(1, body, 1<<20)
	r.stalled()
	r.conn.abort(errAborted)
	// The answer to Produce is behind what cannot be read any more.
	if err := receive(t, "outcome", outcomes); !errors.Is(err, errUpstreamLost) || errors.Is(err, errNotSent) {
		t.Errorf("got %v, want that it is not known", err)
	}
	r.awaitEnd()
}

// A long answer that is larger than what may be held is not set aside for those
// who wait for what is behind it. They are told when the reader goes on, and what
// is short enough goes round it as ever.
func TestOutcomeBehindALongAnswerComesWhenTheReaderGoesOn(t *testing.T) {
	body := noise(vastBytes)
	outcomes := make(chan error, 2)
	r := newRig(t, Config{}, answersFetches(body, make(chan error, 1)), fenced(outcomes))
	r.client.Send(1, fetch(), kmsg.NewPtrProduceRequest(), listGroups(), kmsg.NewPtrProduceRequest())
	r.stalled()
	if len(outcomes) > 0 {
		t.Fatal("the outcome came before the answer in front of it was read")
	}
	r.expectPart(1, body, len(body))
	for range 2 {
		if err := receive(t, "outcome", outcomes); err != nil {
			t.Error(err)
		}
	}
	r.expect(2, 3, 4)
}

func TestOutcomeBehindAnAnswerThatMayBeHeldWaitsForNobody(t *testing.T) {
	body := noise(vastBytes)
	outcomes := make(chan error, 1)
	r := newRig(t, Config{MaxHeldBytes: 2 * vastBytes}, answersFetches(body, make(chan error, 1)), fenced(outcomes))
	r.client.SendBytes(append(kafkatest.RequestFrame(1, fetch()), produceFrame(2)...))
	if err := receive(t, "outcome", outcomes); err != nil {
		t.Error(err)
	}
	r.expectPart(1, body, len(body))
	r.expect(2)
}

// A reader that does not read costs no memory, however much waits for it.
func TestReaderThatStallsLeavesMemoryFlat(t *testing.T) {
	body := noise(vastBytes)
	written := make(chan error, 1)
	r := newRig(t, Config{}, answersFetches(body, written), nil)
	r.client.Send(1, listGroups())
	r.expect(1)
	was := heap()
	r.client.Send(2, fetch())
	r.stalled()
	// The broker's frame is the test's own.
	if grown := heap() - was - vastBytes; grown > 1<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	runtime.KeepAlive(body)
}
