package proxy_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/internal/localusers"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// localLogin has anna and bert log in, whose passwords are their names and -secret.
func localLogin(t testing.TB, lifetime time.Duration) *proxy.LocalLogin {
	t.Helper()
	file := t.TempDir() + "/users.yaml"
	if err := os.WriteFile(file, []byte("anna: {password: anna-secret}\nbert: {password: bert-secret}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := localusers.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return &proxy.LocalLogin{
		Mechanisms: proxy.PasswordMechanisms(), Lifetime: lifetime,
		Begin: func(m proxy.Mechanism) proxy.LoginSession { return store.Begin(localusers.Mechanism(m)) },
	}
}

// gateway is a configuration at whose only listener users log in.
func gateway(login *proxy.LocalLogin) proxy.Config {
	return proxy.Config{Listeners: []proxy.Listener{{Name: "gate", Listen: "127.0.0.1:0", Login: login}}}
}

// startGateway runs a proxy whose own broker asks for a login too.
func startGateway(t *testing.T, lifetime time.Duration) *running {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "seeded"), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "proxy", secret))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cfg := gateway(localLogin(t, lifetime))
	cfg.Listen = "127.0.0.1:0" // another, where nobody logs in
	cfg.Bootstrap, cfg.Credentials = cluster.ListenAddrs(), credentials(proxy.ScramSHA256)
	cfg.Credentials.ForClients = true
	p := start(t, cfg)
	t.Cleanup(func() {
		for _, word := range []string{secret, "anna-secret", "bert-secret"} {
			if p.log.count(word) > 0 {
				t.Errorf("the password %s is in the log", word)
			}
		}
	})
	return p
}

func (r *running) gate() string { return r.Serving()[1].Addr }

func mechanismOf(m proxy.Mechanism, user, password string) sasl.Mechanism {
	switch m {
	case proxy.Plain:
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case proxy.ScramSHA256:
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	}
	return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
}

// Clients without secrets, and users of the proxy's own, produce to a broker that
// lets in the proxy alone.
func TestProxyLogsInForClients(t *testing.T) {
	p := startGateway(t, 0)
	produce := func(address string, options ...kgo.Opt) error {
		t.Helper()
		client, err := kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return client.ProduceSync(ctx, &kgo.Record{Topic: "seeded", Value: []byte("v")}).FirstErr()
	}
	if err := produce(p.Addr()); err != nil {
		t.Errorf("without a login: %v", err)
	}
	for _, m := range proxy.PasswordMechanisms() {
		if err := produce(p.gate(), kgo.SASL(mechanismOf(m, "anna", "anna-secret"))); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if err := produce(p.gate(), kgo.SASL(mechanismOf(m, "anna", "bert-secret")), kgo.RecordRetries(1)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s with a wrong password: got %v, want SASL_AUTHENTICATION_FAILED", m, err)
		}
	}
	if p.metric("offsetproxy.logins", "ok") < 3 || p.metric("offsetproxy.logins", "refused") < 3 || p.metric("offsetproxy.upstream.logins", "ok") < 4 {
		t.Error("logins are not counted")
	}
	if p.log.count("level=ERROR") > 0 {
		t.Error("something went wrong")
	}
}

// A client that logs in where the proxy does it for clients is told so in words.
func TestClientNeedNotLogIn(t *testing.T) {
	p := startGateway(t, 0)
	c := kafkatest.Dial(t, p.Addr())
	handshake := versioned(kmsg.NewPtrSASLHandshakeRequest(), 1)
	handshake.Mechanism = "PLAIN"
	c.Send(1, versioned(kmsg.NewPtrApiVersionsRequest(), 0), handshake)
	if got := c.NextID(); got != 1 {
		t.Errorf("got an answer to %d first, want 1", got)
	}
	answer := answerOf(kmsg.NewPtrSASLHandshakeResponse(), 1)
	c.Expect(2, answer)
	if answer.ErrorCode != kerr.IllegalSaslState.Code || len(answer.SupportedMechanisms) != 1 || !strings.Contains(answer.SupportedMechanisms[0], "connect without SASL") {
		t.Errorf("got %+v", answer)
	}
	c.ExpectClosed()
	c = kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrSASLAuthenticateRequest(), 2))
	authenticated := answerOf(kmsg.NewPtrSASLAuthenticateResponse(), 2)
	c.Expect(1, authenticated)
	if authenticated.ErrorCode != kerr.IllegalSaslState.Code || authenticated.ErrorMessage == nil || !strings.Contains(*authenticated.ErrorMessage, "connect without SASL") {
		t.Errorf("got %+v", authenticated)
	}
	c.ExpectClosed()
	p.awaitLog("configure the client without SASL")
}

