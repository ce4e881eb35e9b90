package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const seamPatience = 20 * time.Second

// rig is one connection whose Produce requests go to a function of the test,
// on the clientLoop; other requests are relayed.
type rig struct {
	t      *testing.T
	conn   *conn
	client *kafkatest.Client
	ended  chan struct{} // closed when the connection is gone
}

func newRig(t *testing.T, cfg Config, script func(*kafkatest.Conn, kafkatest.Request) bool, produce func(*conn, wire.RequestHeader, []byte) error) *rig {
	t.Helper()
	server := kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		for r, ok := c.Next(); ok && script(c, r); r, ok = c.Next() {
		}
	})
	cfg.Bootstrap, cfg.Listen = []string{server.Addr()}, "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.topology.known.Store(&map[int32]broker{4: {node: 4, upstream: server.Addr()}})
	p.topology.live.Store(&[]int32{4})
	p.markReady()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r := &rig{t: t, client: kafkatest.Dial(t, listener.Addr().String()), ended: make(chan struct{})}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r.conn = newConn(p, accepted, p.topology.entrances[0], unknownNode)
	go func() {
		defer close(r.ended)
		r.conn.finish(r.loop(produce))
	}()
	t.Cleanup(func() {
		r.conn.abort(errAborted)
		r.awaitEnd()
	})
	return r
}

// loop is the clientLoop with the test's function in the fence's place.
func (r *rig) loop(produce func(*conn, wire.RequestHeader, []byte) error) error {
	c := r.conn
	for {
		if err := c.readFrame(); err != nil {
			return err
		}
		h, err := wire.ParseRequestHeader(c.frame[4:])
		if err != nil {
			return err
		}
		if h.APIKey == int16(kmsg.Produce) {
			err = produce(c, h, c.frame)
		} else {
			err = c.handle()
		}
		if err != nil {
			return err
		}
		c.done += len(c.frame)
		c.frame = nil
	}
}

func (r *rig) awaitEnd() {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(seamPatience):
		r.t.Fatal("the connection does not end")
	}
}

func (r *rig) expect(ids ...int32) {
	r.t.Helper()
	for _, want := range ids {
		if got := r.client.NextID(); got != want {
			r.t.Fatalf("got an answer to %d, want %d", got, want)
		}
	}
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(seamPatience):
		t.Fatalf("%s: did not come", what)
		panic("unreachable")
	}
}

func produceFrame(id int32) []byte { return kafkatest.RequestFrame(id, kmsg.NewPtrProduceRequest()) }

func listGroups() kmsg.Request { return kmsg.NewPtrListGroupsRequest() }

func answerAll(c *kafkatest.Conn, r kafkatest.Request) bool {
	c.Answer(r, kmsg.ResponseForKey(r.APIKey))
	return true
}

// answerFrame is a whole answer, as complete wants it.
func answerFrame(n int) []byte { return make([]byte, 8+n) }

func TestSlotCompletedLateKeepsItsPlace(t *testing.T) {
	slots := make(chan *slot, 1)
	r := newRig(t, Config{}, answerAll, func(c *conn, h wire.RequestHeader, _ []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		slots <- s
		return err
	})
	r.client.Send(1, listGroups(), kmsg.NewPtrProduceRequest(), listGroups(), versionTooNew(), listGroups())
	r.expect(1)
	s := receive(t, "slot", slots)
	go s.complete(answerFrame(10))
	r.expect(2, 3, 4, 5)
}

func versionTooNew() kmsg.Request {
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version = 99
	return r
}

