package proxy_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// secured runs a proxy with a second listener in TLS, and gives a way to its clients.
func secured(t *testing.T, cfg proxy.Config, script func(c *kafkatest.Conn, r kafkatest.Request) bool) (*running, func() *kafkatest.Client) {
	t.Helper()
	ca := certtest.NewAuthority(t, "authority")
	cfg.Listeners = append(cfg.Listeners, proxy.Listener{Name: "secured", Listen: "127.0.0.1:0",
		TLS: &tls.Config{Certificates: []tls.Certificate{ca.Sign(time.Hour, "127.0.0.1")}}})
	p := scripted(t, cfg, script)
	return p, func() *kafkatest.Client {
		return kafkatest.DialTLS(t, p.Serving()[1].Addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	}
}

// fetches answers each request with so many bytes, and tells of each that the proxy has
// taken in.
func fetches(size int, taken chan<- int) func(c *kafkatest.Conn, r kafkatest.Request) bool {
	body := make([]byte, size)
	return func(c *kafkatest.Conn, r kafkatest.Request) bool {
		if r.APIKey != int16(kmsg.Fetch) {
			return echo(c, r)
		}
		if _, err := c.Write(kafkatest.AnswerFrame(r, body)); err != nil {
			return false
		}
		taken <- 1
		return true
	}
}

func TestClientInTLSThatTakesNothingIsCutOff(t *testing.T) {
	for name, size := range map[string]int{"streamed": 64 << 20, "many_small_ones": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			answers := 64 << 20 / size
			p, dial := secured(t, proxy.Config{WriteTimeout: 100 * time.Millisecond}, fetches(size, make(chan int, answers)))
			c := dial()
			for i := range int32(answers) {
				c.Send(i, versioned(kmsg.NewPtrFetchRequest(), 4))
			}
			await(t, "the limit is hit", func() bool { return p.metric("offsetproxy.limits.hit", "write_timeout") == 1 })
			p.awaitLog("a client takes no answers")
			await(t, "the connection ends", func() bool { return p.metric("offsetproxy.connections.open", "") == 0 })
			// Others are served.
			other := dial()
			other.Send(7, listGroups())
			if got := other.NextID(); got != 7 {
				t.Errorf("got an answer to %d, want 7", got)
			}
		})
	}
}

// The twin: who takes nothing for less than the limit gets everything.
func TestClientInTLSThatPausesIsServedOn(t *testing.T) {
	const answers, size = 64, 1 << 20
	taken := make(chan int, answers)
	p, dial := secured(t, proxy.Config{}, fetches(size, taken))
	c := dial()
	for i := range int32(answers) {
		c.Send(i, versioned(kmsg.NewPtrFetchRequest(), 4))
	}
	last, since := len(taken), time.Now()
	await(t, "the broker is held back", func() bool {
		if got := len(taken); got != last {
			last, since = got, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	if len(taken) == answers {
		t.Fatal("all answers have left the broker, so nothing waited for the client")
	}
	for want := range int32(answers) {
		if got := c.NextID(); got != want {
			t.Fatalf("got an answer to %d, want %d", got, want)
		}
	}
	if got := p.metric("offsetproxy.limits.hit", "write_timeout"); got != 0 {
		t.Errorf("the limit was hit %d times", got)
	}
}

// A client in TLS that takes little by little is not cut off, though all together takes
// longer than a write may wait.
func TestSlowClientInTLSIsServedOn(t *testing.T) {
	const size = 32 << 20
	p, dial := secured(t, proxy.Config{WriteTimeout: 300 * time.Millisecond}, fetches(size, make(chan int, 1)))
	c := dial()
	c.Send(1, versioned(kmsg.NewPtrFetchRequest(), 4))
	read := make([]byte, 4<<20)
	for left := size + 8; left > 0; {
		n, err := io.ReadFull(c, read[:min(left, len(read))])
		if left -= n; err != nil {
			t.Fatalf("%d bytes before the end: %v", left, err)
		}
		time.Sleep(60 * time.Millisecond) // as slow clients do
	}
	if got := p.metric("offsetproxy.limits.hit", "write_timeout"); got != 0 {
		t.Errorf("the limit was hit %d times", got)
	}
}

// deafConn is a client's side of a connection that takes nothing.
type deafConn struct {
	net.Conn
	ended chan struct{} // closed with the test
}

func (d deafConn) Read([]byte) (int, error) {
	<-d.ended
	return 0, io.EOF
}

// A server's part of the handshake may be long, and its client has to take it in time.
func TestClientThatTakesNoHandshakeIsCutOff(t *testing.T) {
	ca := certtest.NewAuthority(t, "authority")
	cert := ca.Sign(time.Hour, "127.0.0.1")
	for len(bytes.Join(cert.Certificate, nil)) < 7<<20 { // more than sockets take in
		cert.Certificate = append(cert.Certificate, cert.Certificate...)
	}
	p := scripted(t, proxy.Config{HandshakeTimeout: 300 * time.Millisecond, Listeners: []proxy.Listener{
		{Name: "secured", Listen: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
	}}, echo)
	conn, err := net.Dial("tcp", p.Serving()[1].Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deaf := deafConn{conn, make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- tls.Client(deaf, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}).Handshake()
	}()
	p.awaitLog("no TLS handshake in time")
	await(t, "the connection ends", func() bool { return p.metric("offsetproxy.connections.open", "") == 0 })
	close(deaf.ended)
	if err := <-ended; err == nil {
		t.Error("the handshake has succeeded")
	}
}

// A client that does not know our authority, and one that connects to a name that the
// certificate lacks, are told of as what they are; who only tries TLS by hand warns nobody.
func TestClientThatRefusesTheCertificateIsToldOf(t *testing.T) {
	p, _ := secured(t, proxy.Config{}, echo)
	at := p.Serving()[1].Addr
	for _, client := range []*tls.Config{{RootCAs: certtest.NewAuthority(t, "another").Pool(), ServerName: "127.0.0.1"}, {ServerName: "elsewhere.test"}} {
		if conn, err := tls.Dial("tcp", at, client); err == nil {
			conn.Close()
			t.Error("the certificate is taken")
		}
	}
	const refuses = "the client refuses the certificate of this listener (remote error: tls: "
	await(t, "both are logged", func() bool { return p.log.count(refuses) == 2 })
	if got := p.metric("offsetproxy.input.malformed", "tls_handshake"); got != 2 {
		t.Errorf("metric: got %d, want 2", got)
	}
	before := p.log.count("level=WARN")
	conn, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true}) // as openssl s_client
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		t.Error(err)
	}
	conn.Close()
	p.awaitLog("closed within the first request")
	if got := p.log.count("level=WARN") - before; got != 0 {
		t.Errorf("got %d warnings of who closes at once, want none", got)
	}
}