func answerOf[R kmsg.Response](r R, version int16) R {
	r.SetVersion(version)
	return r
}

// handshakeFor asks for a mechanism and gives the answer.
func handshakeFor(c *kafkatest.Client, mechanism string) *kmsg.SASLHandshakeResponse {
	request := versioned(kmsg.NewPtrSASLHandshakeRequest(), 1)
	request.Mechanism = mechanism
	c.Send(1, request)
	answer := answerOf(kmsg.NewPtrSASLHandshakeResponse(), 1)
	c.Expect(1, answer)
	return answer
}

func authenticate(c *kafkatest.Client, version int16, token string) *kmsg.SASLAuthenticateResponse {
	request := versioned(kmsg.NewPtrSASLAuthenticateRequest(), version)
	request.SASLAuthBytes = []byte(token)
	c.Send(2, request)
	answer := answerOf(kmsg.NewPtrSASLAuthenticateResponse(), version)
	c.Expect(2, answer)
	return answer
}

// Before a client has logged in, nothing but that can be done; nor within a login.
func TestWhatComesBeforeALogin(t *testing.T) {
	p := startGateway(t, 0)
	for name, send := range map[string]func(*kafkatest.Client){
		"another request":       func(c *kafkatest.Client) { c.Send(1, listGroups()) },
		"within a login":        func(c *kafkatest.Client) { handshakeFor(c, "PLAIN"); c.Send(2, listGroups()) },
		"a second handshake":    func(c *kafkatest.Client) { handshakeFor(c, "PLAIN"); handshakeFor(c, "PLAIN") },
		"a large request":       func(c *kafkatest.Client) { c.SendBytes(kafkatest.Length(1 << 20)) },
		"a token that is none":  func(c *kafkatest.Client) { handshakeFor(c, "PLAIN"); authenticate(c, 1, "x") },
		"no handshake":          func(c *kafkatest.Client) { authenticate(c, 1, "x") },
		"another mechanism":     func(c *kafkatest.Client) { handshakeFor(c, "GSSAPI") },
		"an unknown version":    func(c *kafkatest.Client) { c.Send(1, versioned(kmsg.NewPtrSASLAuthenticateRequest(), 9)) },
		"a handshake of nobody": func(c *kafkatest.Client) { c.SendBytes([]byte{0, 0, 0, 11, 0, 17, 0, 1, 0, 0, 0, 1, 0, 0, 9}) },
	} {
		c := kafkatest.Dial(t, p.gate())
		send(c)
		if rest := c.ExpectClosed(); len(rest) > 0 {
			t.Errorf("%s: got %x, want the connection closed", name, rest)
		}
	}
	if got := p.metric("offsetproxy.requests", "ListGroups"); got != 2 {
		t.Fatalf("got %d requests, want 2", got)
	}
	// The same connections with a login go on.
	c := kafkatest.Dial(t, p.gate())
	if answer := handshakeFor(c, "GSSAPI"); answer.ErrorCode != kerr.UnsupportedSaslMechanism.Code || len(answer.SupportedMechanisms) != 3 {
		t.Errorf("got %+v, want the mechanisms", answer)
	}
	for version := range int16(3) {
		c := kafkatest.Dial(t, p.gate())
		if answer := handshakeFor(c, "PLAIN"); answer.ErrorCode != 0 {
			t.Fatalf("got %+v", answer)
		}
		if answer := authenticate(c, version, "\x00anna\x00anna-secret"); answer.ErrorCode != 0 || answer.SessionLifetimeMillis != 0 {
			t.Fatalf("version %d: got %+v", version, answer)
		}
		c.Send(3, listGroups())
		if got := c.NextID(); got != 3 {
			t.Errorf("got an answer to %d, want 3", got)
		}
	}
	c = kafkatest.Dial(t, p.gate())
	handshakeFor(c, "PLAIN")
	answer := authenticate(c, 1, "\x00anna\x00wrong")
	if answer.ErrorCode != kerr.SaslAuthenticationFailed.Code || answer.ErrorMessage == nil {
		t.Errorf("got %+v", answer)
	}
	c.ExpectClosed()
	p.awaitLog("client did not log in")
}

