package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// idleConnectionBytes is what a client's connection may cost that has asked for
// metadata and then does nothing, with the one upstream that belongs to it.
const idleConnectionBytes = 16 << 10

// quietBroker is a broker that costs next to nothing for each connection of a client
// which has asked for metadata.
type quietBroker struct {
	listener net.Listener
	answer   *kmsg.MetadataResponse
}

// serve answers; what it leaves open ends with the process of the client.
func (q *quietBroker) serve() {
	for {
		conn, err := q.listener.Accept()
		if err != nil {
			return
		}
		go q.script(conn)
	}
}

func (q *quietBroker) script(conn net.Conn) {
	r := bufio.NewReaderSize(conn, 512)
	for {
		frame, err := readWhole(r)
		if err != nil {
			_ = conn.Close()
			return
		}
		h, err := wire.ParseRequestHeader(frame[4:])
		if err != nil {
			_ = conn.Close()
			return
		}
		request := kafkatest.Request{RequestHeader: h, Frame: frame[4:]}
		var answer kmsg.Response = kmsg.NewPtrApiVersionsResponse()
		if h.APIKey == int16(kmsg.Metadata) {
			answer = q.answer
		}
		answer.SetVersion(h.APIVersion)
		if _, err := conn.Write(kafkatest.AnswerFrame(request, answer.AppendTo(nil))); err != nil {
			return
		}
	}
}

func readWhole(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// used is all memory that goroutines and their data take.
func used() int64 {
	for range 4 {
		runtime.GC() // stacks shrink by half each time
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// greet does what clients do first, and gives how much is in use then.
func greet(t *testing.T, dial func() (net.Conn, error), clients int) (each int64, done func()) {
	t.Helper()
	was := used()
	conns := make([]net.Conn, clients)
	versions, metadata := kafkatest.RequestFrame(1, kmsg.NewPtrApiVersionsRequest()), kmsg.NewPtrMetadataRequest()
	metadata.SetVersion(9)
	for i := range conns {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
		for _, frame := range [][]byte{versions, kafkatest.RequestFrame(2, metadata)} {
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			if _, err := readWhole(conn); err != nil {
				t.Fatal(err)
			}
		}
	}
	return (used() - was) / int64(clients), func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

func TestIdleConnectionLeavesMemoryFlat(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	t.Run("plain", func(t *testing.T) { idleConnection(t, nil, nil) })
	// What TLS has on both sides of a connection is in the direct ones too.
	ca := certtest.NewAuthority(t, "authority")
	server := &tls.Config{Certificates: []tls.Certificate{ca.Sign(time.Hour, "127.0.0.1")}}
	t.Run("in_TLS", func(t *testing.T) {
		idleConnection(t, server, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	})
}

// idleConnection measures clients, of a listener in TLS if server is given.
func idleConnection(t *testing.T, server, client *tls.Config) {
	const clients = 500
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q := &quietBroker{listener: listener, answer: kafkatest.Metadata(kafkatest.Broker{Node: 1, Host: "127.0.0.1", Port: int32(listener.Addr().(*net.TCPAddr).Port)})}
	for i := range 40 {
		name := fmt.Sprintf("a topic with a name of some length %d", i)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = &name
		topic.Partitions = make([]kmsg.MetadataResponseTopicPartition, 16)
		q.answer.Topics = append(q.answer.Topics, topic)
	}
	go q.serve()
	defer listener.Close()
	bare, cfg := listener, Config{Bootstrap: []string{listener.Addr().String()}, Listeners: []Listener{{Listen: "127.0.0.1:0", TLS: server}}, Logger: slog.New(slog.DiscardHandler)}
	if server != nil {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		bare = tls.NewListener(inner, server)
		defer bare.Close()
		go (&quietBroker{listener: bare, answer: q.answer}).serve()
	}
	dial := func(address string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			if client != nil {
				return tls.Dial("tcp", address, client)
			}
			return net.Dial("tcp", address)
		}
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-p.Ready()
	direct, done := greet(t, dial(bare.Addr().String()), clients)
	done()
	each, done := greet(t, dial(p.Addr()), clients)
	defer done()
	t.Logf("%d bytes, of which %d are the client's and the broker's", each, direct)
	if each -= direct; each > idleConnectionBytes {
		t.Errorf("got %d bytes for an idle connection, want %d at most", each, idleConnectionBytes)
	}
}
