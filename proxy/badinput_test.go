package proxy_test

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func header(key, version uint16, rest ...byte) []byte {
	frame := kafkatest.Length(uint32(8 + len(rest)))
	frame = binary.BigEndian.AppendUint16(frame, key)
	frame = binary.BigEndian.AppendUint16(frame, version)
	return append(append(frame, 0, 0, 0, 1), rest...)
}

func TestBadInputClosesItsConnectionOnly(t *testing.T) {
	tests := []struct {
		name, reason, metric string
		input                []byte
	}{
		{"negative length", "negative frame length -1", "length", []byte{0xff, 0xff, 0xff, 0xff}},
		{"zero length", "frame length is zero", "length", []byte{0, 0, 0, 0}},
		{"2 GiB", "above the limit", "too_large", kafkatest.Length(1<<31 - 1)},
		{"TLS hello", "looks like TLS on a plain port", "tls", []byte("\x16\x03\x01\x02\x00\x01\x00")},
		{"TLS alert", "looks like TLS on a plain port", "tls", []byte("\x15\x03\x03\x00\x02\x02\x28")},
		{"HTTP GET", "looks like HTTP on a Kafka port", "http", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"HTTP POST", "looks like HTTP on a Kafka port", "http", []byte("POST /topics HTTP/1.1\r\n\r\n")},
		{"HTTP answer", "looks like HTTP on a Kafka port", "http", []byte("HTTP/1.1 400 Bad Request\r\n\r\n")},
		{"HTTP/2 preface", "looks like HTTP on a Kafka port", "http", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"short header", "header is truncated", "header", append(kafkatest.Length(7), make([]byte, 7)...)},
		{"client id beyond the frame", "header is truncated", "header", header(3, 1, 0x7f, 0xff, 'x')},
		{"negative client id", "header is truncated", "header", header(3, 1, 0x80, 0x00)},
		{"tags beyond the frame", "header is truncated", "header", header(3, 9, 0xff, 0xff, 0x05)},
		{"Produce without acks", "acks", "produce", header(0, 2, 0xff, 0xff)},
		{"Produce whose transactional id lies", "header is truncated", "produce", header(0, 9, 0xff, 0xff, 0, 0xff, 0x7f, 0, 0)},
		{"Produce of a version to come", "api key 0 version 14", "version", header(0, 14, 0xff, 0xff, 0)},
		{"negative version", "api key 3 version -1", "version", header(3, 0xffff, 0xff, 0xff)},
		{"Fetch of a version that has addresses", "api key 1 version 16", "version", header(1, 16, 0xff, 0xff, 0)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := scripted(t, proxy.Config{}, echo)
			other := kafkatest.Dial(t, p.Addr())
			other.Send(1, listGroups())
			other.Next()

			c := kafkatest.Dial(t, p.Addr())
			c.SendBytes(test.input)
			if got := c.ExpectClosed(); len(got) != 0 {
				t.Errorf("got an answer: %x", got)
			}
			p.awaitLog(test.reason)
			if got := p.log.count("level=WARN") - p.log.count("limit="); got != 1 {
				t.Errorf("got %d warnings besides those of limits, want 1", got)
			}
			if got := p.metric("offsetproxy.input.malformed", test.metric); got != 1 {
				t.Errorf("metric: got %d, want 1", got)
			}
			other.Send(2, listGroups())
			if got := other.NextID(); got != 2 {
				t.Errorf("the other connection got an answer to %d, want 2", got)
			}
		})
	}
}

func TestRequestsBeforeBadInputAreAnswered(t *testing.T) {
	p := scripted(t, proxy.Config{}, echo)
	c := kafkatest.Dial(t, p.Addr())
	// What follows the bad length is never parsed, but must not turn the close
	// into a reset, which would take the answers with it.
	unread := make([]byte, 8<<20)
	c.SendBytes(slices.Concat(kafkatest.RequestFrame(1, listGroups()), kafkatest.RequestFrame(2, listGroups()), []byte{0xff, 0, 0, 0}, unread))
	for _, want := range []int32{1, 2} {
		if got := c.NextID(); got != want {
			t.Errorf("got an answer to %d, want %d", got, want)
		}
	}
	if _, err := io.ReadAll(c.Conn); err != nil {
		t.Errorf("the connection was not closed in order: %v", err)
	}
}

func TestOldSASLHandshakeIsRefused(t *testing.T) {
	p := scripted(t, proxy.Config{}, echo)
	c := kafkatest.Dial(t, p.Addr())
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = "PLAIN"
	c.Send(1, handshake)
	answer := kmsg.NewPtrSASLHandshakeResponse()
	c.Expect(1, answer)
	if got, want := answer.ErrorCode, kerr.UnsupportedVersion.Code; got != want {
		t.Errorf("error code: got %d, want %d", got, want)
	}
	c.ExpectClosed()
	p.awaitLog("SaslHandshake v0 is not supported")
}

func TestSlowFirstRequestIsBounded(t *testing.T) {
	p := scripted(t, proxy.Config{HandshakeTimeout: 50 * time.Millisecond}, echo)
	silent := kafkatest.Dial(t, p.Addr())
	dripping := kafkatest.Dial(t, p.Addr())
	dripping.SendBytes(kafkatest.RequestFrame(1, listGroups())[:9])
	quick := kafkatest.Dial(t, p.Addr())
	quick.Send(1, listGroups())
	quick.Next()
	silent.ExpectClosed()
	dripping.ExpectClosed()
	if got := p.metric("offsetproxy.input.malformed", "handshake_timeout"); got != 2 {
		t.Errorf("metric: got %d, want 2", got)
	}
	// One that has made its first request may be as slow as it likes.
	quick.Send(2, listGroups())
	if got := quick.NextID(); got != 2 {
		t.Errorf("got an answer to %d, want 2", got)
	}
}