// Who connects and does not log in is not kept, whatever else it asks.
func TestHandshakeTimeoutLastsUntilTheLogin(t *testing.T) {
	cfg := gateway(localLogin(t, 0))
	cfg.HandshakeTimeout = 100 * time.Millisecond
	p := scripted(t, cfg, echo)
	c := kafkatest.Dial(t, p.gate())
	c.Send(1, versioned(kmsg.NewPtrApiVersionsRequest(), 0))
	c.NextID()
	c.ExpectClosed()
	p.awaitLog("no login within")
}

// endlessLogin comes to no end of its own.
type endlessLogin chan struct{}

func (l endlessLogin) Step(ctx context.Context, _ []byte) ([]byte, string, error) {
	close(l)
	<-ctx.Done()
	return nil, "", ctx.Err()
}

// A login that takes too long, since many others log in, ends at handshake_timeout, and
// with the proxy.
func TestLoginThatTakesTooLong(t *testing.T) {
	for timeout, end := range map[time.Duration]func(*running){
		100 * time.Millisecond: func(p *running) { p.awaitLog("since many others log in") },
		time.Hour:              func(p *running) { p.stop() },
	} {
		begun := make(endlessLogin)
		cfg := gateway(&proxy.LocalLogin{Mechanisms: proxy.PasswordMechanisms(), Begin: func(proxy.Mechanism) proxy.LoginSession { return begun }})
		cfg.HandshakeTimeout, cfg.DrainTimeout = timeout, 100*time.Millisecond
		p := scripted(t, cfg, echo)
		c := kafkatest.Dial(t, p.gate())
		handshakeFor(c, "PLAIN")
		request := versioned(kmsg.NewPtrSASLAuthenticateRequest(), 1)
		request.SASLAuthBytes = []byte("x")
		c.Send(2, request)
		<-begun
		end(p)
		c.ExpectClosed()
	}
}

// A login that has ended must be renewed before anything else, by the same user and
// mechanism.
func TestSessionLifetime(t *testing.T) {
	p := startGateway(t, time.Second)
	login := func(c *kafkatest.Client, user string) *kmsg.SASLAuthenticateResponse {
		t.Helper()
		if answer := handshakeFor(c, "PLAIN"); answer.ErrorCode != 0 {
			t.Fatalf("got %+v", answer)
		}
		return authenticate(c, 2, "\x00"+user+"\x00"+user+"-secret")
	}
	enter := func() *kafkatest.Client {
		c := kafkatest.Dial(t, p.gate())
		if answer := login(c, "anna"); answer.ErrorCode != 0 || answer.SessionLifetimeMillis != 1000 {
			t.Fatalf("got %+v, want a session of 1000 ms", answer)
		}
		return c
	}
	over, renewed, other, otherway := enter(), enter(), enter(), enter()
	<-time.After(1100 * time.Millisecond) // the lifetime is what is tested
	over.Send(3, listGroups())
	over.ExpectClosed()
	if answer := login(renewed, "anna"); answer.ErrorCode != 0 {
		t.Errorf("got %+v", answer)
	}
	renewed.Send(3, listGroups())
	if got := renewed.NextID(); got != 3 {
		t.Errorf("got an answer to %d, want 3", got)
	}
	if answer := login(other, "bert"); answer.ErrorCode != kerr.SaslAuthenticationFailed.Code {
		t.Errorf("another user: got %+v", answer)
	}
	other.ExpectClosed()
	if answer := handshakeFor(otherway, "SCRAM-SHA-256"); answer.ErrorCode != kerr.UnsupportedSaslMechanism.Code {
		t.Errorf("another mechanism: got %+v", answer)
	}
	otherway.ExpectClosed()
}

