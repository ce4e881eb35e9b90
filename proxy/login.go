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
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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
)

// Mechanisms lists those that log in.
func Mechanisms() []Mechanism { return []Mechanism{Plain, ScramSHA256, ScramSHA512} }

// Credentials are the proxy's own: with them it logs in on the connections by
// which it finds the brokers and reads views. Clients log in by themselves;
// what they say passes through untouched.
type Credentials struct {
	// Mechanism; zero: NoLogin.
	Mechanism Mechanism
	// User is the name of the proxy's principal.
	User string
	// Password gives the password, each time that a connection logs in, so that
	// it can be changed while the proxy runs. It is called from several
	// goroutines. What it returns is never logged.
	Password func() (string, error)
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
	}
	return fmt.Sprintf("log in as user %q by %s: %s", e.User, e.Mechanism, what)
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

func (c Credentials) mechanism() sasl.Mechanism {
	switch c.Mechanism {
	case Plain:
		return saslplain.Plain(func(context.Context) (saslplain.Auth, error) {
			password, err := c.Password()
			return saslplain.Auth{User: c.User, Pass: password}, err
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
		if c.User != "" || c.Password != nil {
			return badField("Credentials.Mechanism", "is missing")
		}
		return nil
	}
	switch {
	case c.mechanism() == nil:
		return badField("Credentials.Mechanism", "%q is not known", c.Mechanism)
	case c.User == "":
		return badField("Credentials.User", "is missing")
	case strings.ContainsRune(c.User, 0):
		return badField("Credentials.User", "holds a NUL")
	case c.Password == nil:
		return badField("Credentials.Password", "is missing")
	}
	return nil
}

// lastingConn is a connection whose login ends at some time, after which the
// broker closes it (KIP-368).
type lastingConn struct {
	net.Conn
	until time.Time
}

// UseUntil is when the connection should not be used any more.
func (c *lastingConn) UseUntil() time.Time { return c.until }

// dialOwn opens a connection of the proxy's own, logged in, within DialTimeout.
func (p *Proxy) dialOwn(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	conn, err := p.dial(ctx, address)
	if err != nil || p.cfg.Credentials.Mechanism == NoLogin {
		return conn, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	begun := time.Now()
	lasts, err := p.cfg.Credentials.login(ctx, conn, address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("log in: %w", context.Cause(ctx))
		}
		return nil, err
	}
	if lasts > 0 {
		// Well before its end, since requests may be on their way by then.
		return &lastingConn{conn, begun.Add(lasts * 3 / 4)}, nil
	}
	return conn, nil
}

// login authenticates a connection, and tells for how long that lasts; zero:
// as long as the connection.
func (c Credentials) login(ctx context.Context, conn net.Conn, address string) (time.Duration, error) {
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = loginVersion, string(c.Mechanism)
	agreed := kmsg.NewPtrSASLHandshakeResponse()
	if err := ask(conn, handshake, agreed); err != nil {
		return 0, err
	}
	if agreed.ErrorCode != 0 {
		return 0, &LoginError{c.Mechanism, c.User, agreed.ErrorCode, strings.Join(agreed.SupportedMechanisms, ", ")}
	}
	session, token, err := c.mechanism().Authenticate(ctx, address)
	if err != nil {
		return 0, fmt.Errorf("log in as user %q by %s: %w", c.User, c.Mechanism, err)
	}
	for range maxLoginRounds {
		request := kmsg.NewPtrSASLAuthenticateRequest()
		request.Version, request.SASLAuthBytes = loginVersion, token
		answer := kmsg.NewPtrSASLAuthenticateResponse()
		if err := ask(conn, request, answer); err != nil {
			return 0, err
		}
		if answer.ErrorCode != 0 {
			refused := &LoginError{Mechanism: c.Mechanism, User: c.User, Code: answer.ErrorCode}
			if answer.ErrorMessage != nil {
				refused.Reason = *answer.ErrorMessage
			}
			return 0, refused
		}
		var done bool
		if done, token, err = session.Challenge(answer.SASLAuthBytes); err != nil {
			return 0, fmt.Errorf("log in as user %q by %s: the broker's proof: %w", c.User, c.Mechanism, err)
		}
		if done {
			return time.Duration(min(max(answer.SessionLifetimeMillis, 0), maxMillis)) * time.Millisecond, nil
		}
	}
	return 0, fmt.Errorf("%w: login without end", errAnswer)
}

// ask sends a request on a connection that nothing else uses, and reads its
// answer, in a version whose headers have no tagged fields.
func ask(conn net.Conn, request kmsg.Request, answer kmsg.Response) error {
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	name := kmsg.NameForKey(request.Key())
	if _, err := conn.Write(formatter.AppendRequest(nil, request, 0)); err != nil {
		return fmt.Errorf("%s: write: %w", name, err)
	}
	body, err := readAnswer(conn, maxLoginAnswer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w: brokers close so on ports that expect TLS", name, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	answer.SetVersion(request.GetVersion())
	if err := answer.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %s: %w", errAnswer, name, err)
	}
	return nil
}
