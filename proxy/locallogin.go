package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// LocalLogin has clients log in at the proxy itself (SASL, KIP-43 and KIP-152), as
// users that brokers know nothing of. To those each client is the proxy's principal
// (Credentials.ForClients), or nobody.
type LocalLogin struct {
	// Mechanisms may be used; at least one of PasswordMechanisms.
	Mechanisms []Mechanism
	// Lifetime is for how long a login lasts; zero: as long as the connection. Then
	// the client has to log in anew, as the same user, before any other request
	// (KIP-368); clients that can do it do so on time, on the same connection.
	Lifetime time.Duration
	// Begin begins a login by one of Mechanisms. It is called by several goroutines.
	// Nil: nobody is let in.
	Begin func(Mechanism) LoginSession
}

// LoginSession is one login at the proxy. One goroutine uses it.
type LoginSession interface {
	// Step takes a token of the client's, which is valid during the call, and gives
	// the answer to it, and the user's name once the client is let in. An error ends
	// the login; its text is logged and must hold no secret. The client hears only
	// that its credentials are not valid. Once ctx ends, nobody waits for the answer any
	// more, and Step returns soon.
	Step(ctx context.Context, token []byte) (answer []byte, user string, err error)
}

const (
	// maxLoginRequest bounds a request of a client that has not logged in, in bytes.
	maxLoginRequest = 64 << 10
	// refusalDelay is how long who gives wrong credentials waits for the answer, so
	// that guessing is slow.
	refusalDelay = 100 * time.Millisecond
	// maxAuthenticate is the newest version of SaslAuthenticate.
	maxAuthenticate = 2
	// leastLifetime of a login: what is shorter can hardly be renewed.
	leastLifetime = time.Second
)

const (
	messageNoLogin = "offsetproxy logs in to the brokers for its clients here, so connect without SASL " +
		"(security.protocol PLAINTEXT, or SSL in TLS)"
	// shortNoLogin stands in the place of mechanisms, of which librdkafka shows 31
	// characters.
	shortNoLogin      = "none: connect without SASL"
	messageLoginState = "SaslAuthenticate comes after a SaslHandshake that was answered without an error"
	messageRefused    = "authentication failed: the credentials are not valid here"
	messageOtherUser  = "authentication failed: a connection stays that of the user who logged in first"
)

var (
	// errNoLoginHere says that a client wants to log in where the proxy does that for it.
	errNoLoginHere = errors.New("the client wants to log in, and the proxy does that for it")
	// errLoginState says that a client's request does not belong where it came.
	errLoginState = errors.New("the client must log in first")
	// errLoginOver says that a login's time is over and no new one has come.
	errLoginOver = errors.New("the client's login is over, and it did not log in anew")
	// errMechanism says that a client wants to log in by a mechanism that is not in use.
	errMechanism = errors.New("the mechanism is not in use here")
	// errRefused says that a client's credentials are not valid.
	errRefused = errors.New("the credentials are not valid")
)

// loginError ends the connection of a client that did not log in as it must.
type loginError struct {
	mechanism Mechanism // empty: none was agreed on
	reason    error     // wraps one of the above
}

func (e *loginError) Error() string { return e.reason.Error() }
func (e *loginError) Unwrap() error { return e.reason }

func (l *LocalLogin) validate() *ConfigError {
	if len(l.Mechanisms) == 0 {
		return wrongListener("Login.Mechanisms", "missing: at least one of %s", mechanismList(PasswordMechanisms()))
	}
	for _, m := range l.Mechanisms {
		if !slices.Contains(PasswordMechanisms(), m) {
			return wrongListener("Login.Mechanisms", "%q is not one of %s", m, mechanismList(PasswordMechanisms()))
		}
	}
	if l.Lifetime != 0 && l.Lifetime < leastLifetime {
		return wrongListener("Login.Lifetime", "%s is less than %s", l.Lifetime, leastLifetime)
	}
	return nil
}

func mechanismList(all []Mechanism) string { return strings.Join(mechanismNames(all), ", ") }

func mechanismNames(all []Mechanism) []string {
	var names []string
	for _, m := range all {
		names = append(names, string(m))
	}
	return names
}

// visitor is who a connection's client is, at a listener where users log in. It is
// the clientLoop's own.
type visitor struct {
	user      string       // who has logged in; empty: nobody
	mechanism Mechanism    // by which, or is about to
	session   LoginSession // of the login that goes on; nil: none does
	until     ps.Instant   // when the login ends; zero: never
}