func TestAnswersBeyondMaxHeldBytesWaitUpstream(t *testing.T) {
	const size = 64 << 10
	slots := make(chan *slot, 1)
	body := make([]byte, size)
	r := newRig(t, Config{MaxHeldBytes: 100}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		_, err := c.Write(kafkatest.AnswerFrame(q, body))
		return err == nil
	}, func(c *conn, h wire.RequestHeader, _ []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		slots <- s
		return err
	})
	var frames []byte
	frames = append(frames, produceFrame(1)...)
	for id := range int32(20) {
		frames = append(frames, kafkatest.RequestFrame(2+id, listGroups())...)
	}
	r.client.SendBytes(frames)
	s := receive(t, "slot", slots)
	await(t, "the limit is counted", func() bool { return r.conn.p.metrics.limits.counted[limitHeld].Load() > 0 })
	var log logLines
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.conn.p.metrics.limits.run(over, &Config{MaxHeldBytes: 100, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if log.count("limit=max_held_bytes value=100") != 1 {
		t.Errorf("the log does not say that the limit was hit: %s", &log.buf)
	}
	r.conn.mu.Lock()
	held := r.conn.held
	r.conn.mu.Unlock()
	if held > 100 {
		t.Errorf("%d bytes are held, want at most 100", held)
	}
	s.complete(answerFrame(0))
	for id := range int32(21) {
		r.expect(1 + id)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(seamPatience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
	}
}

func TestOneSlotComposedOfSeveralUpstreamAnswers(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		if q.APIKey != int16(kmsg.Produce) {
			return answerAll(c, q)
		}
		_, err := c.Write(kafkatest.AnswerFrame(q, fmt.Appendf(nil, "part %s", q.ClientID)))
		return err == nil
	}, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		const parts = 3
		onAnswer := func(body []byte, err error) {
			mu.Lock()
			defer mu.Unlock()
			if bodies = append(bodies, fmt.Sprint(string(body), err)); len(bodies) == parts {
				s.complete(append(make([]byte, 8), "composed"...))
			}
		}
		// One in place, two in memory of their own.
		if err := c.sendUpstream(frame, onAnswer); err != nil {
			return err
		}
		for range parts - 1 {
			own := kafkatest.RequestFrame(0, kmsg.NewPtrProduceRequest())
			if err := c.sendUpstream(own, onAnswer); err != nil {
				return err
			}
		}
		return nil
	})
	r.client.Send(7, kmsg.NewPtrProduceRequest(), listGroups())
	if got, want := string(r.client.Next()), "\x00\x00\x00\x07composed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.expect(8)
	want := []string{"part kafkatest<nil>", "part kafkatest<nil>", "part kafkatest<nil>"}
	if !slices.Equal(bodies, want) {
		t.Errorf("got %q, want %q", bodies, want)
	}
	if r.conn.node != 4 || r.conn.openedAt == 0 {
		t.Errorf("node %d, opened at %v", r.conn.node, r.conn.openedAt)
	}
}

func TestUpstreamDeathIsToldInOrderAndSlotsStillFlush(t *testing.T) {
	type told struct {
		id  int32
		err error
	}
	events := make(chan told, 10)
	slots := make(chan *slot, 10)
	cut := make(chan struct{})
	r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		<-cut
		return false
	}, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		slots <- s
		return c.sendUpstream(frame, func(_ []byte, err error) { events <- told{h.CorrelationID, err} })
	})
	var frames []byte
	for id := range int32(3) {
		frames = append(frames, produceFrame(id)...)
	}
	frames = append(frames, kafkatest.RequestFrame(3, listGroups())...)
	frames = append(frames, produceFrame(4)...)
	r.client.SendBytes(frames)
	var all []*slot
	for range 4 {
		all = append(all, receive(t, "slot", slots))
	}
	close(cut)
	for _, want := range []int32{0, 1, 2, 4} {
		got := receive(t, "news of the loss", events)
		if got.id != want || !errors.Is(got.err, errUpstreamLost) {
			t.Errorf("got %d: %v, want %d and errUpstreamLost", got.id, got.err, want)
		}
	}
	// Completed late and out of order; 3 has no answer, so 4 is not reached.
	for _, i := range []int{1, 3, 0, 2} {
		all[i].complete(answerFrame(0))
	}
	r.expect(0, 1, 2)
	if rest := r.client.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x after the unanswered request", rest)
	}
	r.awaitEnd()
}

