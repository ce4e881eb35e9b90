package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchBroker answers Fetch with so many bytes as the last 4 of the request say,
// and other requests with Metadata; without an allocation for a Fetch.
func fetchBroker(tb testing.TB) *kafkatest.Server {
	var server *kafkatest.Server
	up := make(chan struct{})
	server = kafkatest.NewServer(tb, func(c *kafkatest.Conn) {
		<-up
		in, out := make([]byte, 64<<10), make([]byte, 8<<20)
		for {
			if _, err := io.ReadFull(c.Conn, in[:4]); err != nil {
				return
			}
			frame := in[4 : 4+binary.BigEndian.Uint32(in)]
			if _, err := io.ReadFull(c.Conn, frame); err != nil {
				return
			}
			var answer []byte
			if kmsg.Key(binary.BigEndian.Uint16(frame)) == kmsg.Fetch {
				size := binary.BigEndian.Uint32(frame[len(frame)-4:])
				answer = out[:size]
				binary.BigEndian.PutUint32(answer, size-4)
				copy(answer[4:], frame[4:8])
			} else {
				r := kafkatest.Request{}
				r.APIKey, r.APIVersion = int16(kmsg.Metadata), int16(binary.BigEndian.Uint16(frame[2:]))
				r.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
				m := kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: server.Port()})
				m.Version = r.APIVersion
				answer = kafkatest.AnswerFrame(r, m.AppendTo(nil))
			}
			if _, err := c.Conn.Write(answer); err != nil {
				return
			}
		}
	})
	close(up)
	return server
}

// fetcher asks for answers of one size, one at a time.
type fetcher struct {
	conn       net.Conn
	ask, reads []byte
}

func newFetcher(tb testing.TB, address string, size int) *fetcher {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	ask := kafkatest.RequestFrame(1, fetch())
	ask = binary.BigEndian.AppendUint32(ask, uint32(size))
	binary.BigEndian.PutUint32(ask, uint32(len(ask)-4))
	return &fetcher{conn: conn, ask: ask, reads: make([]byte, size)}
}

func (f *fetcher) fetch(tb testing.TB) {
	if _, err := f.conn.Write(f.ask); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.ReadFull(f.conn, f.reads); err != nil {
		tb.Fatal(err)
	}
}

func quietProxy(tb testing.TB, broker string) *Proxy {
	p, err := New(Config{Bootstrap: []string{broker}, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	<-p.Ready()
	return p
}

func cpuSeconds(tb testing.TB) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// BenchmarkFetch relays answers of Fetch, one at a time. Processor time is that of
// broker, proxy and client together: what the proxy costs is the difference to
// direct.
func BenchmarkFetch(b *testing.B) {
	broker := fetchBroker(b)
	p := quietProxy(b, broker.Addr())
	for _, size := range []int{200, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20} {
		for _, to := range []struct{ name, address string }{{"direct", broker.Addr()}, {"proxy", p.Addr()}} {
			b.Run(fmt.Sprintf("size=%d/%s", size, to.name), func(b *testing.B) {
				f := newFetcher(b, to.address, size)
				f.fetch(b)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				before := cpuSeconds(b)
				b.ResetTimer()
				for range b.N {
					f.fetch(b)
				}
				b.StopTimer()
				used := cpuSeconds(b) - before
				b.ReportMetric(used/float64(b.N)*1e6, "cpu-µs/op")
				b.ReportMetric(used/(float64(b.N)*float64(size)/1e9), "cpu-s/GB")
			})
		}
	}
}

// fetchAllocations is what a relayed Fetch may cost in the steady state: nothing,
// but that the collector empties the pools of slots and buffers now and then.
const fetchAllocations = 0.5

func TestRelayingAFetchAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	broker := fetchBroker(t)
	p := quietProxy(t, broker.Addr())
	for _, size := range []int{200, 32 << 10, 256 << 10, 4 << 20} {
		f := newFetcher(t, p.Addr(), size)
		for range 20 {
			f.fetch(t)
		}
		if got := testing.AllocsPerRun(100, func() { f.fetch(t) }); got > fetchAllocations {
			t.Errorf("answer of %d bytes: got %v allocations, want none", size, got)
		}
	}
}
