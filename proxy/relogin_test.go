package proxy

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// sessionBroker lets the proxy in for a time, as Kafka does (KIP-368): after it, and
// while a login goes on, it closes the connection at any other request; and it takes
// no new login within a second of the last.
type sessionBroker struct {
	lifetime time.Duration
	token    string

	mu       sync.Mutex
	refuse   int16 // code for new logins
	logins   int   // that came to their end, the first of a connection among them
	closed   int   // connections, for what came when it must not
	keys     []int16
	holdNext bool // the next request but a login waits for release
	release  chan struct{}
}

func (b *sessionBroker) serve(c *kafkatest.Conn) {
	var until, last time.Time
	agreed := false
	for {
		r, ok := c.Next()
		if !ok {
			return
		}
		at := time.Now()
		b.mu.Lock()
		b.keys = append(b.keys, r.APIKey)
		hold := b.holdNext && r.APIKey == int16(kmsg.Fetch)
		refuse := b.refuse
		b.mu.Unlock()
		if hold {
			<-b.release
		}
		switch r.APIKey {
		case int16(kmsg.SASLHandshake):
			answer := kmsg.NewPtrSASLHandshakeResponse()
			if !until.IsZero() && !last.IsZero() && at.Sub(last) < time.Second {
				answer.ErrorCode = kerr.IllegalSaslState.Code
			} else if agreed = true; !until.IsZero() {
				last = at
			}
			c.Answer(r, answer)
		case int16(kmsg.SASLAuthenticate):
			request, err := r.Decode()
			answer := kmsg.NewPtrSASLAuthenticateResponse()
			if err != nil || !agreed || string(request.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes) != b.token || refuse != 0 && !until.IsZero() {
				answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
				c.Answer(r, answer)
				return
			}
			agreed, until = false, at.Add(b.lifetime)
			answer.SessionLifetimeMillis = b.lifetime.Milliseconds()
			b.mu.Lock()
			b.logins++
			b.mu.Unlock()
			c.Answer(r, answer)
		default:
			if agreed || at.After(until) {
				b.mu.Lock()
				b.closed++
				b.mu.Unlock()
				return
			}
			c.Answer(r, kmsg.ResponseForKey(r.APIKey))
		}
	}
}

func (b *sessionBroker) counts() (logins, closed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logins, b.closed
}

// inSessions runs a test in virtual time, of a client for whom the proxy logs in.
func inSessions(t *testing.T, lifetime time.Duration, test func(*passage, *sessionBroker)) {
	t.Helper()
	cfg := Config{Credentials: Credentials{
		Mechanism: Plain, User: "proxy", Password: func() (string, error) { return "hush", nil }, ForClients: true,
	}}
	inPassage(t, cfg, func(p *passage) {
		b := &sessionBroker{lifetime: lifetime, token: "\x00proxy\x00hush", release: make(chan struct{})}
		server := kafkatest.Serve(p.t, p.accept, b.serve)
		defer server.Close()
		test(p, b)
		_ = p.client.Close()
		<-p.ended
		if strings.Contains(p.log.String(), "hush") {
			p.t.Error("the password is in the log")
		}
	})
}

// ask sends a request and gives the correlation ids of what has been answered a
// moment later.
func (p *passage) ask(ids ...int32) []int32 {
	p.t.Helper()
	for _, id := range ids {
		request := kmsg.NewPtrListGroupsRequest()
		p.send(kafkatest.RequestFrame(id, request))
	}
	time.Sleep(2 * time.Second) // virtual
	var got []int32
	for b := p.answered(); len(b) >= 8; b = b[4+binary.BigEndian.Uint32(b):] {
		got = append(got, int32(binary.BigEndian.Uint32(b[4:])))
	}
	return got
}

