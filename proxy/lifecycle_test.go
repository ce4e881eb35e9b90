package proxy_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func listGroups() kmsg.Request { return versioned(kmsg.NewPtrListGroupsRequest(), 0) }

func TestDrainAnswersWhatIsPending(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := scripted(t, proxy.Config{DrainTimeout: patience}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		close(arrived)
		<-release
		return echo(c, r)
	})
	c := kafkatest.Dial(t, p.Addr())
	idle := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	<-arrived
	p.stop()
	idle.ExpectClosed() // nothing is pending there
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		await(t, "listener closes", func() bool {
			conn, err := net.Dial("tcp", p.Addr())
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	close(release)
	if got := c.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
	c.ExpectClosed()
	p.wait()
}

func TestDrainIsBounded(t *testing.T) {
	p := scripted(t, proxy.Config{DrainTimeout: 50 * time.Millisecond}, func(*kafkatest.Conn, kafkatest.Request) bool {
		return true // never answers
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	await(t, "request arrives", func() bool {
		return p.metric("offsetproxy.requests", "ListGroups") == 1
	})
	p.stop()
	c.ExpectClosed()
	p.wait()
	p.awaitLog("drain timed out")
	if p.cut == nil || *p.cut != (proxy.DrainError{Connections: 1, Requests: 1}) {
		t.Errorf("Run: got %+v, want a *DrainError for a request on a connection", p.cut)
	}
	p.awaitLog("answered=0 cut_by_timeout=1 client_gone=0 upstream_lost=0")
}

// Of each request that is in flight when the drain begins it is told what became of it.
func TestDrainTellsWhatBecameOfRequests(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	p := scripted(t, proxy.Config{DrainTimeout: patience}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		arrived <- struct{}{}
		<-release
		return r.APIKey != int16(kmsg.Heartbeat) && echo(c, r)
	})
	answered, lost := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	answered.Send(1, listGroups(), listGroups(), listGroups())
	lost.Send(1, versioned(kmsg.NewPtrHeartbeatRequest(), 0))
	<-arrived
	<-arrived
	await(t, "all are read", func() bool { return p.metric("offsetproxy.requests", "ListGroups") == 3 })
	p.stop()
	await(t, "not ready", func() bool { return p.NotReady() == "draining" })
	p.awaitLog("msg=draining")
	close(release)
	for want := range int32(3) {
		if got := answered.NextID(); got != want+1 {
			t.Errorf("got an answer to %d, want %d", got, want+1)
		}
	}
	lost.ExpectClosed()
	p.wait()
	if p.cut != nil {
		t.Errorf("Run: %v", p.cut)
	}
	p.awaitLog("answered=3 cut_by_timeout=0 client_gone=0 upstream_lost=1")
}

// Until the delay is over clients are served, and load balancers told.
func TestDrainDelayServesOn(t *testing.T) {
	p := scripted(t, proxy.Config{DrainDelay: 300 * time.Millisecond}, echo)
	c := kafkatest.Dial(t, p.Addr())
	if why := p.NotReady(); why != "" {
		t.Errorf("not ready: %s", why)
	}
	p.stop()
	await(t, "not ready", func() bool { return p.NotReady() == "draining" })
	late := kafkatest.Dial(t, p.Addr())
	for _, c := range []*kafkatest.Client{c, late} {
		c.Send(1, listGroups())
		if got := c.NextID(); got != 1 {
			t.Errorf("got an answer to %d, want 1", got)
		}
	}
	if err := p.Live(); err != nil {
		t.Error(err)
	}
	p.wait()
	if err := p.Live(); err != nil {
		t.Errorf("after the drain: %v", err)
	}
}

func TestNotReadyWhileNoBrokerCanBeReached(t *testing.T) {
	p := startUnready(t, proxy.Config{Bootstrap: []string{"127.0.0.1:1"}})
	await(t, "the reason is told", func() bool { return strings.Contains(p.NotReady(), "no broker can be reached since") })
	if err := p.Live(); err != nil {
		t.Errorf("it lives: %v", err)
	}
}

// brokenListener ends without having been closed by the proxy.
type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func TestListenerThatEndsIsDeath(t *testing.T) {
	p := startUnready(t, proxy.Config{
		Bootstrap: []string{"127.0.0.1:1"},
		ListenFunc: func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			return brokenListener{l}, err
		},
	})
	await(t, "it is dead", func() bool { return errors.Is(p.Live(), proxy.ErrDead) })
}

func TestUpstreamDeathWithinAnAnswerClosesTheClient(t *testing.T) {
	for name, cut := range map[string]func(id int32) []byte{
		"before":           func(int32) []byte { return nil },
		"within_length":    func(int32) []byte { return []byte{0, 0} },
		"within_id":        func(int32) []byte { return []byte{0, 0, 0, 100, 0} },
		"within_the_frame": func(id int32) []byte { return binary.BigEndian.AppendUint32(kafkatest.Length(100), uint32(id)) },
		"another_id":       func(id int32) []byte { return binary.BigEndian.AppendUint32(kafkatest.Length(4), uint32(id+1)) },
		"unasked":          func(id int32) []byte { return []byte{0, 0, 0, 3, 1, 2, 3, 4} },
	} {
		t.Run(name, func(t *testing.T) {
			p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
				if r.APIKey == int16(kmsg.ListGroups) {
					return echo(c, r)
				}
				_, _ = c.Write(cut(r.CorrelationID))
				return false
			})
			c := kafkatest.Dial(t, p.Addr())
			c.Send(1, listGroups(), versioned(kmsg.NewPtrFetchRequest(), 4), listGroups())
			if got := c.NextID(); got != 1 {
				t.Errorf("got an answer to %d, want 1: it came before the cut", got)
			}
			rest := c.ExpectClosed()
			if len(rest) > 8 {
				t.Errorf("got %x after the cut", rest)
			}
			// Others are served on.
			other := kafkatest.Dial(t, p.Addr())
			other.Send(9, listGroups())
			if got := other.NextID(); got != 9 {
				t.Errorf("got an answer to %d, want 9", got)
			}
		})
	}
}

