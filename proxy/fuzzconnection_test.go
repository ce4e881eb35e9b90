package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	runtimemetrics "runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// fuzzLimits are small, so that what a client sends reaches each of them.
func fuzzLimits() Config {
	return Config{
		MaxFrameBytes: 256 << 10, MaxDecompressedBytes: 256 << 10, MaxRewrittenBytes: 128 << 10, MaxHeldBytes: 16 << 10,
		MaxControlBytes: 128 << 10, MaxReadBackBytes: 32 << 10, MaxPendingRequests: 16, MaxProducePartitions: 64,
		MaxAddPartitionsBytes: 4 << 10, MaxTopics: 16, MaxRuleTopics: 16, MaxUnknown: 4, MaxReadings: 2, MaxProducers: 2,
		IdleViews: 8, IdleProducers: 8, OldReadsPerSecond: 2, IdleTimeout: time.Minute,
	}
}

// fuzzWithin bounds, in virtual time, how long a connection may live that its
// client has nothing to add to: idle limit, answers that are waited for, lingering
// and closing. fuzzServed is the same for a client that behaves, after brokers
// have come to their senses.
const (
	fuzzWithin = 10 * time.Minute
	fuzzServed = 5 * time.Minute
)

// fuzzRun is one proxy in virtual time, before a broker that lies, with one client
// that does what a plan says. Then the broker behaves, and another client is
// served.
type fuzzRun struct {
	cfg            Config
	script         []byte
	broker, own    []byte // plans of the broker's answers
	doNotRead      bool   // the client reads nothing before it has sent all
	keepViolations []string

	n      *memNet
	l      *lyingBroker
	p      *Proxy
	client *fuzzClient
	frames int // that the client sent, whole

	mu  sync.Mutex
	got []byte // what the client received
}

// violation notes what must not be.
func (r *fuzzRun) violation(format string, args ...any) {
	r.keepViolations = append(r.keepViolations, fmt.Sprintf(format, args...))
}

// violations runs it all. It must be called outside of virtual time.
func (r *fuzzRun) violations(t *testing.T) []string {
	fuzzBombs() // takes memory
	before := allocated()
	synctest.Test(t, r.inVirtualTime)
	r.judgeAllocations(allocated() - before)
	return r.keepViolations
}

func (r *fuzzRun) inVirtualTime(t *testing.T) {
	r.n = newMemNet()
	r.startBroker(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := r.startProxy(t, ctx)
	r.converse(t)
	r.l.beHonest()
	r.serveAnother(t)
	stop()
	select {
	case <-ended:
	case <-time.After(fuzzWithin):
		r.violation("Run does not return")
	}
	r.l.server.Close()
}

func (r *fuzzRun) startBroker(t *testing.T) {
	listener, err := r.n.listen("tcp", "127.0.0.1:9092")
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, closed: make(chan struct{}), topics: map[string]*topicLog{}, configs: fenceTestConfigs(),
		codes: map[kmsg.Key]int16{}, asked: map[kmsg.Key]int{}, lenient: true}
	for i, name := range fuzzTopics[:4] {
		l.topics[name] = newTopicLog(byte(i + 1))
	}
	l.topics["fencedappendtime"].appendTime = true
	r.l = newLyingBroker(l)
	r.l.honest = true
	up := make(chan struct{})
	l.server = kafkatest.Serve(t, listener, func(c *kafkatest.Conn) {
		<-up
		r.l.serve(c)
	})
	close(up)
}

func (r *fuzzRun) startProxy(t *testing.T, ctx context.Context) (ended chan struct{}) {
	cfg := r.cfg
	cfg.Bootstrap, cfg.Listen, cfg.BrokerPorts = []string{"127.0.0.1:9092"}, "127.0.0.1:9100", PortRange{First: 9101, Last: 9110}
	cfg.Rules = []Rule{{Topics: "seen*", Mode: ModeObserve}, {Topics: "fenced*", Mode: ModeEnforce}}
	cfg.ListenFunc, cfg.Dial, cfg.Logger = r.n.listen, r.n.dial, slog.New(slog.DiscardHandler)
	var err error
	if r.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		var cut *DrainError
		if err := r.p.Run(ctx); err != nil && !errors.As(err, &cut) {
			t.Errorf("Run: %v", err)
		}
	}()
	<-r.p.Ready()
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.honest, r.l.clients.rest, r.l.owns.rest = false, r.broker, r.own
	return ended
}

