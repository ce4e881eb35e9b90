package proxy_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
)

const mebibyte = 1 << 20

// wholeFrame is a request of about so many bytes, which is read whole.
func wholeFrame(id int32, bytes int) []byte {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version = 1
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = "t", make([]int32, bytes/4)
	r.Topics = append(r.Topics, topic)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, r, id)
}

func write(t *testing.T, to io.Writer, b []byte) {
	t.Helper()
	if _, err := to.Write(b); err != nil {
		t.Fatal(err)
	}
}

func (r *running) wantNoMemory() {
	r.t.Helper()
	await(r.t, "memory is given back", func() bool { return r.metric("offsetproxy.memory.buffered", "") == 0 })
}

func TestRequestsWaitForMemory(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte}, echo)
	first, second, third := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	frame := wholeFrame(1, mebibyte/2)
	write(t, first, frame[:len(frame)/2])
	await(t, "the first has memory", func() bool { return p.metric("offsetproxy.memory.buffered", "requests") == int64(len(frame)) })
	write(t, second, frame)
	await(t, "the second waits", func() bool { return p.metric("offsetproxy.limits.hit", "max_buffered_bytes") == 1 })
	p.awaitLog("the memory for frames is used up")
	// It waits in order behind the second, although there would be room.
	write(t, third, wholeFrame(1, 100<<10))
	await(t, "the third waits", func() bool { return p.metric("offsetproxy.limits.hit", "max_buffered_bytes") == 2 })
	// Others are served.
	other := kafkatest.Dial(t, p.Addr())
	other.Send(5, listGroups())
	other.Next()
	if got := p.metric("offsetproxy.requests", "AddPartitionsToTxn"); got != 0 {
		t.Errorf("%d requests were handled before there was memory", got)
	}
	write(t, first, frame[len(frame)/2:])
	for _, c := range []*kafkatest.Client{first, second, third} {
		if got := c.NextID(); got != 1 {
			t.Errorf("got an answer to %d, want 1", got)
		}
	}
	p.wantNoMemory()
}

func TestRequestLargerThanAllMemoryPassesAlone(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte}, echo)
	var clients sync.WaitGroup
	for range 8 {
		c := kafkatest.Dial(t, p.Addr())
		clients.Go(func() {
			for i := range int32(4) {
				if _, err := c.Write(wholeFrame(i, 3*mebibyte/2)); err != nil {
					t.Error(err)
					return
				}
				if got := c.NextID(); got != i {
					t.Errorf("got an answer to %d, want %d", got, i)
				}
			}
		})
	}
	clients.Wait()
	p.wantNoMemory()
}

func TestRequestThatDoesNotComeGivesWay(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte, ArrivalTimeout: 100 * time.Millisecond}, echo)
	slow, other := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	frame := wholeFrame(1, mebibyte)
	slow.Send(7, listGroups())
	slow.Next()
	write(t, slow, frame[:len(frame)/2])
	await(t, "the slow one has memory", func() bool { return p.metric("offsetproxy.memory.buffered", "requests") > 0 })
	write(t, other, frame)
	if got := other.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
	slow.ExpectClosed()
	if got := p.metric("offsetproxy.limits.hit", "arrival_timeout"); got != 1 {
		t.Errorf("the limit was counted %d times, want 1", got)
	}
	p.awaitLog("a request, or a broker's answer, does not arrive while others wait")
	p.wantNoMemory()
}

// While nobody wants its memory, a request may take its time.
func TestSlowRequestIsLetBe(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte, ArrivalTimeout: time.Millisecond}, echo)
	c := kafkatest.Dial(t, p.Addr())
	frame := wholeFrame(1, mebibyte)
	for len(frame) > 0 {
		n := min(len(frame), 200<<10)
		write(t, c, frame[:n])
		if frame = frame[n:]; len(frame) > 0 {
			time.Sleep(5 * time.Millisecond) // longer than it may take
		}
	}
	if got := c.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
}

func TestDrainEndsAWaitForMemory(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte, DrainTimeout: patience}, echo)
	first, second := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	frame := wholeFrame(1, mebibyte)
	write(t, first, frame[:len(frame)/2])
	await(t, "the first has memory", func() bool { return p.metric("offsetproxy.memory.buffered", "requests") > 0 })
	write(t, second, frame[:len(frame)/2])
	await(t, "the second waits", func() bool { return p.metric("offsetproxy.limits.hit", "max_buffered_bytes") == 1 })
	p.stop()
	first.ExpectClosed()
	second.ExpectClosed()
	p.wait()
}

// Answers with addresses are there whole, and once more rewritten; there is memory for
// none of them beside another.
func TestAnswersWaitForMemory(t *testing.T) {
	p := scripted(t, proxy.Config{MaxBufferedBytes: mebibyte}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		answer := kafkatest.Metadata(kafkatest.Broker{Node: 5, Host: "127.0.0.1", Port: 1})
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr(strings.Repeat("t", 249))
		for range 1000 {
			answer.Topics = append(answer.Topics, topic)
		}
		c.Answer(r, answer)
		return true
	})
	var clients sync.WaitGroup
	for range 10 {
		c := kafkatest.Dial(t, p.Addr())
		clients.Go(func() {
			for i := range int32(10) {
				c.Send(i, versioned(kmsg.NewPtrMetadataRequest(), 5))
				if got := c.NextID(); got != i {
					t.Errorf("got an answer to %d, want %d", got, i)
				}
			}
		})
	}
	clients.Wait()
	p.wantNoMemory()
}