func TestClientDeathClosesUpstream(t *testing.T) {
	ended := make(chan struct{})
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		if r.APIKey == int16(kmsg.Fetch) {
			_, ok := c.Next() // a long poll: blocks until the peer closes
			if !ok {
				close(ended)
			}
			return false
		}
		return echo(c, r)
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrFetchRequest(), 4))
	await(t, "request arrives", func() bool { return p.metric("offsetproxy.requests", "Fetch") == 1 })
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the upstream connection stays open")
	}
	await(t, "connection is counted out", func() bool { return p.metric("offsetproxy.connections.open", "") == 0 })
}

func TestSlowReaderIsHeldBackInBoundedMemory(t *testing.T) {
	const answers, size = 64, 1 << 20
	written := make(chan int, answers)
	body := make([]byte, size)
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		frame := kafkatest.AnswerFrame(r, body)
		if _, err := c.Write(frame); err != nil {
			return false
		}
		written <- 1
		return true
	})
	c := kafkatest.Dial(t, p.Addr())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range int32(answers) {
		c.Send(i, versioned(kmsg.NewPtrFetchRequest(), 4))
	}
	// Another client is not held up meanwhile.
	other := kafkatest.Dial(t, p.Addr())
	other.Send(1, versioned(kmsg.NewPtrApiVersionsRequest(), 99))
	other.Next()
	last, since := len(written), time.Now()
	await(t, "the broker is held back", func() bool {
		if got := len(written); got != last {
			last, since = got, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	if got := len(written); got == answers {
		t.Errorf("all %d answers of %d bytes left the broker, though nobody reads", answers, size)
	}
	for i := range int32(answers) {
		if got := c.NextID(); got != i {
			t.Fatalf("got an answer to %d, want %d", got, i)
		}
	}
	runtime.ReadMemStats(&after)
	// The script and the client each make size bytes for every answer; the
	// proxy must not add a third.
	if got := after.TotalAlloc - before.TotalAlloc; got > answers*size*5/2 {
		t.Errorf("allocated %d MiB for answers of %d MiB", got>>20, answers*size>>20)
	}
}

// flakyListener fails Accept n times before each success.
type flakyListener struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptSurvivesRunningOutOfDescriptors(t *testing.T) {
	p := scripted(t, proxy.Config{
		ListenFunc: func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			return &flakyListener{Listener: l, fails: 3}, err
		},
	}, echo)
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	if got := c.NextID(); got != 1 {
		t.Errorf("got an answer to %d", got)
	}
	if got := p.log.count("accept failed"); got < 3 {
		t.Errorf("got %d log lines, want 3", got)
	}
}

func TestMaxConnectionsTurnsClientsAway(t *testing.T) {
	p := scripted(t, proxy.Config{MaxConnections: 1}, echo)
	first := kafkatest.Dial(t, p.Addr())
	first.Send(1, listGroups())
	first.Next()
	second := kafkatest.Dial(t, p.Addr())
	second.ExpectClosed()
	if got := p.metric("offsetproxy.limits.hit", "max_connections"); got != 1 {
		t.Errorf("limit was counted %d times, want 1", got)
	}
	_ = first.Close()
	await(t, "room again", func() bool { return p.metric("offsetproxy.connections.open", "") == 0 })
	third := kafkatest.Dial(t, p.Addr())
	third.Send(3, listGroups())
	if got := third.NextID(); got != 3 {
		t.Errorf("got an answer to %d", got)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	p := scripted(t, proxy.Config{IdleTimeout: 40 * time.Millisecond}, echo)
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	c.Next()
	c.ExpectClosed()
	p.awaitLog("idle for too long")
}

func TestRunFailsIfItCannotListen(t *testing.T) {
	broken := errors.New("no such interface")
	p, err := proxy.New(proxy.Config{
		Bootstrap: []string{"127.0.0.1:1"}, Listen: "127.0.0.1:0",
		ListenFunc: func(string, string) (net.Listener, error) { return nil, broken },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestRequestBeforeAHalfCloseArrives(t *testing.T) {
	arrived := make(chan kafkatest.Request, 1)
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		arrived <- r
		return true
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, produceRequest(9, 0))
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case <-time.After(patience):
		t.Fatal("the request did not arrive")
	}
	if _, err := io.ReadAll(c.Conn); err != nil {
		t.Errorf("read: %v", err)
	}
}
