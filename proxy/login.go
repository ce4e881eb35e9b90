package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Mechanism is how the proxy proves to brokers who it is (SASL).
type Mechanism string

const (
	// NoLogin is for brokers that do not ask.
	NoLogin Mechanism = ""
	// Plain sends user and password (RFC 4616): for encrypted connections, or
	// networks where nobody listens.
	Plain Mechanism = "PLAIN"
	// ScramSHA256 proves the password without sending it (RFC 7677).
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	// ScramSHA512 is ScramSHA256 with a longer hash.
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	// OAuthBearer shows a token that somebody else has issued (RFC 7628, KIP-255):
	// for encrypted connections.
	OAuthBearer Mechanism = "OAUTHBEARER"
)

// PasswordMechanisms lists those by which a user shows a password.
func PasswordMechanisms() []Mechanism { return []Mechanism{Plain, ScramSHA256, ScramSHA512} }

// Mechanisms lists those by which the proxy can log in.
func Mechanisms() []Mechanism { return append(PasswordMechanisms(), OAuthBearer) }

// Credentials are the proxy's own: with them it logs in on the connections by
// which it finds the brokers and reads views. Clients log in by themselves, and
// what they say passes through untouched, unless ForClients is set.
type Credentials struct {
	// Mechanism; zero: NoLogin.
	Mechanism Mechanism
	// User is the name of the proxy's principal. With OAuthBearer the token says who
	// it is, and User is empty.
	User string
	// Password gives the password, or the token of OAuthBearer, each time that a
	// connection logs in, so that it can be changed while the proxy runs. It is called
	// from several goroutines. What it returns is never logged.
	Password func() (string, error)
	// ForClients has the proxy log in, with these credentials, on the upstream
	// connection of each client too, so that clients need none: brokers know all of
	// them as the proxy's principal. Where users log in at the proxy itself is
	// Listener.Login's.
	ForClients bool
}

// LoginError says that a broker did not let the proxy in.
type LoginError struct {
	// Mechanism and User are those of the Credentials.
	Mechanism Mechanism
	User      string
	// Code is Kafka's error code.
	Code int16
	// Reason is what the broker says besides; may be empty.
	Reason string
}

// Error implements error.
func (e *LoginError) Error() string {
	var what string
	switch e.Code {
	case kerr.UnsupportedSaslMechanism.Code:
		what = fmt.Sprintf("the broker does not take %s, only %s", e.Mechanism, e.Reason)
	case kerr.IllegalSaslState.Code, kerr.UnsupportedVersion.Code:
		what = "the broker does not expect a login on this port: use its SASL port, or give no credentials"
	default:
		what = fmt.Sprintf("refused with error code %d", e.Code)
		if e.Reason != "" {
			what += ": " + e.Reason
		}
		if e.Mechanism == OAuthBearer && e.Code == kerr.SaslAuthenticationFailed.Code {
			what += ": the token has expired, or is not for these brokers"
		}
	}
	return fmt.Sprintf("log in %s: %s", Credentials{Mechanism: e.Mechanism, User: e.User}.who(), what)
}

const (
	// loginVersion of SaslHandshake frames the tokens (KIP-152); that of
	// SaslAuthenticate tells how long a login lasts (KIP-368).
	loginVersion = 1
	// maxLoginAnswer bounds an answer to the login, in bytes.
	maxLoginAnswer = 64 << 10
	// maxLoginRounds bounds the tokens that a broker may ask for; SCRAM has 2.
	maxLoginRounds = 8
)

// SASL is the login for a client library; nil: none.
func (c Credentials) SASL() sasl.Mechanism { return c.mechanism() }

func (c Credentials) mechanism() sasl.Mechanism {
	switch c.Mechanism {
	case Plain:
		return saslplain.Plain(func(context.Context) (saslplain.Auth, error) {
			password, err := c.Password()
			return saslplain.Auth{User: c.User, Pass: password}, err
		})
	case OAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := c.Password()
			return oauth.Auth{Token: token}, err
		})
	case ScramSHA256, ScramSHA512:
		auth := func(context.Context) (scram.Auth, error) {
			password, err := c.Password()
			return scram.Auth{User: c.User, Pass: password}, err
		}
		if c.Mechanism == ScramSHA256 {
			return scram.Sha256(auth)
		}
		return scram.Sha512(auth)
	}
	return nil
}

func (c Credentials) validate() error {
	if c.Mechanism == NoLogin {
		if c.User != "" || c.Password != nil || c.ForClients {
			return badField("Credentials.Mechanism", "is missing")
		}
		return nil
	}
	switch {
	case c.mechanism() == nil:
		return badField("Credentials.Mechanism", "%q is not known", c.Mechanism)
	case c.Mechanism == OAuthBearer && c.User != "":
		return badField("Credentials.User", "is given, and the token of OAUTHBEARER says who the proxy is")
	case c.Mechanism != OAuthBearer && c.User == "":
		return badField("Credentials.User", "is missing")
	case strings.ContainsRune(c.User, 0):
		return badField("Credentials.User", "holds a NUL")
	case c.Password == nil:
		return badField("Credentials.Password", "is missing")
	}
	return nil
}

// who says in an error who logs in.
func (c Credentials) who() string {
	if c.Mechanism == OAuthBearer {
		return "by OAUTHBEARER"
	}
	return fmt.Sprintf("as user %q by %s", c.User, c.Mechanism)
}