// converse is what the client does, from its dial to its end.
func (r *fuzzRun) converse(t *testing.T) {
	conn, err := r.n.dial(t.Context(), "tcp", r.p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A proxy that takes nothing in makes its client wait, but not for ever.
	_ = conn.SetWriteDeadline(time.Now().Add(fuzzWithin))
	var reading sync.WaitGroup
	read := func() { reading.Go(func() { r.read(conn) }) }
	if !r.doNotRead {
		read()
	}
	r.client = &fuzzClient{plan: fuzzBytes{r.script}, wait: func() {
		synctest.Wait()
		r.judgeHeld()
	}}
	r.client.write = func(b []byte) {
		switch _, err := conn.Write(b); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.violation("the proxy takes in nothing and does not close")
		case err != nil:
			r.client.plan.rest = nil // closed
		}
	}
	end := r.client.run()
	synctest.Wait()
	r.judgeHeld()
	if r.doNotRead {
		read()
	}
	switch end {
	case endHalfClosed:
		_ = conn.(*memConn).CloseWrite()
	case endClosed:
		_ = conn.Close()
	}
	_ = conn.SetReadDeadline(time.Now().Add(fuzzWithin))
	reading.Wait()
	_ = conn.Close()
	deadline := time.Now().Add(fuzzWithin)
	for r.p.metrics.open.Load() != 0 || r.busy() {
		if time.Now().After(deadline) {
			r.violation("after %s %d connections are open, and batches in work: %v", fuzzWithin, r.p.metrics.open.Load(), r.busy())
			break
		}
		time.Sleep(time.Second)
	}
	r.judgeAnswers()
}

// read takes what comes until the proxy closes.
func (r *fuzzRun) read(conn net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		r.mu.Lock()
		r.got = append(r.got, buf[:n]...)
		r.mu.Unlock()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.violation("neither answered nor closed within %s", fuzzWithin)
		}
		if err != nil {
			return
		}
	}
}

func (r *fuzzRun) busy() bool {
	f := r.p.fencing
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lanes {
		if l.users.Load() != 0 {
			return true
		}
	}
	return false
}

// judgeHeld compares what connections hold with what they may by fuzzLimits. It
// is called while nothing moves.
func (r *fuzzRun) judgeHeld() {
	limits := fuzzLimits()
	r.p.mu.Lock()
	open := r.p.connsLocked()
	r.p.mu.Unlock()
	for _, c := range open {
		c.mu.Lock()
		slots, answers, held, unread := c.slots.len(), c.answers.len(), c.held, 0
		c.mu.Unlock()
		if !raceEnabled { // it is the clientLoop's, which stands still
			unread = len(c.in.Bytes())
		}
		// A frame may have to be whole, and the answer at the front may be as long
		// as what is rewritten.
		if most := limits.MaxFrameBytes + 4; unread > most {
			r.violation("%d bytes of requests are held, at most %d", unread, most)
		}
		if slots > limits.MaxPendingRequests {
			r.violation("%d requests are pending, at most %d", slots, limits.MaxPendingRequests)
		}
		// Besides those of slots: questions of rights, and pieces of Produce requests.
		if most := 2 * limits.MaxPendingRequests; answers > most {
			r.violation("%d answers are awaited, at most %d", answers, most)
		}
		if most := limits.MaxHeldBytes + limits.MaxRewrittenBytes; held > most {
			r.violation("%d bytes of answers are held, at most %d", held, most)
		}
	}
	f := r.p.fencing
	f.topics.mu.Lock()
	topics := f.topics.topics.Len()
	f.topics.mu.Unlock()
	if got, most := topics, limits.MaxTopics; got > most {
		r.violation("%d topics are remembered, at most %d", got, most)
	}
	if got := len(*r.p.topology.known.Load()); got > 10 {
		r.violation("%d brokers are known, and there are ports for 10", got)
	}
}

// judgeAnswers compares what the client received with what it asked.
func (r *fuzzRun) judgeAnswers() {
	var asked []wire.RequestHeader
	for b := r.client.sent; len(b) >= 4; {
		size := int(int32(binary.BigEndian.Uint32(b)))
		if size <= 0 || len(b) < 4+size {
			break
		}
		h, _ := wire.ParseRequestHeader(b[4 : 4+size])
		asked = append(asked, h)
		b = b[4+size:]
	}
	r.frames = len(asked)
	for b := r.got; len(b) >= 8; {
		size, id := int(int32(binary.BigEndian.Uint32(b))), int32(binary.BigEndian.Uint32(b[4:]))
		for len(asked) > 0 && asked[0].CorrelationID != id {
			asked = asked[1:] // acks=0
		}
		if len(asked) == 0 {
			r.violation("an answer to %d, which was not asked, or not in this order", id)
			return
		}
		if most := fuzzLimits().MaxRewrittenBytes + 4; bearsAddresses(asked[0].APIKey, asked[0].APIVersion) && size > most {
			r.violation("an answer of %d bytes that has to be read whole, at most %d", size, most)
		}
		asked = asked[1:]
		if len(b) < 4+size {
			break
		}
		b = b[4+size:]
	}
}

