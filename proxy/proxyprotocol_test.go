package proxy_test

import (
	"crypto/tls"
	"net/netip"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// balanced runs a proxy whose second listener expects PROXY headers.
func balanced(t *testing.T, cfg proxy.Config, l proxy.Listener) (*running, string) {
	t.Helper()
	l.Name, l.Listen = "balanced", "127.0.0.1:0"
	if l.ProxyProtocol == nil {
		l.ProxyProtocol = &proxy.ProxyProtocol{}
	}
	cfg.Listeners = append(cfg.Listeners, l)
	p := scripted(t, cfg, echo)
	return p, p.Serving()[1].Addr
}

const v1Header = "PROXY TCP4 192.0.2.7 192.0.2.1 4711 9092\r\n"

func TestClientsBehindABalancer(t *testing.T) {
	p, at := balanced(t, proxy.Config{MaxConnectionsPerAddress: 1}, proxy.Listener{})
	first := kafkatest.Dial(t, at)
	first.SendBytes([]byte(v1Header))
	first.Send(1, listGroups())
	if got := first.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
	// The header's address is what is counted, and logged.
	second := kafkatest.Dial(t, at)
	second.SendBytes([]byte(v1Header))
	second.ExpectClosed()
	p.awaitLog("remote=192.0.2.7:4711")
	other := kafkatest.Dial(t, at)
	other.SendBytes([]byte("PROXY TCP4 192.0.2.8 192.0.2.1 4711 9092\r\n"))
	other.Send(1, listGroups())
	other.Next()
	_ = first.Close()
	await(t, "room again", func() bool { return p.metric("offsetproxy.connections.open", "") == 1 })
	third := kafkatest.Dial(t, at)
	third.SendBytes(append([]byte(v1Header), kafkatest.RequestFrame(3, listGroups())...))
	if got := third.NextID(); got != 3 {
		t.Errorf("header and request at once: got an answer to %d, want 3", got)
	}
}

func TestNoHeaderIsClosed(t *testing.T) {
	p, at := balanced(t, proxy.Config{HandshakeTimeout: 200 * time.Millisecond}, proxy.Listener{})
	c := kafkatest.Dial(t, at)
	c.Send(1, listGroups())
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("answered %x", rest)
	}
	p.awaitLog("no PROXY header comes first")
	slow := kafkatest.Dial(t, at)
	slow.SendBytes([]byte("PROXY TCP4"))
	slow.ExpectClosed()
	p.awaitLog("no PROXY header in time")
	if got := p.metric("offsetproxy.input.malformed", "proxy_protocol"); got != 1 {
		t.Errorf("malformed: got %d, want 1", got)
	}
	// At the other listener none is expected.
	plain := kafkatest.Dial(t, p.Addr())
	plain.Send(2, listGroups())
	plain.Next()
}

func TestHeaderOfAnybodyIsNotBelieved(t *testing.T) {
	p, at := balanced(t, proxy.Config{}, proxy.Listener{ProxyProtocol: &proxy.ProxyProtocol{From: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	c := kafkatest.Dial(t, at)
	c.SendBytes([]byte(v1Header))
	c.ExpectClosed()
	await(t, "it is counted", func() bool { return p.metric("offsetproxy.input.malformed", "proxy_protocol_from") == 1 })
}

func TestHeaderComesBeforeTLS(t *testing.T) {
	ca := certtest.NewAuthority(t, "authority")
	_, at := balanced(t, proxy.Config{}, proxy.Listener{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Sign(time.Hour, "127.0.0.1")}}})
	c := kafkatest.Dial(t, at)
	c.SendBytes([]byte(v1Header))
	secured := tls.Client(c.Conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	if _, err := secured.Write(kafkatest.RequestFrame(1, listGroups())); err != nil {
		t.Fatal(err)
	}
	_ = secured.SetReadDeadline(time.Now().Add(patience))
	if n, err := secured.Read(make([]byte, 100)); n == 0 || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}