func TestRequestThatWasNeverWrittenIsToldSo(t *testing.T) {
	events := make(chan error, 2)
	r := newRig(t, Config{}, func(*kafkatest.Conn, kafkatest.Request) bool { return true }, func(c *conn, h wire.RequestHeader, frame []byte) error {
		onAnswer := func(_ []byte, err error) { events <- err }
		if err := c.sendUpstream(frame, onAnswer); err != nil {
			return err
		}
		if err := c.flushUpstream(); err != nil {
			return err
		}
		if err := c.sendUpstream(kafkatest.RequestFrame(0, kmsg.NewPtrProduceRequest()), onAnswer); err != nil {
			return err
		}
		c.abandonUpstream()
		<-c.ctx.Done()
		return nil
	})
	r.client.Send(1, kmsg.NewPtrProduceRequest())
	if err := receive(t, "first", events); errors.Is(err, errNotSent) || !errors.Is(err, errUpstreamLost) {
		t.Errorf("written request: got %v", err)
	}
	if err := receive(t, "second", events); !errors.Is(err, errNotSent) || !errors.Is(err, errUpstreamLost) {
		t.Errorf("request not written: got %v", err)
	}
	r.client.ExpectClosed()
}

// failingConn fails its first write within a frame.
type failingConn struct {
	net.Conn
	writes int // by the clientLoop alone
}

func (f *failingConn) Write(b []byte) (int, error) {
	f.writes++
	if f.writes > 1 {
		return f.Conn.Write(b)
	}
	n, _ := f.Conn.Write(b[:len(b)/2])
	return n, io.ErrShortWrite
}

// Nothing is written behind a write that failed: the broker would take it for the rest
// of the frame. So of what was queued later it is certain that it was not sent.
func TestNothingIsWrittenBehindAFailedWrite(t *testing.T) {
	events := make(chan error, 2)
	var upstream *failingConn
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		upstream = &failingConn{Conn: conn}
		return upstream, err
	}
	r := newRig(t, Config{Dial: dial}, answerAll, func(c *conn, h wire.RequestHeader, frame []byte) error {
		onAnswer := func(_ []byte, err error) { events <- err }
		for range 2 {
			if err := c.sendUpstream(frame, onAnswer); err != nil {
				return err
			}
			if err := c.flushUpstream(); !errors.Is(err, io.ErrShortWrite) || !errors.Is(err, errUpstreamLost) {
				t.Errorf("got %v of a write that failed, or of one after it", err)
			}
		}
		if upstream.writes != 1 {
			t.Errorf("%d writes, want none after the one that failed", upstream.writes)
		}
		return errAborted
	})
	r.client.Send(1, kmsg.NewPtrProduceRequest())
	if err := receive(t, "first", events); errors.Is(err, errNotSent) || !errors.Is(err, errUpstreamLost) {
		t.Errorf("written in part: got %v", err)
	}
	if err := receive(t, "second", events); !errors.Is(err, errNotSent) || !errors.Is(err, errUpstreamLost) {
		t.Errorf("not written: got %v", err)
	}
	r.client.ExpectClosed()
	r.awaitEnd()
}

func TestSlowReaderHoldsUpNobodysAnswer(t *testing.T) {
	const size, rounds = 64 << 10, 400
	answered := make(chan int32, rounds)
	body := make([]byte, size)
	r := newRig(t, Config{MaxHeldBytes: 2 * rounds * size, MaxPendingRequests: 2*rounds + 1}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		if q.APIKey == int16(kmsg.Produce) {
			return answerAll(c, q)
		}
		_, err := c.Write(kafkatest.AnswerFrame(q, body))
		return err == nil
	}, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		return c.sendUpstream(frame, func([]byte, error) {
			answered <- h.CorrelationID
			s.complete(answerFrame(0))
		})
	})
	var frames []byte
	for id := range int32(rounds) {
		frames = append(frames, kafkatest.RequestFrame(2*id, listGroups())...)
		frames = append(frames, produceFrame(2*id+1)...)
	}
	r.client.SendBytes(frames)
	// Nobody reads the client's socket, which cannot hold all the bytes.
	for id := range int32(rounds) {
		if got := receive(t, "answer", answered); got != 2*id+1 {
			t.Fatalf("got %d, want %d", got, 2*id+1)
		}
	}
	for id := range int32(2 * rounds) {
		r.expect(id)
	}
}