// judgeAllocations compares all that was allocated, by proxy, broker and clients,
// with what was really sent: a length that was believed shows.
func (r *fuzzRun) judgeAllocations(got int) {
	const (
		start   = 6 << 20   // of a proxy with its caches, and everything around it
		perByte = 24        // decoded, and kept by the test itself
		perItem = 128 << 10 // buffers of connections and batches
	)
	sent, answers := r.l.counts()
	moved := len(r.client.sent) + sent + len(r.got)
	if most := start + perByte*moved + perItem*(r.frames+answers); got > most {
		r.violation("%d bytes were allocated for %d bytes in %d requests and %d answers, expected %d at most", got, moved, r.frames, answers, most)
	}
}

// allocated is how many bytes this process has allocated so far.
func allocated() int {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtimemetrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// serveAnother has a client that behaves be served: it tries again when its
// connection is closed, as client libraries do.
func (r *fuzzRun) serveAnother(t *testing.T) {
	deadline := time.Now().Add(fuzzServed)
	for {
		err := r.talk(t)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.violation("another client is not served within %s: %v", fuzzServed, err)
			return
		}
		time.Sleep(time.Second)
	}
}

// talk has three requests answered, among them one for a fenced partition that
// the lying client never wrote to.
func (r *fuzzRun) talk(t *testing.T) error {
	conn, err := r.n.dial(t.Context(), "tcp", r.p.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(fuzzServed / 4))
	fenced := produceOf(9, -1, part{topic: "fenced", partition: 3, records: plain("x")})
	for id, request := range []kmsg.Request{kmsg.NewPtrListGroupsRequest(), fenced, kmsg.NewPtrMetadataRequest()} {
		if _, err := conn.Write(kafkatest.RequestFrame(int32(id), request)); err != nil {
			return err
		}
		var head [8]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		if got := int(binary.BigEndian.Uint32(head[4:])); got != id {
			return fmt.Errorf("%w: an answer to %d, want %d", errAnswer, got, id)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
			return err
		}
	}
	return nil
}

// FuzzClientConnection: whatever a client sends, and however brokers answer
// meanwhile, the connection is answered or closed, what is held for it stays within
// the limits, nothing of it is left, and others are served. Time is virtual, so
// waiting costs nothing.
func FuzzClientConnection(f *testing.F) {
	for i, s := range fuzzSeeds() {
		if raceEnabled && i%5 != 0 {
			continue // make fuzz runs them all, without the race detector
		}
		f.Add(s.script, s.broker, s.own, s.doNotRead)
	}
	inGoTime(f)
	f.Fuzz(func(t *testing.T, script, broker, own []byte, doNotRead bool) {
		r := &fuzzRun{cfg: fuzzLimits(), script: script, broker: broker, own: own, doNotRead: doNotRead}
		for _, v := range r.violations(t) {
			t.Error(v)
		}
	})
}

// inGoTime has the proxy's clock be the one that is virtual in synctest.
func inGoTime(t testing.TB) {
	goTime.Store(true)
	t.Cleanup(func() { goTime.Store(false) })
}

// forEver is as good as that.
const forEver = 1000 * time.Hour

// Each limit is seen to be needed by the same judges. Without it the input that
// comes up against it breaks a bound.
func TestFuzzClientConnectionSeesEachLimit(t *testing.T) {
	inGoTime(t)
	for _, twin := range fuzzTwins {
		t.Run(twin.name, func(t *testing.T) {
			if raceEnabled && twin.name == limitFrame {
				t.Skip("what has arrived cannot be looked at without a race")
			}
			run := func(cfg Config) []string {
				r := &fuzzRun{cfg: cfg, script: twin.seed.script, broker: twin.seed.broker, own: twin.seed.own, doNotRead: twin.seed.doNotRead}
				return r.violations(t)
			}
			if got := run(fuzzLimits()); len(got) != 0 {
				t.Errorf("with the limit got %q", got)
			}
			cfg := fuzzLimits()
			twin.unbar(&cfg)
			got := run(cfg)
			if len(got) == 0 {
				t.Error("without the limit got no violation")
			}
			t.Logf("without the limit: %q", got)
		})
	}
}
