package proxy

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// dialBare gives a client's connection through a proxy to a broker that is a function
// of the test. Neither discovery nor anything else goes on beside it.
func dialBare(t testing.TB, cfg Config, broke func(net.Conn)) net.Conn {
	t.Helper()
	brokers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Bootstrap, cfg.Listen = []string{brokers.Addr().String()}, "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.topology.known.Store(&map[int32]broker{4: {node: 4, upstream: brokers.Addr().String()}})
	p.topology.live.Store(&[]int32{4})
	p.markReady()

	client, err := net.Dial("tcp", clients.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := clients.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(p, accepted, p.topology.entrances[0], 4)
	var all sync.WaitGroup
	all.Go(c.serve)
	all.Go(func() {
		conn, err := brokers.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		broke(conn)
	})
	t.Cleanup(func() {
		_ = client.Close()
		_ = clients.Close()
		_ = brokers.Close()
		c.abort(errAborted)
		all.Wait()
	})
	return client
}

// acknowledgeAll reads requests, of which it keeps nothing, and answers each with
// the same body. It allocates nothing once it has begun.
func acknowledgeAll(conn net.Conn, body []byte) {
	answer := append(make([]byte, 8), body...)
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	buf := make([]byte, 256<<10)
	held, left := 0, 0 // bytes in buf, and of a request that is being dropped
	for {
		n, err := conn.Read(buf[held:])
		if err != nil {
			return
		}
		b := buf[:held+n]
		for {
			n := min(left, len(b))
			b, left = b[n:], left-n
			if left > 0 || len(b) < 12 {
				break
			}
			copy(answer[4:8], b[8:12])
			left = 4 + int(binary.BigEndian.Uint32(b))
			// Answered when its end is there; that of a long one only a little early.
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
		held = copy(buf, b)
	}
}

// produceAck is the body of an answer to a Produce request.
func produceAck(version int16) []byte {
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = version
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic, topic.TopicID = "free", [16]byte{1}
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
	answer.Topics = append(answer.Topics, topic)
	frame := kafkatest.AnswerFrame(kafkatest.Request{RequestHeader: wire.RequestHeader{APIKey: int16(kmsg.Produce), APIVersion: version}}, answer.AppendTo(nil))
	return frame[8:]
}

// allocations counts those of the whole process while f runs.
func allocations(f func()) (count, bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// A Produce that no rule concerns, and its answer, are passed on without any
// allocation.
func TestPassedProduceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const requests = 5000
	for _, version := range []int16{9, 12, 13} {
		client := dialBare(t, Config{}, func(conn net.Conn) { acknowledgeAll(conn, produceAck(version)) })
		request := kafkatest.RequestFrame(7, produceOf(version, -1, part{topic: "free", id: [16]byte{1}, records: make([]byte, 200)}))
		answer := make([]byte, 8+len(produceAck(version)))
		ask := func(n int) {
			for range n {
				if _, err := client.Write(request); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, answer); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask(requests)
		count, _ := allocations(func() { ask(requests) })
		// A collection of garbage, which empties pools, costs a few.
		if count > requests/100 {
			t.Errorf("v%d: %d allocations for %d requests", version, count, requests)
		}
	}
}

// However long requests are, a connection takes one buffer for them.
func TestLongRequestsLeaveMemoryFlat(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const size, times = 64 << 20, 4
	client := dialBare(t, Config{MaxFrameBytes: size}, func(conn net.Conn) { acknowledgeAll(conn, produceAck(9)) })
	front, _ := longProduce(7, 9, -1)
	binary.BigEndian.PutUint32(front, size-4)
	rest, answer := make([]byte, 1<<20), make([]byte, 8+len(produceAck(9)))
	ask := func() {
		write := func(b []byte) {
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		write(front)
		for left := size - len(front); left > 0; left -= min(left, len(rest)) {
			write(rest[:min(left, len(rest))])
		}
		if _, err := io.ReadFull(client, answer); err != nil {
			t.Fatal(err)
		}
	}
	_, bytes := allocations(func() {
		for range times {
			ask()
		}
	})
	// Both directions' buffers, the small ones that come first, and their pools.
	if most := uint64(8 * passBytes); bytes > most {
		t.Errorf("%d bytes were allocated for %d requests of %d bytes, want %d at most", bytes, times, size, most)
	}
}