// loginTerm is for how long a login lasts, after which the broker closes the
// connection (KIP-368). The zero value has no end.
type loginTerm struct {
	// lasts is counted from when the broker let the proxy in, after begun and
	// before ended.
	lasts        time.Duration
	begun, ended ps.Instant
}

// limited reports whether the login has an end.
func (t loginTerm) limited() bool { return t.lasts > 0 }

// renewAt is when the connection should log in anew, or not be used any more: well
// before its end, since requests may be on their way by then.
func (t loginTerm) renewAt() ps.Instant { return t.begun.Add(t.lasts / 4 * 3) }

// lastingConn is a connection whose login ends at some time.
type lastingConn struct {
	net.Conn
	until time.Time
}

// UseUntil is when the connection should not be used any more.
func (c *lastingConn) UseUntil() time.Time { return c.until }

// dialOwn opens a connection of the proxy's own, logged in, within DialTimeout.
func (p *Proxy) dialOwn(ctx context.Context, address string) (net.Conn, error) {
	conn, term, err := p.dialLoggedIn(ctx, address)
	if err == nil && term.limited() {
		return &lastingConn{conn, time.Now().Add(term.renewAt().Sub(instant()))}, nil
	}
	return conn, err
}

// dialLoggedIn opens a connection and logs in, if there are credentials, within
// DialTimeout.
func (p *Proxy) dialLoggedIn(ctx context.Context, address string) (net.Conn, loginTerm, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	conn, err := p.dial(ctx, address)
	if err != nil || p.cfg.Credentials.Mechanism == NoLogin {
		return conn, loginTerm{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	term, err := p.login(ctx, onConn(conn), address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("log in: %w", context.Cause(ctx))
		}
		return nil, loginTerm{}, err
	}
	return conn, term, nil
}

// asker sends a request in a version whose headers have no tagged fields, and reads
// the answer to it.
type asker func(request kmsg.Request, answer kmsg.Response) error

// login authenticates a connection, and counts what came of it.
func (p *Proxy) login(ctx context.Context, ask asker, address string) (loginTerm, error) {
	term, err := p.cfg.Credentials.login(ctx, ask, address)
	var refused *LoginError
	result := loginDone
	switch {
	case errors.As(err, &refused):
		result = loginRefused
	case err != nil:
		result = loginFailed
	}
	p.metrics.upstreamLogins.add(loginSeries{mechanism: p.cfg.Credentials.Mechanism, result: result})
	return term, err
}

// login authenticates a connection, and tells for how long.
func (c Credentials) login(ctx context.Context, ask asker, address string) (loginTerm, error) {
	term := loginTerm{begun: instant()}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = loginVersion, string(c.Mechanism)
	agreed := kmsg.NewPtrSASLHandshakeResponse()
	if err := ask(handshake, agreed); err != nil {
		return term, err
	}
	if agreed.ErrorCode != 0 {
		return term, &LoginError{c.Mechanism, c.User, agreed.ErrorCode, strings.Join(agreed.SupportedMechanisms, ", ")}
	}
	session, token, err := c.mechanism().Authenticate(ctx, address)
	if err != nil {
		return term, fmt.Errorf("log in %s: %w", c.who(), err)
	}
	for range maxLoginRounds {
		request := kmsg.NewPtrSASLAuthenticateRequest()
		request.Version, request.SASLAuthBytes = loginVersion, token
		answer := kmsg.NewPtrSASLAuthenticateResponse()
		if err := ask(request, answer); err != nil {
			return term, err
		}
		if answer.ErrorCode != 0 {
			refused := &LoginError{Mechanism: c.Mechanism, User: c.User, Code: answer.ErrorCode}
			if answer.ErrorMessage != nil {
				refused.Reason = *answer.ErrorMessage
			}
			return term, refused
		}
		var done bool
		if done, token, err = session.Challenge(answer.SASLAuthBytes); err != nil {
			return term, fmt.Errorf("log in %s: the broker's proof: %w", c.who(), err)
		}
		if done {
			term.ended = instant()
			term.lasts = time.Duration(min(max(answer.SessionLifetimeMillis, 0), maxMillis)) * time.Millisecond
			return term, nil
		}
	}
	return term, fmt.Errorf("%w: login without end", errAnswer)
}

// onConn asks on a connection that nothing else uses.
func onConn(conn net.Conn) asker {
	return func(request kmsg.Request, answer kmsg.Response) error {
		formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
		name := kmsg.NameForKey(request.Key())
		if _, err := conn.Write(formatter.AppendRequest(nil, request, 0)); err != nil {
			return fmt.Errorf("%s: write: %w", name, err)
		}
		body, err := readAnswer(conn, maxLoginAnswer)
		if _, first := request.(*kmsg.SASLHandshakeRequest); first && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return fmt.Errorf("%s: %w: brokers close so on ports that expect TLS", name, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return readLoginAnswer(request, answer, body)
	}
}

func readLoginAnswer(request kmsg.Request, answer kmsg.Response, body []byte) error {
	answer.SetVersion(request.GetVersion())
	if err := answer.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %s: %w", errAnswer, kmsg.NameForKey(request.Key()), err)
	}
	return nil
}