func TestClientGone(t *testing.T) {
	asked := make(chan *conn, 1)
	release := make(chan struct{})
	r := newRig(t, Config{}, answerAll, func(c *conn, _ wire.RequestHeader, _ []byte) error {
		asked <- c
		<-release
		return nil
	})
	defer close(release)
	r.client.SendBytes(produceFrame(1))
	c := receive(t, "request", asked)
	if c.clientGone() {
		t.Error("gone while it is there")
	}
	_ = r.client.Close()
	await(t, "client is gone", c.clientGone)
}

func TestCloseAfterAnswersWhatIsPending(t *testing.T) {
	why := errors.New("refused")
	slots := make(chan *slot, 1)
	r := newRig(t, Config{}, answerAll, func(c *conn, h wire.RequestHeader, _ []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		slots <- s
		c.closeAfter(why)
		return err
	})
	r.client.Send(1, listGroups(), kmsg.NewPtrProduceRequest(), listGroups())
	s := receive(t, "slot", slots)
	r.expect(1)
	s.complete(answerFrame(3))
	r.expect(2)
	if rest := r.client.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x: a request behind the end was served", rest)
	}
	r.awaitEnd()
}

func TestSlotWithoutAnswerClosesAtItsTurn(t *testing.T) {
	slots := make(chan *slot, 1)
	r := newRig(t, Config{}, answerAll, func(c *conn, h wire.RequestHeader, _ []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		slots <- s
		c.closeAfter(errAborted)
		return err
	})
	r.client.Send(1, listGroups(), kmsg.NewPtrProduceRequest())
	receive(t, "slot", slots).complete(nil)
	r.expect(1)
	r.client.ExpectClosed()
	r.awaitEnd()
}

func TestAnswerOwedIsAwaitedAfterTheClientHasGone(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	events := make(chan error, 1)
	r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		close(arrived)
		<-release
		return answerAll(c, q)
	}, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		return c.sendUpstream(frame, func(_ []byte, err error) {
			events <- err
			s.complete(answerFrame(0))
		})
	})
	r.client.SendBytes(produceFrame(1))
	<-arrived
	_ = r.client.Close()
	await(t, "the proxy knows", r.conn.clientGone)
	close(release)
	if err := receive(t, "answer", events); err != nil {
		t.Errorf("got %v, want the answer", err)
	}
	r.awaitEnd()
}

func TestSlotsCompletedFromManyGoroutines(t *testing.T) {
	const rounds = 500
	var wg sync.WaitGroup
	defer wg.Wait()
	r := newRig(t, Config{}, answerAll, func(c *conn, h wire.RequestHeader, frame []byte) error {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return err
		}
		switch h.CorrelationID % 3 {
		case 0:
			wg.Go(func() { s.complete(answerFrame(int(h.CorrelationID))) })
			return nil
		case 1:
			return c.sendUpstream(frame, func([]byte, error) { s.complete(answerFrame(1)) })
		default:
			return c.sendUpstream(frame, func([]byte, error) { wg.Go(func() { s.complete(answerFrame(2)) }) })
		}
	})
	var frames []byte
	for id := range int32(rounds) {
		frames = append(frames, kafkatest.RequestFrame(2*id, listGroups())...)
		frames = append(frames, produceFrame(2*id+1)...)
	}
	go func() { _, _ = r.client.Write(frames) }()
	for id := range int32(2 * rounds) {
		frame := r.client.Next()
		if got := int32(binary.BigEndian.Uint32(frame)); got != id {
			t.Fatalf("got an answer to %d, want %d", got, id)
		}
	}
}
