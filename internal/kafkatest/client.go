package kafkatest

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every read of a Client: a test that waits longer hangs.
const patience = 20 * time.Second

// Client speaks the protocol frame by frame.
type Client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// Dial connects; the connection is closed with the test.
func Dial(t testing.TB, address string) *Client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return over(t, conn)
}

// DialTLS connects and speaks TLS; the connection is closed with the test.
func DialTLS(t testing.TB, address string, cfg *tls.Config) *Client {
	t.Helper()
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return over(t, conn)
}

func over(t testing.TB, conn net.Conn) *Client {
	t.Cleanup(func() { _ = conn.Close() })
	return &Client{Conn: conn, t: t, r: bufio.NewReaderSize(conn, 64<<10)}
}

// RequestFrame makes a whole frame, with its length, of a request.
func RequestFrame(id int32, request kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("kafkatest")).AppendRequest(nil, request, id)
}

// Send writes requests with one write, with correlation ids from id on.
func (c *Client) Send(id int32, requests ...kmsg.Request) {
	c.t.Helper()
	var frames []byte
	for i, request := range requests {
		frames = append(frames, RequestFrame(id+int32(i), request)...)
	}
	c.SendBytes(frames)
}

// SendBytes writes what it is given.
func (c *Client) SendBytes(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// Next reads an answer, without its length bytes.
func (c *Client) Next() []byte {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	frame, err := readFrame(c.r)
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return frame
}

// NextID reads an answer and returns its correlation id.
func (c *Client) NextID() int32 {
	c.t.Helper()
	return wire.CorrelationID(c.Next())
}

// Expect reads the answer to a request and decodes it into answer, whose
// version must be set.
func (c *Client) Expect(id int32, answer kmsg.Response) {
	c.t.Helper()
	frame := c.Next()
	if got := wire.CorrelationID(frame); got != id {
		c.t.Fatalf("correlation id: got %d, want %d", got, id)
	}
	offset, err := wire.AnswerBodyOffset(frame, answer.Key(), answer.GetVersion())
	if err != nil {
		c.t.Fatalf("answer header: %v", err)
	}
	if err := answer.ReadFrom(frame[offset:]); err != nil {
		c.t.Fatalf("decode answer to api key %d: %v", answer.Key(), err)
	}
}

// ExpectClosed reads until the peer closes and returns what came before that.
func (c *Client) ExpectClosed() []byte {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	var rest []byte
	for {
		b, err := c.r.ReadByte()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatalf("connection was not closed")
		}
		if err != nil {
			return rest
		}
		rest = append(rest, b)
	}
}

// Length makes the 4 length bytes of a frame.
func Length(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