// A client that asks again and again, or not for long, notices nothing of sessions
// that end.
func TestLoginForAClientIsRenewed(t *testing.T) {
	for _, lifetime := range []time.Duration{time.Second, 4 * time.Second, 10 * time.Second} {
		inSessions(t, lifetime, func(p *passage, b *sessionBroker) {
			for id := int32(1); id <= 20; id++ {
				if got := p.ask(id); !slices.Equal(got, []int32{id}) {
					p.t.Fatalf("lifetime %s, request %d: got answers %v\n%s", lifetime, id, got, p.log)
				}
				if id == 10 {
					time.Sleep(time.Hour)
				}
			}
			logins, closed := b.counts()
			if least := int(40 * time.Second / lifetime / 2); closed != 0 || logins < max(least, 3) {
				p.t.Errorf("lifetime %s: got %d logins and %d closed connections, want %d or more and none", lifetime, logins, closed, least)
			}
		})
	}
}

// The twin: a broker closes the connection of a client for whom nobody logs in anew.
func TestLoginThatIsNotRenewedEnds(t *testing.T) {
	inSessions(t, 4*time.Second, func(p *passage, b *sessionBroker) {
		if got := p.ask(1); !slices.Equal(got, []int32{1}) {
			p.t.Fatalf("got answers %v", got)
		}
		p.conn.term = loginTerm{} // the clientLoop waits for the client
		time.Sleep(10 * time.Second)
		if got := p.ask(2); got != nil {
			p.t.Errorf("got answers %v, want none", got)
		}
		if _, closed := b.counts(); closed != 1 {
			p.t.Errorf("got %d closed connections, want 1", closed)
		}
	})
}

// Answers keep their order around a new login, and what comes meanwhile waits.
func TestNewLoginWaitsForWhatWasAskedBefore(t *testing.T) {
	inSessions(t, 8*time.Second, func(p *passage, b *sessionBroker) {
		b.holdNext = true
		fetch := kmsg.NewPtrFetchRequest()
		fetch.Version = 4
		p.send(kafkatest.RequestFrame(1, fetch))
		time.Sleep(7 * time.Second) // a login is due
		if got := p.ask(2, 3); got != nil {
			p.t.Fatalf("got answers %v before the first", got)
		}
		close(b.release)
		synctest.Wait()
		p.wantAnswers(1, 2, 3)
		if logins, closed := b.counts(); logins != 2 || closed != 0 {
			p.t.Errorf("got %d logins and %d closed connections, want 2 and none", logins, closed)
		}
	})
}

// A new login that is refused ends the connection, as a broker that is lost does.
func TestNewLoginThatIsRefused(t *testing.T) {
	inSessions(t, 4*time.Second, func(p *passage, b *sessionBroker) {
		if got := p.ask(1); !slices.Equal(got, []int32{1}) {
			p.t.Fatalf("got answers %v", got)
		}
		b.mu.Lock()
		b.refuse = kerr.SaslAuthenticationFailed.Code
		b.keys = nil
		b.mu.Unlock()
		time.Sleep(3 * time.Second)
		if got := p.ask(2); got != nil {
			p.t.Errorf("got answers %v, want none", got)
		}
		<-p.ended
		if !strings.Contains(p.log.String(), "brokers do not let the proxy in") {
			p.t.Errorf("the log does not say why:\n%s", p.log)
		}
		if want := []int16{int16(kmsg.SASLHandshake), int16(kmsg.SASLAuthenticate)}; !slices.Equal(b.keys, want) {
			p.t.Errorf("got requests %v, want %v: what was not let in is not sent", b.keys, want)
		}
	})
}

// Whoever drives an exchange waits for nothing, so where a login is due that is its
// clientLoop's to do: nothing is sent before.
func TestDriverLeavesALoginThatIsDueToTheClientLoop(t *testing.T) {
	for _, due := range []bool{true, false} {
		l := newLeader(t, "fenced")
		r := newFencedRig(t, Config{}, l)
		near, far := net.Pipe()
		c := newConn(r.Proxy, near, r.Proxy.topology.entrances[0], 0)
		c.term = loginTerm{lasts: time.Hour, begun: instant()}
		if due {
			c.term.begun = instant().Add(-time.Hour)
		}
		x := makeExchange(1)
		x.c, x.signal, x.attention, x.held = c, c.changed, driven, 1
		x.via = ownUpstream{c}
		x.drive(now(), nil)
		if got := x.attention == attended; got != due {
			t.Errorf("due %v: got the clientLoop woken: %v", due, got)
		}
		if due {
			<-x.signal
		}
		c.cancel(errAborted)
		_, _ = near.Close(), far.Close()
	}
}