// Without users, nobody is let in.
func TestNobodyIsLetInWithoutUsers(t *testing.T) {
	p := scripted(t, gateway(&proxy.LocalLogin{Mechanisms: proxy.PasswordMechanisms()}), echo)
	c := kafkatest.Dial(t, p.gate())
	handshakeFor(c, "PLAIN")
	if answer := authenticate(c, 2, "\x00anna\x00anna-secret"); answer.ErrorCode != kerr.SaslAuthenticationFailed.Code {
		t.Errorf("got %+v", answer)
	}
	c.ExpectClosed()
}

func TestLocalLoginsThatCannotBe(t *testing.T) {
	for field, login := range map[string]proxy.LocalLogin{
		"Listeners[0].Login.Mechanisms": {},
		"Listeners[0].Login.Lifetime":   {Mechanisms: proxy.PasswordMechanisms(), Lifetime: time.Millisecond},
	} {
		cfg := gateway(&login)
		cfg.Bootstrap = []string{"b:1"}
		var bad *proxy.ConfigError
		if _, err := cfg.InForce(); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("got %v, want a *ConfigError for %s", err, field)
		}
	}
	cfg := gateway(&proxy.LocalLogin{Mechanisms: []proxy.Mechanism{proxy.OAuthBearer}})
	cfg.Bootstrap = []string{"b:1"}
	if _, err := cfg.InForce(); !errors.Is(err, proxy.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

// FuzzLocalLogin sends tokens through a connection, after which others must still be
// let in, and nobody without a password.
func FuzzLocalLogin(f *testing.F) {
	for mechanism := range byte(3) {
		f.Add(mechanism, byte(1), []byte("\x00anna\x00x"), []byte{}, false)
		f.Add(mechanism, byte(2), []byte("n,,n=anna,r=abc"), []byte("c=biws,r=abc,p="+strings.Repeat("A", 43)+"="), true)
	}
	login := localLogin(f, time.Hour)
	f.Fuzz(func(t *testing.T, mechanism, version byte, first, second []byte, again bool) {
		if strings.Contains(string(first), "-secret") || len(first)+len(second) > 32<<10 {
			t.Skip()
		}
		p := scripted(t, gateway(login), echo)
		c := kafkatest.Dial(t, p.gate())
		handshake := versioned(kmsg.NewPtrSASLHandshakeRequest(), 1)
		handshake.Mechanism = string(proxy.PasswordMechanisms()[mechanism%3])
		requests := []kmsg.Request{handshake}
		for _, token := range [][]byte{first, second} {
			request := versioned(kmsg.NewPtrSASLAuthenticateRequest(), int16(version%3))
			request.SASLAuthBytes = token
			requests = append(requests, request)
			if again {
				requests = append(requests, handshake)
			}
		}
		c.Send(1, append(requests, listGroups())...)
		c.ExpectClosed()
		if got := p.metric("offsetproxy.logins", "ok"); got != 0 {
			t.Errorf("let in by %q, %q", first, second)
		}
		other := kafkatest.Dial(t, p.gate())
		handshakeFor(other, "PLAIN")
		if answer := authenticate(other, 2, "\x00anna\x00anna-secret"); answer.ErrorCode != 0 {
			t.Errorf("another is not let in: %+v", answer)
		}
	})
}