// frozenWithin runs a proxy before a broker that freezes in the middle of the first
// answer that is read whole, for which there is memory only once, until thaw is called.
func frozenWithin(t *testing.T, cfg proxy.Config) (p *running, thaw func()) {
	t.Helper()
	cfg.MaxBufferedBytes = mebibyte
	var frozen atomic.Bool
	ice := make(chan struct{})
	p = scripted(t, cfg, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		answer := kafkatest.Metadata(kafkatest.Broker{Node: 5, Host: "127.0.0.1", Port: 1})
		answer.Version = r.APIVersion
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr(strings.Repeat("t", 249))
		for range 1000 {
			answer.Topics = append(answer.Topics, topic)
		}
		frame := kafkatest.AnswerFrame(r, answer.AppendTo(nil))
		if frozen.CompareAndSwap(false, true) {
			_, _ = c.Write(frame[:len(frame)/2])
			frame = frame[len(frame)/2:]
			<-ice
		}
		_, err := c.Write(frame)
		return err == nil
	})
	thaw = sync.OnceFunc(func() { close(ice) })
	t.Cleanup(thaw)
	return p, thaw
}

// askForMuch asks for an answer that is read whole.
func askForMuch(c *kafkatest.Client) { c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 5)) }

func TestAnswerThatDoesNotComeGivesWay(t *testing.T) {
	p, _ := frozenWithin(t, proxy.Config{ArrivalTimeout: 100 * time.Millisecond})
	frozen, other := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	askForMuch(frozen)
	await(t, "the frozen one has memory", func() bool { return p.metric("offsetproxy.memory.buffered", "answers") > 0 })
	askForMuch(other)
	if got := other.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
	frozen.ExpectClosed()
	if got := p.metric("offsetproxy.limits.hit", "arrival_timeout"); got != 1 {
		t.Errorf("the limit was counted %d times, want 1", got)
	}
	p.awaitLog("a broker's answer, does not arrive while others wait")
	p.awaitLog("an answer of the broker took too long to arrive")
	p.wantNoMemory()
}

// The twin: before its time is over the other one waits, and both are answered.
func TestAnswerThatComesInTimeIsWaitedFor(t *testing.T) {
	p, thaw := frozenWithin(t, proxy.Config{})
	frozen, other := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	askForMuch(frozen)
	await(t, "the frozen one has memory", func() bool { return p.metric("offsetproxy.memory.buffered", "answers") > 0 })
	askForMuch(other)
	await(t, "the other one waits", func() bool { return p.metric("offsetproxy.limits.hit", "max_buffered_bytes") == 1 })
	thaw()
	for _, c := range []*kafkatest.Client{frozen, other} {
		if got := c.NextID(); got != 1 {
			t.Errorf("got an answer to %d, want 1", got)
		}
	}
	p.wantNoMemory()
}

func TestClientThatTakesNothingIsCutOff(t *testing.T) {
	for name, size := range map[string]int{"streamed": 64 << 20, "many_small_ones": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			body := make([]byte, size)
			p := scripted(t, proxy.Config{WriteTimeout: 100 * time.Millisecond}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
				_, err := c.Write(kafkatest.AnswerFrame(r, body))
				return err == nil
			})
			c := kafkatest.Dial(t, p.Addr())
			for i := range int32(64 << 20 / size) {
				c.Send(i, versioned(kmsg.NewPtrFetchRequest(), 4))
			}
			await(t, "the limit is hit", func() bool { return p.metric("offsetproxy.limits.hit", "write_timeout") == 1 })
			p.awaitLog("a client takes no answers")
			await(t, "the connection ends", func() bool { return p.metric("offsetproxy.connections.open", "") == 0 })
		})
	}
}

// A client that takes a little at a time is not cut off, however long it takes.
func TestSlowClientIsServedOn(t *testing.T) {
	body := make([]byte, 32<<20)
	p := scripted(t, proxy.Config{WriteTimeout: 300 * time.Millisecond}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		_, err := c.Write(kafkatest.AnswerFrame(r, body))
		return err == nil
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrFetchRequest(), 4))
	read := make([]byte, 4<<20)
	for left := len(body) + 8; left > 0; {
		n, err := io.ReadFull(c, read[:min(left, len(read))])
		if left -= n; err != nil {
			t.Fatalf("%d bytes before the end: %v", left, err)
		}
		time.Sleep(60 * time.Millisecond) // all together longer than a single write may wait
	}
}

func TestConnectionsOfAnAddressAreLimited(t *testing.T) {
	p := scripted(t, proxy.Config{MaxConnectionsPerAddress: 2}, echo)
	works := func(c *kafkatest.Client) {
		t.Helper()
		c.Send(1, listGroups())
		c.Next()
	}
	first, second := kafkatest.Dial(t, p.Addr()), kafkatest.Dial(t, p.Addr())
	works(first)
	works(second)
	kafkatest.Dial(t, p.Addr()).ExpectClosed()
	if got := p.metric("offsetproxy.limits.hit", "max_connections_per_address"); got != 1 {
		t.Errorf("the limit was counted %d times, want 1", got)
	}
	p.awaitLog("too many connections of one address")
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", p.Addr())
	if err != nil {
		t.Skipf("no second address here: %v", err)
	}
	defer other.Close()
	write(t, other, kmsg.NewRequestFormatter().AppendRequest(nil, listGroups(), 1))
	if _, err := io.ReadFull(other, make([]byte, 8)); err != nil {
		t.Errorf("from another address: %v", err)
	}
	_ = first.Close()
	await(t, "room again", func() bool { return p.metric("offsetproxy.connections.open", "") == 2 })
	works(kafkatest.Dial(t, p.Addr()))
}
