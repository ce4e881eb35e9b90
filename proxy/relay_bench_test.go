package proxy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mirror answers every request at once with an answer as large as the
// request, with as few system calls as it can.
func mirror(c *kafkatest.Conn, self func() int32) {
	var pending, out []byte
	chunk := make([]byte, 256<<10)
	for {
		n, err := c.Read(chunk)
		if err != nil {
			return
		}
		pending = append(pending, chunk[:n]...)
		out = out[:0]
		for len(pending) >= 4 {
			size := int(binary.BigEndian.Uint32(pending))
			if len(pending) < 4+size {
				break
			}
			frame := pending[4 : 4+size]
			if binary.BigEndian.Uint16(frame) == uint16(kmsg.Metadata) {
				r := kafkatest.Request{}
				r.APIKey, r.APIVersion = int16(kmsg.Metadata), int16(binary.BigEndian.Uint16(frame[2:]))
				r.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
				answer := kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: self()})
				answer.Version = r.APIVersion
				out = append(out, kafkatest.AnswerFrame(r, answer.AppendTo(nil))...)
			} else {
				out = append(out, pending[:4]...)
				out = append(out, frame[4:8]...)
				out = append(out, frame[4:]...)
			}
			pending = pending[4+size:]
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// BenchmarkRelay pipelines requests through the proxy and, to compare,
// directly. An operation is one request and its answer.
func BenchmarkRelay(b *testing.B) {
	var server *kafkatest.Server
	up := make(chan struct{})
	server = kafkatest.NewServer(b, func(c *kafkatest.Conn) {
		<-up
		mirror(c, func() int32 { return server.Port() })
	})
	close(up)
	p, err := proxy.New(proxy.Config{
		Bootstrap: []string{server.Addr()}, Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-p.Ready()
	for _, size := range []int{100, 64 << 10} {
		for _, depth := range []int{1, 50} {
			for _, to := range []struct{ name, address string }{{"direct", server.Addr()}, {"proxy", p.Addr()}} {
				b.Run(fmt.Sprintf("size=%d/depth=%d/%s", size, depth, to.name), func(b *testing.B) {
					pipeline(b, to.address, size, depth)
				})
			}
		}
	}
}

func pipeline(b *testing.B, address string, size, depth int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	frame := kafkatest.Length(uint32(size))
	frame = binary.BigEndian.AppendUint16(frame, uint16(kmsg.Heartbeat))
	frame = append(frame, make([]byte, size-2)...)
	frame[12], frame[13] = 0xff, 0xff // client id: null
	batch := bytes.Repeat(frame, depth)
	answers := make([]byte, len(batch))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += depth {
		sent := make(chan error, 1)
		go func() { _, err := conn.Write(batch); sent <- err }()
		if _, err := io.ReadFull(conn, answers); err != nil {
			b.Fatal(err)
		}
		if err := <-sent; err != nil {
			b.Fatal(err)
		}
	}
}