// takesLogin reports whether a request is about a login that is the proxy's affair.
func (c *conn) takesLogin(key int16) bool {
	isLogin := key == int16(kmsg.SASLHandshake) || key == int16(kmsg.SASLAuthenticate)
	return isLogin && (c.entrance.Login != nil || c.p.cfg.Credentials.ForClients)
}

// identify handles a request that is about who the client is, and refuses others
// while that must come first.
func (c *conn) identify(h wire.RequestHeader) (handled bool, err error) {
	v := &c.visitor
	switch login := c.takesLogin(h.APIKey); {
	case login && len(c.frame) > maxLoginRequest+4:
		return true, malformed(reasonLogin, "%s of %d bytes is above the limit of %d", kmsg.NameForKey(h.APIKey), len(c.frame)-4, maxLoginRequest)
	case login && c.entrance.Login == nil:
		return true, c.refuseLogin(h)
	case login && h.APIKey == int16(kmsg.SASLHandshake):
		return true, c.agree(h)
	case login:
		return true, c.authenticate(h)
	case c.entrance.Login == nil:
		return false, nil
	case v.session != nil && v.user != "", v.user == "" && h.APIKey != int16(kmsg.ApiVersions):
		return true, &loginError{v.mechanism, fmt.Errorf("%w: it sent %s", errLoginState, kmsg.NameForKey(h.APIKey))}
	case v.until != 0 && instant() >= v.until:
		return true, &loginError{v.mechanism, fmt.Errorf("%w: it sent %s", errLoginOver, kmsg.NameForKey(h.APIKey))}
	}
	return false, nil
}

// refuseLogin tells a client that it need not log in. Clients show their users the
// list of mechanisms, or the message.
func (c *conn) refuseLogin(h wire.RequestHeader) error {
	err := &loginError{reason: errNoLoginHere}
	answered := error(nil)
	if h.APIKey == int16(kmsg.SASLHandshake) {
		answered = c.answerHandshake(h, err, []string{shortNoLogin})
	} else {
		answered = c.answerAuthenticate(h, err, messageNoLogin, nil, 0)
	}
	if answered != nil {
		return answered
	}
	return err
}

// agree answers a SaslHandshake.
func (c *conn) agree(h wire.RequestHeader) error {
	v, login := &c.visitor, c.entrance.Login
	request := kmsg.NewPtrSASLHandshakeRequest()
	request.Version = h.APIVersion
	if err := request.ReadFrom(c.frame[4+h.BodyOffset:]); err != nil {
		return malformed(reasonLogin, "SaslHandshake: %v", err)
	}
	mechanism, may := Mechanism(request.Mechanism), login.Mechanisms
	if v.user != "" {
		may = []Mechanism{v.mechanism} // the one that it has logged in by
	}
	var refused *loginError
	switch {
	case v.session != nil:
		refused = &loginError{v.mechanism, fmt.Errorf("%w: it sent SaslHandshake within a login", errLoginState)}
	case !slices.Contains(may, mechanism):
		c.countLogin(otherMechanism, loginRefused)
		refused = &loginError{reason: fmt.Errorf("%w: %.40q, it takes %s", errMechanism, request.Mechanism, mechanismList(may))}
	case login.Begin != nil:
		v.session = login.Begin(mechanism)
		v.mechanism = mechanism
	default:
		v.session, v.mechanism = nobody{}, mechanism
	}
	if refused == nil {
		return c.answerHandshake(h, nil, mechanismNames(may))
	}
	if err := c.answerHandshake(h, refused, mechanismNames(may)); err != nil {
		return err
	}
	return refused
}

