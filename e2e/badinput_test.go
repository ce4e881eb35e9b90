package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// badInputTopic has a rule, so that the proxy itself looks at its records.
const badInputTopic = "bad-input"

// reaction is what a client may see of bad input.
type reaction int

const (
	closes  reaction = iota // the connection is closed without an answer
	refuses                 // a Produce answer with an error code, or the connection is closed
	answers                 // ApiVersions v0 with UNSUPPORTED_VERSION, and the connection goes on
)

// badInput is one case: bytes for a fresh connection.
type badInput struct {
	name string
	// send gives the bytes; c only forms frames.
	send     func(c *rawConn) []byte
	reaction reaction
	// reason of a batch that is refused and logged, in words that the log has;
	// empty: the connection's end is logged with a reason.
	reason string
	// halfClose ends the client's side after the bytes, for input that is cut.
	halfClose bool
	// forwarded input is no business of the proxy, so that only its debug log
	// has the reason. It makes the embedded broker panic.
	forwarded bool
}

func badInputs() []badInput {
	length := func(n uint32, rest ...byte) func(*rawConn) []byte {
		return func(*rawConn) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	}
	produce := func(batch func() []byte) func(*rawConn) []byte {
		return func(c *rawConn) []byte { return c.frame(produceRequest(badInputTopic, 0, batch())) }
	}
	return []badInput{
		{name: "negative length", send: length(0xffff_ffff), reaction: closes},
		{name: "least length", send: length(0x8000_0000), reaction: closes},
		{name: "zero length", send: length(0), reaction: closes},
		{name: "length too short for a header", send: length(4, 0, 18, 0, 0), reaction: closes},
		{name: "2 GiB length", send: length(0x7fff_ffff), reaction: closes},
		{name: "length cut short", send: func(*rawConn) []byte { return []byte{0, 0} }, reaction: closes, halfClose: true},
		{name: "frame cut short", send: length(1000, 0, 3, 0, 9), reaction: closes, halfClose: true},
		{name: "TLS hello", send: func(*rawConn) []byte { return tlsHello() }, reaction: closes},
		{name: "HTTP", send: func(*rawConn) []byte { return []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n") }, reaction: closes},
		{name: "client id longer than the frame", send: length(10, 0, 3, 0, 9, 0, 0, 0, 1, 0x7f, 0xff), reaction: closes},
		{name: "unknown api key", send: length(10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff), reaction: closes, forwarded: true},
		{name: "negative api key", send: length(10, 0xff, 0xf0, 0, 0, 0, 0, 0, 1, 0xff, 0xff), reaction: closes, forwarded: true},
		{name: "Produce version too new", send: length(11, 0, 0, 0x7f, 0, 0, 0, 0, 1, 0xff, 0xff, 0), reaction: closes},
		{name: "ApiVersions version too new", send: length(11, 0, 18, 0x7f, 0, 0, 0, 0, 1, 0xff, 0xff, 0), reaction: answers},

		{name: "Produce with lying topic count", send: lyingProduce(func(body []byte) { body[1+2+4] = 0x7f }), reaction: refuses},
		{name: "Produce with lying records length", send: lyingProduce(func(body []byte) {
			at := bytes.Index(body, []byte(badInputTopic)) + len(badInputTopic) + 1 + 4
			body[at], body[at+1] = 0xff, 0x7f // longer than all that follows
		}), reaction: refuses},
		{name: "Produce with trailing bytes", send: func(c *rawConn) []byte {
			frame := append(c.frame(produceRequest(badInputTopic, 0, encodeBatch(conditional(0, "x")))), 1, 2, 3)
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
			return frame
		}, reaction: refuses},
		{name: "batch with a wrong CRC", send: produce(func() []byte {
			batch := encodeBatch(conditional(0, "x"))
			batch[len(batch)-1] ^= 1
			return batch
		}), reaction: refuses, reason: "checksum"},
		{name: "batch with a lying length", send: produce(func() []byte {
			batch := encodeBatch(conditional(0, "x"))
			binary.BigEndian.PutUint32(batch[batchLengthAt:], 0x7fff_ffff)
			return batch
		}), reaction: refuses, reason: "length"},
		{name: "batch with a lying count", send: produce(func() []byte {
			batch := encodeBatch(conditional(0, "x"))
			binary.BigEndian.PutUint32(batch[batchCountAt:], 0x7fff_ffff)
			return setCRC(batch)
		}), reaction: refuses, reason: "records"},
		{name: "record with a lying length", send: produce(func() []byte {
			return sealBatch(0, 1, binary.AppendVarint(nil, 1<<40))
		}), reaction: refuses, reason: "records"},
		{name: "batch that claims a codec it has not", send: produce(func() []byte {
			return sealBatch(4, 1, []byte("not zstd"))
		}), reaction: refuses, reason: "decompress"},
		{name: "batch with an unknown codec", send: produce(func() []byte {
			return sealBatch(7, 1, []byte("what"))
		}), reaction: refuses, reason: "codec 7"},
		{name: "zstd bomb", send: produce(func() []byte { return sealBatch(4, 1, zstdBomb(bombSize)) }), reaction: refuses, reason: "larger than the limit"},
		{name: "gzip bomb", send: produce(func() []byte { return sealBatch(1, 1, gzipBomb(bombSize)) }), reaction: refuses, reason: "larger than the limit"},
		{name: "lz4 bomb", send: produce(func() []byte { return sealBatch(3, 1, lz4Bomb(bombSize)) }), reaction: refuses, reason: "larger than the limit"},
		{name: "snappy bomb", send: produce(func() []byte { return sealBatch(2, 1, snappyBomb(bombSize/8)) }), reaction: refuses, reason: "larger than the limit"},
		{name: "snappy that declares 4 GiB", send: produce(func() []byte {
			return sealBatch(2, 1, append(binary.AppendUvarint(nil, 1<<32-1), 0, 0))
		}), reaction: refuses, reason: "larger than the limit"},
	}
}

// lyingProduce damages the body of a Produce v9 whose records are right.
func lyingProduce(damage func(body []byte)) func(*rawConn) []byte {
	return func(c *rawConn) []byte {
		frame := c.frame(produceRequest(badInputTopic, 0, encodeBatch(conditional(0, "x"))))
		header := 4 + 8 + 2 + len("e2e-raw") + 1
		damage(frame[header:])
		return frame
	}
}

func TestBadInputHarmsNobodyElse(t *testing.T) {
	if direct {
		t.Skip("tests the proxy's own defences")
	}
	p := startProxy(t, "--require", badInputTopic)
	createTopic(t, adminAt(t, p.bootstrap), badInputTopic, 1)
	neighbour := startNeighbour(t, leaderAddress(t, p, badInputTopic))
	for _, c := range badInputs() {
		t.Run(c.name, func(t *testing.T) {
			p := p
			if c.forwarded {
				requireKafka(t)
				p = startProxy(t, "--require", badInputTopic, "--log-level", "debug")
			}
			leader := leaderAddress(t, p, badInputTopic)
			_, logged := p.output.lines(0)
			client, err := c.play(leader)
			if err != nil {
				t.Error(err)
			}
			if c.reaction != answers { // a client that asks for too much is nothing to report
				waitFor(t, "log line that names "+client, 10*time.Second, func() error { return p.logged(logged, c.logLine(client)) })
			}
			neighbour.check(t)
		})
	}
	if log := readLog(t, badInputTopic, 0); len(log) != 0 {
		t.Errorf("%d bad records got into the log", len(log))
	}
}

// logLine is what an operator is told, at the default level: why the connection
// with this client ended, or which batch of it was refused and why.
func (b badInput) logLine(client string) *regexp.Regexp {
	at := regexp.QuoteMeta(client)
	if b.reason == "" {
		return regexp.MustCompile(`level=(DEBUG|INFO|WARN) .*remote=` + at + ` .*\breason=\S`)
	}
	return regexp.MustCompile(`level=WARN msg="batch refused" remote=` + at + ` topic=` + badInputTopic +
		` partition=0 .*\breason="[^"]*` + regexp.QuoteMeta(b.reason))
}

// logged wants a line like this since from.
func (p *proxyProcess) logged(from int, line *regexp.Regexp) error {
	lines, _ := p.output.lines(from)
	if slices.ContainsFunc(lines, line.MatchString) {
		return nil
	}
	return fmt.Errorf("%d lines since, none like %s:\n%s", len(lines), line, strings.Join(lines, "\n"))
}

// play sends the input on a connection of its own and returns that connection's
// address.
func (b badInput) play(address string) (client string, err error) {
	conn, err := dialRaw(address)
	if err != nil {
		return "", err
	}
	defer conn.close()
	client = conn.LocalAddr().String()
	// Well below the limits after which a proxy may give up on an idle client.
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return client, err
	}
	if _, err := conn.Write(b.send(conn)); err != nil && !isClosed(err) {
		return client, err
	}
	if b.halfClose {
		if err := conn.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			return client, err
		}
	}
	answer, err := readFrame(conn)
	switch {
	case err != nil && isClosed(err):
		if b.reaction == answers {
			return client, fmt.Errorf("connection was closed instead of an answer: %w", err)
		}
		return client, nil
	case err != nil:
		return client, fmt.Errorf("neither an answer nor a closed connection: %w", err)
	case b.reaction == closes:
		return client, fmt.Errorf("answered with %d bytes: %x", len(answer), answer[:min(64, len(answer))])
	case b.reaction == answers:
		return client, checkUnsupportedVersion(conn, answer)
	default:
		return client, checkRefused(answer)
	}
}

