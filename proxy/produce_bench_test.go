//go:build unix

package proxy

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// BenchmarkProduce sends Produce requests to a broker that acknowledges at once:
// directly, through a bare relay that knows of frames and nothing else, and through a
// connection of the proxy. Clients, broker and what is between them are one process,
// so the processor time is that of all; what a way costs is its difference to direct.
func BenchmarkProduce(b *testing.B) {
	for _, load := range []struct {
		name           string
		bytes          int // of records in a request
		clients, depth int // depth: requests in flight of each client
	}{
		{"one", 200, 1, 1}, {"sixteen", 200, 16, 1}, {"bulk-1MB", 1 << 20, 1, 5}, {"bulk-8MB", 8 << 20, 1, 5},
	} {
		for _, way := range []struct {
			name string
			dial func(testing.TB) net.Conn
		}{
			{"direct", dialAcknowledging},
			{"relay", dialRelay},
			{"proxy", func(t testing.TB) net.Conn {
				return dialBare(t, Config{}, func(conn net.Conn) { acknowledgeAll(conn, produceAck(12)) })
			}},
		} {
			b.Run(load.name+"/"+way.name, func(b *testing.B) {
				request := kafkatest.RequestFrame(7, produceOf(12, -1, part{topic: "free", records: make([]byte, load.bytes)}))
				conns := make([]net.Conn, load.clients)
				for i := range conns {
					conns[i] = way.dial(b)
					loop(b, conns[i], request, load.depth, load.depth) // has all buffers be there
				}
				b.SetBytes(int64(len(request)))
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				var all sync.WaitGroup
				for i, conn := range conns {
					n := (b.N + i) / load.clients
					all.Go(func() { loop(b, conn, request, n, load.depth) })
				}
				all.Wait()
				b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

// loop sends n requests and awaits their answers, so many in flight at most.
func loop(b *testing.B, conn net.Conn, request []byte, n, depth int) {
	answer := make([]byte, 8+len(produceAck(12)))
	if depth == 1 {
		for range n {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(conn, answer); err != nil {
				b.Error(err)
				return
			}
		}
		return
	}
	flight := make(chan struct{}, depth)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for range n {
			flight <- struct{}{}
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for range n {
		if _, err := io.ReadFull(conn, answer); err != nil {
			b.Error(err)
			return
		}
		<-flight
	}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// serveOne listens, and serves the one connection that comes.
func serveOne(t testing.TB, serve func(net.Conn)) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func dialTo(t testing.TB, address string) net.Conn {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dialAcknowledging(t testing.TB) net.Conn {
	return dialTo(t, serveOne(t, func(conn net.Conn) { acknowledgeAll(conn, produceAck(12)) }))
}

func dialRelay(t testing.TB) net.Conn {
	broker := dialAcknowledging(t)
	return dialTo(t, serveOne(t, func(client net.Conn) {
		var answers sync.WaitGroup
		answers.Go(func() { relayFrames(client, broker) })
		relayFrames(broker, client)
		_ = broker.Close()
		answers.Wait()
	}))
}

// relayFrames reads whole frames, and writes all that are there with one call.
func relayFrames(to, from net.Conn) {
	buf := make([]byte, 256<<10)
	held := 0
	for {
		n, err := from.Read(buf[held:])
		if err != nil {
			return
		}
		held += n
		whole, next := 0, 4
		for held-whole >= 4 {
			next = 4 + int(binary.BigEndian.Uint32(buf[whole:]))
			if held-whole < next {
				break
			}
			whole += next
		}
		if whole > 0 {
			if _, err := to.Write(buf[:whole]); err != nil {
				return
			}
			held = copy(buf, buf[whole:held])
		}
		if next > len(buf) {
			buf = append(make([]byte, 0, next), buf[:held]...)[:next]
		}
	}
}
