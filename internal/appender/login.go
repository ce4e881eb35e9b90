package appender

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

const (
	// loginVersion of SaslHandshake and SaslAuthenticate frames the tokens (KIP-152).
	loginVersion = 1
	// maxLoginRounds bounds the tokens that may be asked for; SCRAM has 2.
	maxLoginRounds = 8
)

// LoginError says that the other side did not let the client in.
type LoginError struct {
	// Mechanism is the SASL mechanism.
	Mechanism string
	// Addr is where the client wanted to log in.
	Addr string
	// Code is the answer's.
	Code Code
	// Reason is what the answer says besides; may be empty.
	Reason string
}

// Error implements error.
func (e *LoginError) Error() string {
	s := fmt.Sprintf("log in by %s at %s: %v", e.Mechanism, e.Addr, e.Code)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// LoggedIn has connections that dial opens log in by a mechanism before anything else
// uses them (KIP-43, KIP-152), all before ctx ends. It may be used concurrently if
// dial may. Its errors are those of dial, *LoginError and *ExchangeError.
func LoggedIn(dial Dial, mechanism sasl.Mechanism, clientID string) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		open, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		err = NewConn(open, clientID).logIn(ctx, mechanism, address)
		if err == nil {
			err = open.SetDeadline(time.Time{})
		}
		if err != nil {
			_ = open.Close()
			return nil, err
		}
		return open, nil
	}
}

func (c *Conn) logIn(ctx context.Context, mechanism sasl.Mechanism, address string) error {
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = mechanism.Name()
	handshake.SetVersion(loginVersion)
	answer, err := c.exchange(ctx, handshake)
	if err != nil {
		return err
	}
	refused := &LoginError{Mechanism: mechanism.Name(), Addr: address}
	if agreed := answer.(*kmsg.SASLHandshakeResponse); agreed.ErrorCode != 0 {
		refused.Code = Code(agreed.ErrorCode)
		if len(agreed.SupportedMechanisms) > 0 {
			refused.Reason = fmt.Sprintf("it takes %v", agreed.SupportedMechanisms)
		}
		return refused
	}
	session, token, err := mechanism.Authenticate(ctx, address)
	if err != nil {
		return fmt.Errorf("log in by %s at %s: %w", mechanism.Name(), address, err)
	}
	for range maxLoginRounds {
		request := kmsg.NewPtrSASLAuthenticateRequest()
		request.SASLAuthBytes = token
		request.SetVersion(loginVersion)
		answer, err := c.exchange(ctx, request)
		if err != nil {
			return err
		}
		told := answer.(*kmsg.SASLAuthenticateResponse)
		if told.ErrorCode != 0 {
			refused.Code = Code(told.ErrorCode)
			if told.ErrorMessage != nil {
				refused.Reason = *told.ErrorMessage
			}
			return refused
		}
		var done bool
		if done, token, err = session.Challenge(told.SASLAuthBytes); err != nil {
			return fmt.Errorf("log in by %s at %s: the other side's proof: %w", mechanism.Name(), address, err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("%w: a login without end", ErrMalformed)
}
