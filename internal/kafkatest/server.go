package kafkatest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Server is a scripted broker on a loopback port. It ends with the test.
type Server struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// NewServer runs script for each connection, in a goroutine of its own; the
// connection is closed when script returns.
func NewServer(t testing.TB, script func(*Conn)) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	return Serve(t, listener, script)
}

// Serve is NewServer on a listener, which it closes at the end.
func Serve(t testing.TB, listener net.Listener, script func(*Conn)) *Server {
	s := &Server{listener: listener}
	s.wg.Go(func() { s.accept(script) })
	t.Cleanup(s.Close)
	return s
}

func (s *Server) accept(script func(*Conn)) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer conn.Close()
			script(&Conn{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)})
		})
	}
}

// Close stops listening, cuts all connections and waits for their scripts.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Port is the server's port on 127.0.0.1.
func (s *Server) Port() int32 {
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

// Conn is a connection as a script sees it.
type Conn struct {
	net.Conn
	r *bufio.Reader
}

// Request is a request as it arrived.
type Request struct {
	wire.RequestHeader
	// Frame is the request without its length bytes.
	Frame []byte
}

// Decode reads the body.
func (r Request) Decode() (kmsg.Request, error) {
	request := kmsg.RequestForKey(r.APIKey)
	request.SetVersion(r.APIVersion)
	return request, request.ReadFrom(r.Frame[r.BodyOffset:])
}

// Next reads a request; false when the peer has closed or sent no request.
func (c *Conn) Next() (Request, bool) {
	frame, err := readFrame(c.r)
	if err != nil {
		return Request{}, false
	}
	h, err := wire.ParseRequestHeader(frame)
	if err != nil {
		return Request{}, false
	}
	return Request{RequestHeader: h, Frame: frame}, true
}

// Answer writes an answer to a request: header and body by its version. An
// error means that the peer has gone, which the next Next will say.
func (c *Conn) Answer(to Request, answer kmsg.Response) {
	answer.SetVersion(to.APIVersion)
	_, _ = c.Write(AnswerFrame(to, answer.AppendTo(nil)))
}

// AnswerFrame makes a whole frame, with its length, of an answer's body.
func AnswerFrame(to Request, body []byte) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(to.CorrelationID))
	if wire.FlexibleAnswer(to.APIKey, to.APIVersion) {
		frame = append(frame, 0)
	}
	frame = append(frame, body...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// Broker is one line of a Metadata answer.
type Broker struct {
	Node int32
	Host string
	Port int32
}

// Metadata is an answer that names these brokers and no topics.
func Metadata(brokers ...Broker) *kmsg.MetadataResponse {
	answer := kmsg.NewPtrMetadataResponse()
	for _, b := range brokers {
		line := kmsg.NewMetadataResponseBroker()
		line.NodeID, line.Host, line.Port = b.Node, b.Host, b.Port
		answer.Brokers = append(answer.Brokers, line)
	}
	return answer
}