// isClosed reports whether the other side ended the connection, in order or by
// a reset.
func isClosed(err error) bool {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	var operation *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &operation)
}

// checkRefused wants an error code in a Produce v9 answer.
func checkRefused(answer []byte) error {
	response := kmsg.NewPtrProduceResponse()
	response.Version = 9
	if err := response.ReadFrom(answer[5:]); err != nil {
		return err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return fmt.Errorf("answer does not name the one partition: %+v", response.Topics)
	}
	code := response.Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		return errors.New("bad input was accepted")
	}
	if err := kerr.ErrorForCode(code); kerr.IsRetriable(err) && !errors.Is(err, kerr.CorruptMessage) {
		return fmt.Errorf("answer invites a retry: %w", err)
	}
	return nil
}

// checkUnsupportedVersion wants what KIP-511 says: a v0 answer with error 35,
// after which the client asks again on the same connection.
func checkUnsupportedVersion(conn *rawConn, answer []byte) error {
	response := kmsg.NewPtrApiVersionsResponse()
	if err := response.ReadFrom(answer[4:]); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); !errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("got %w, want UNSUPPORTED_VERSION", err)
	}
	if _, err := conn.roundTrip(kmsg.NewPtrApiVersionsRequest()); err != nil {
		return fmt.Errorf("second ApiVersions on the connection: %w", err)
	}
	return nil
}

