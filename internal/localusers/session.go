package localusers

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Session is one login. One goroutine uses it.
type Session struct {
	store     *Store
	mechanism Mechanism
	step      func(ctx context.Context, token []byte) (answer []byte, user string, err error)

	// Of SCRAM.
	user               string
	known              bool
	verifier           Verifier
	gs2                string // header of the client's first message
	nonce              string
	clientBare, server string // first messages, as both sides sign them
	makeNonce          func() string
}

// Begin begins a login by a mechanism. It may be called concurrently.
func (s *Store) Begin(m Mechanism) *Session {
	session := &Session{store: s, mechanism: m, makeNonce: rand.Text}
	switch {
	case m == Plain:
		session.step = session.plain
	case m.hash() != nil:
		session.step = session.clientFirst
	default:
		session.step = session.finished
	}
	return session
}

// Step takes a token of the client's and gives the answer to it, and the user's name
// once the client is let in. After an error, or that name, there is no further step.
// It may wait for the logins of others, until ctx ends: then the error is its cause.
// Errors: ErrToken, ErrCredentials, ErrOtherIdentity, ErrFinished.
func (s *Session) Step(ctx context.Context, token []byte) (answer []byte, user string, err error) {
	step := s.step
	s.step = s.finished
	return step(ctx, token)
}

func (s *Session) finished(context.Context, []byte) ([]byte, string, error) {
	return nil, "", ErrFinished
}

// plain takes the only message of PLAIN: authorization id, user and password, with a
// NUL between.
func (s *Session) plain(ctx context.Context, token []byte) ([]byte, string, error) {
	parts := bytes.Split(token, []byte{0})
	if len(parts) != 3 || len(parts[1]) == 0 || len(parts[2]) == 0 || !utf8.Valid(token) {
		return nil, "", fmt.Errorf("%w: PLAIN", ErrToken)
	}
	acting, user, password := string(parts[0]), string(parts[1]), string(parts[2])
	verifier, mechanism, known := s.store.anyVerifier(user)
	// Each login costs processor time, so few are worked on at once. With many of them
	// some wait for longer than anybody waits for them.
	select {
	case s.store.deriving <- struct{}{}:
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	is := verifier.is(mechanism, password)
	<-s.store.deriving
	switch {
	case !is || !known:
		return nil, "", refused(user, known)
	case acting != "" && acting != user:
		return nil, "", ErrOtherIdentity
	}
	return nil, user, nil
}

// refused names a user who exists: another name may be a password that was typed in
// the wrong place.
func refused(user string, known bool) error {
	if known {
		return fmt.Errorf("%w: user %q", ErrCredentials, user)
	}
	return ErrCredentials
}

// clientFirst takes the first message of SCRAM: gs2-header, user and nonce.
func (s *Session) clientFirst(_ context.Context, token []byte) ([]byte, string, error) {
	wrong := fmt.Errorf("%w: first message of %s", ErrToken, s.mechanism)
	message := string(token)
	flag, rest, ok := strings.Cut(message, ",")
	if !ok || flag != "n" && flag != "y" || !utf8.ValidString(message) {
		return nil, "", wrong // p=… is channel binding, which is not offered
	}
	acting, bare, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, "", wrong
	}
	s.gs2 = message[:len(message)-len(bare)]
	fields := strings.Split(bare, ",")
	if len(fields) < 2 {
		return nil, "", wrong
	}
	name, isName := strings.CutPrefix(fields[0], "n=")
	user, escaped := unescape(name)
	nonce, isNonce := strings.CutPrefix(fields[1], "r=")
	if !isName || !escaped || user == "" || !isNonce || nonce == "" || !printable(nonce) {
		return nil, "", wrong
	}
	if acting != "" {
		name, isName := strings.CutPrefix(acting, "a=")
		as, escaped := unescape(name)
		if !isName || !escaped {
			return nil, "", wrong
		}
		if as != user {
			return nil, "", ErrOtherIdentity
		}
	}
	s.user, s.clientBare, s.nonce = user, bare, nonce+s.makeNonce()
	s.verifier, s.known = s.store.verifier(s.mechanism, user)
	s.server = fmt.Sprintf("r=%s,s=%s,i=%d", s.nonce, base64.StdEncoding.EncodeToString(s.verifier.Salt), s.verifier.Iterations)
	s.step = s.clientFinal
	return []byte(s.server), "", nil
}

// clientFinal takes the last message of SCRAM: the header again, the nonce and the
// proof.
func (s *Session) clientFinal(_ context.Context, token []byte) ([]byte, string, error) {
	wrong := fmt.Errorf("%w: last message of %s", ErrToken, s.mechanism)
	message := string(token)
	at := strings.LastIndex(message, ",p=")
	if at < 0 {
		return nil, "", wrong
	}
	unproved := message[:at]
	proof, err := base64.StdEncoding.DecodeString(message[at+len(",p="):])
	fields := strings.Split(unproved, ",")
	if err != nil || len(fields) < 2 || fields[0] != "c="+base64.StdEncoding.EncodeToString([]byte(s.gs2)) {
		return nil, "", wrong
	}
	if subtle.ConstantTimeCompare([]byte(fields[1]), []byte("r="+s.nonce)) != 1 {
		// Kafka since 3.7.2 refuses them too.
		return nil, "", fmt.Errorf("%w: the nonce is not the one that was sent; librdkafka before 2.6.1 sends another, so update it or use PLAIN", wrong)
	}
	h := s.mechanism.hash()
	if len(proof) != h().Size() {
		return nil, "", wrong
	}
	signed := s.clientBare + "," + s.server + "," + unproved
	clientKey := make([]byte, len(proof))
	subtle.XORBytes(clientKey, proof, sign(h, s.verifier.StoredKey, signed))
	if is := hmac.Equal(digest(h, clientKey), s.verifier.StoredKey); !is || !s.known {
		return nil, "", refused(s.user, s.known)
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(sign(h, s.verifier.ServerKey, signed))), s.user, nil
}

// unescape reads a name of SCRAM, in which = and , are written =3D and =2C.
func unescape(name string) (string, bool) {
	plain := strings.NewReplacer("=2C", ",", "=3D", "=").Replace(name)
	// What is escaped again must be what came, or there was another =.
	return plain, strings.NewReplacer("=", "=3D", ",", "=2C").Replace(plain) == name
}

// printable reports whether a nonce is of the characters that one may have; the comma
// is none of them.
func printable(nonce string) bool {
	return strings.IndexFunc(nonce, func(r rune) bool { return r < 0x21 || r > 0x7e || r == ',' }) < 0
}