// authenticate answers a SaslAuthenticate.
func (c *conn) authenticate(h wire.RequestHeader) error {
	v := &c.visitor
	if h.APIVersion > maxAuthenticate {
		return fmt.Errorf("%w: SaslAuthenticate version %d, supported 0 to %d", errUnsupportedVersion, h.APIVersion, maxAuthenticate)
	}
	request := kmsg.NewPtrSASLAuthenticateRequest()
	request.Version = h.APIVersion
	if err := request.ReadFrom(c.frame[4+h.BodyOffset:]); err != nil {
		return malformed(reasonLogin, "SaslAuthenticate v%d: %v", h.APIVersion, err)
	}
	if v.session == nil {
		err := &loginError{v.mechanism, fmt.Errorf("%w: it sent SaslAuthenticate before SaslHandshake", errLoginState)}
		if answered := c.answerAuthenticate(h, err, messageLoginState, nil, 0); answered != nil {
			return answered
		}
		return err
	}
	begun := instant()
	ctx, cancel := context.WithTimeout(c.ctx, c.p.cfg.HandshakeTimeout)
	defer cancel()
	token, user, err := v.session.Step(ctx, request.SASLAuthBytes)
	switch {
	case err == nil || ctx.Err() == nil:
	case c.stopping.Load():
		return c.stopReason()
	default:
		return malformed(reasonHandshake, "no login within %s, since many others log in", c.p.cfg.HandshakeTimeout)
	}
	message := messageRefused
	if err == nil && user != "" && v.user != "" && user != v.user {
		err, message = fmt.Errorf("user %q is not %q, who has logged in on the connection", user, v.user), messageOtherUser
	}
	switch {
	case err != nil:
		return c.refuseCredentials(h, err, message)
	case user == "":
		return c.answerAuthenticate(h, nil, "", token, 0)
	}
	v.session, v.user = nil, user
	lifetime := c.entrance.Login.Lifetime
	if lifetime > 0 {
		v.until = begun.Add(lifetime)
	}
	c.countLogin(v.mechanism, loginDone)
	c.p.cfg.Logger.Debug("client has logged in", "remote", c.remote(), "listener", c.entrance.Name, "user", user, "mechanism", string(v.mechanism))
	if err := c.answerAuthenticate(h, nil, "", token, lifetime); err != nil {
		return err
	}
	if c.guest {
		c.guest = false
		c.setReadDeadline(c.p.cfg.IdleTimeout / idleTicks)
	}
	return nil
}

// refuseCredentials lets a client wait a moment, tells it that it is not let in, and
// ends its connection.
func (c *conn) refuseCredentials(h wire.RequestHeader, reason error, message string) error {
	c.visitor.session = nil
	c.countLogin(c.visitor.mechanism, loginRefused)
	if err := c.flushUpstream(); err != nil {
		return err
	}
	timer := time.NewTimer(refusalDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	refused := &loginError{c.visitor.mechanism, fmt.Errorf("%w: %w", errRefused, reason)}
	if err := c.answerAuthenticate(h, refused, message, nil, 0); err != nil {
		return err
	}
	return refused
}

func (c *conn) countLogin(m Mechanism, r loginResult) {
	c.p.metrics.logins.add(loginSeries{listener: c.entrance.Name, mechanism: m, result: r})
}

func (c *conn) answerHandshake(h wire.RequestHeader, err error, mechanisms []string) error {
	answer := kmsg.NewPtrSASLHandshakeResponse()
	answer.Version = h.APIVersion
	if err != nil {
		answer.ErrorCode = kafkaCode(err)
	}
	answer.SupportedMechanisms = mechanisms
	return c.answerLocally(h, appendAnswer(answer))
}

func (c *conn) answerAuthenticate(h wire.RequestHeader, err error, message string, token []byte, lifetime time.Duration) error {
	answer := kmsg.NewPtrSASLAuthenticateResponse()
	answer.Version = min(h.APIVersion, maxAuthenticate)
	if err != nil {
		answer.ErrorCode, answer.ErrorMessage = kafkaCode(err), &message
	}
	answer.SASLAuthBytes = append([]byte{}, token...) // not null
	answer.SessionLifetimeMillis = lifetime.Milliseconds()
	return c.answerLocally(h, appendAnswer(answer))
}

// nobody is the login of a listener without users.
type nobody struct{}

func (nobody) Step(context.Context, []byte) ([]byte, string, error) { return nil, "", errNoUsers }

var errNoUsers = errors.New("the listener has no users")

// withLogin makes an ApiVersions answer tell of the versions in which clients log in
// at the proxy, whatever the broker has.
func withLogin(keys []kmsg.ApiVersionsResponseApiKey) []kmsg.ApiVersionsResponseApiKey {
	for _, own := range []kmsg.ApiVersionsResponseApiKey{
		// Version 0 is refused; see apiLimits for why it is told.
		{ApiKey: int16(kmsg.SASLHandshake), MaxVersion: loginVersion},
		{ApiKey: int16(kmsg.SASLAuthenticate), MaxVersion: maxAuthenticate},
	} {
		i := slices.IndexFunc(keys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == own.ApiKey })
		if i < 0 {
			keys = append(keys, own)
			continue
		}
		keys[i].MinVersion, keys[i].MaxVersion = own.MinVersion, own.MaxVersion
	}
	return keys
}