// leaderAddress is where a proxy serves the leader of a topic's partition 0. A
// broker may learn of a topic later than others.
func leaderAddress(t *testing.T, p *proxyProcess, topic string) string {
	t.Helper()
	conn, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	var address string
	waitFor(t, "leader of "+topic, 30*time.Second, func() error {
		metadata, err := conn.metadata(topic)
		if err != nil {
			return err
		}
		if len(metadata.Topics) != 1 || len(metadata.Topics[0].Partitions) == 0 {
			return fmt.Errorf("not known: %+v", metadata.Topics)
		}
		leader, ok := brokerMap(metadata)[metadata.Topics[0].Partitions[0].Leader]
		if !ok {
			return errors.New("not served")
		}
		address = leader
		return nil
	})
	return address
}

// neighbour is a well-behaved client beside the bad ones: one connection, one
// request after the other.
type neighbour struct {
	served atomic.Int64
	failed chan error // one value when it fails
}

func startNeighbour(t *testing.T, address string) *neighbour {
	t.Helper()
	conn, err := dialRaw(address)
	if err != nil {
		t.Fatal(err)
	}
	n := &neighbour{failed: make(chan error, 1)}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped; conn.close() })
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if _, err := conn.metadata(badInputTopic); err != nil {
				n.failed <- err
				return
			}
			n.served.Add(1)
		}
	}()
	return n
}

// check wants requests served after the bad input.
func (n *neighbour) check(t *testing.T) {
	t.Helper()
	served := n.served.Load()
	waitFor(t, "neighbour's next answers", 10*time.Second, func() error {
		select {
		case err := <-n.failed:
			t.Fatalf("neighbour's connection broke: %v", err)
		default:
		}
		if n.served.Load() < served+2 {
			return errors.New("not served")
		}
		return nil
	})
}

// tlsHello is the start of a TLS 1.2 handshake record.
func tlsHello() []byte {
	hello := []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03}
	return append(hello, make([]byte, 506)...)
}
