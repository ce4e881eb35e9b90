package localusers

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func load(t testing.TB, content string) *Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The example of RFC 7677, section 3.
func TestExampleOfTheRFC(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := Entry("user", map[Mechanism]Verifier{ScramSHA256: derive(ScramSHA256, "pencil", salt, 4096)})
	if err != nil {
		t.Fatal(err)
	}
	session := load(t, entry).Begin(ScramSHA256)
	session.makeNonce = func() string { return "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0" }
	for _, step := range []struct{ token, answer, user string }{
		{"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", ""},
		{"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user"},
	} {
		answer, user, err := session.Step(t.Context(), []byte(step.token))
		if err != nil || string(answer) != step.answer || user != step.user {
			t.Fatalf("got %q, %q, %v, want %q, %q", answer, user, err, step.answer, step.user)
		}
	}
	if _, _, err := session.Step(t.Context(), nil); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v after the end, want ErrFinished", err)
	}
}

const someUsers = `
anna: {password: "a,=secret"}
"=,bert": {password: 1234}
`

// run has a client of another make log in.
func run(t *testing.T, s *Store, m Mechanism, user, password, acting string) (string, error) {
	t.Helper()
	var client sasl.Mechanism
	switch m {
	case Plain:
		client = plain.Auth{User: user, Pass: password, Zid: acting}.AsMechanism()
	case ScramSHA256:
		client = scram.Auth{User: user, Pass: password, Zid: acting}.AsSha256Mechanism()
	default:
		client = scram.Auth{User: user, Pass: password, Zid: acting}.AsSha512Mechanism()
	}
	session, token, err := client.Authenticate(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	server := s.Begin(m)
	for {
		answer, user, err := server.Step(t.Context(), token)
		if err != nil {
			return "", err
		}
		done, next, err := session.Challenge(answer)
		if err != nil {
			t.Fatalf("the client does not accept %q: %v", answer, err)
		}
		if (user != "") != done {
			t.Fatalf("the server lets in %q, the client is done: %v", user, done)
		}
		if done {
			return user, nil
		}
		token = next
	}
}

func TestWhoIsLetIn(t *testing.T) {
	both := map[Mechanism]Verifier{}
	for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
		v, err := NewVerifier(m, "carla-secret", 8192)
		if err != nil {
			t.Fatal(err)
		}
		both[m] = v
	}
	carla, err := Entry("carla", both)
	if err != nil {
		t.Fatal(err)
	}
	only := map[Mechanism]Verifier{ScramSHA256: both[ScramSHA256]}
	dora, err := Entry("dora:'s", only)
	if err != nil {
		t.Fatal(err)
	}
	s := load(t, someUsers+carla+dora)
	if got := s.Len(); got != 4 {
		t.Fatalf("got %d users, want 4", got)
	}
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		for _, c := range []struct {
			user, password, acting string
			want                   error
		}{
			{"anna", "a,=secret", "", nil},
			{"anna", "a,=secret", "anna", nil},
			{"=,bert", "1234", "", nil},
			{"carla", "carla-secret", "", nil},
			{"dora:'s", "carla-secret", "", nil},
			{"anna", "a,=secre", "", ErrCredentials},
			{"anna", "1234", "", ErrCredentials},
			{"nobody", "1234", "", ErrCredentials},
			{"anna", "a,=secret", "carla", ErrOtherIdentity},
		} {
			want := c.want
			if m == ScramSHA512 && c.user == "dora:'s" {
				want = ErrCredentials // there is no such verifier
			}
			got, err := run(t, s, m, c.user, c.password, c.acting)
			if !errors.Is(err, want) || want == nil && got != c.user || err != nil && strings.Contains(err.Error(), c.password) {
				t.Errorf("%s as %q by %q for %q: got %q, %v, want %v", m, c.user, c.password, c.acting, got, err, want)
			}
		}
	}
}

// Who does not exist is answered like who does: with the same salt each time, which is
// another for each name.
func TestUnknownUsersLookKnown(t *testing.T) {
	v, err := NewVerifier(ScramSHA512, "x", 9000)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := Entry("anna", map[Mechanism]Verifier{ScramSHA512: v})
	if err != nil {
		t.Fatal(err)
	}
	s := load(t, entry)
	first := func(name string) string {
		answer, _, err := s.Begin(ScramSHA512).Step(t.Context(), []byte("n,,n="+name+",r=abc"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(answer, []byte(",s="))
		return string(rest)
	}
	known, one, again, other := first("anna"), first("one"), first("one"), first("other")
	if one != again || one == other || one == known {
		t.Errorf("got %q, %q again, %q for another and %q for who is known", one, again, other, known)
	}
	if len(one) != len(known) || !strings.HasSuffix(one, ",i=9000") || !strings.HasSuffix(known, ",i=9000") {
		t.Errorf("got %q, and %q for who is known", one, known)
	}
	// Also by the password that the made-up verifier could have: there is none.
	if verifier, _, known := s.anyVerifier("one"); known || verifier.Iterations != 9000 {
		t.Errorf("got known %v and %d iterations, want as anna's", known, verifier.Iterations)
	}
}

func TestTokensThatAreNotUnderstood(t *testing.T) {
	s := load(t, someUsers)
	for m, tokens := range map[Mechanism][]string{
		Plain: {"", "anna", "\x00anna", "\x00anna\x00", "\x00\x00x", "\x00anna\x00a,=secret\x00", "\x00an\xff\x00x"},
		ScramSHA256: {
			"", "n", "n,", "n,,", "n,,n=anna", "p=tls-unique,,n=anna,r=a", "x,,n=anna,r=a", "n,,n=,r=a", "n,,n=anna,r=",
			"n,,n=an=41na,r=a", "n,,m=x,n=anna,r=a", "n,x=anna,n=anna,r=a", "n,,n=anna,r=a\x7f", "n,,n=an\xff,r=a",
		},
	} {
		for _, token := range tokens {
			if _, user, err := s.Begin(m).Step(t.Context(), []byte(token)); !errors.Is(err, ErrToken) || user != "" {
				t.Errorf("%s %q: got %q, %v, want ErrToken", m, token, user, err)
			}
		}
	}
	for _, change := range []func(nonce string) string{
		func(string) string { return "" },
		func(string) string { return ",p=" },
		func(nonce string) string { return "c=biws,p=AAAA" },
		func(nonce string) string { return "c=biws,r=" + nonce + ",p=AAAA" },
		func(nonce string) string { return "c=biws,r=" + nonce + ",p=" + strings.Repeat("A", 4096) },
		func(nonce string) string { return "c=eSws,r=" + nonce + ",p=" + strings.Repeat("A", 43) + "=" },
		func(nonce string) string { return "c=biws,r=" + nonce + "x,p=" + strings.Repeat("A", 43) + "=" },
	} {
		session := s.Begin(ScramSHA256)
		answer, _, err := session.Step(t.Context(), []byte("n,,n=anna,r=a"))
		if err != nil {
			t.Fatal(err)
		}
		nonce, _, _ := strings.Cut(strings.TrimPrefix(string(answer), "r="), ",")
		token := change(nonce)
		if _, user, err := session.Step(t.Context(), []byte(token)); !errors.Is(err, ErrToken) || user != "" {
			t.Errorf("%q: got %q, %v, want ErrToken", token, user, err)
		}
	}
	if _, _, err := s.Begin("GSSAPI").Step(t.Context(), nil); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v", err)
	}
}

// FuzzStep lets nobody in who has no password, whatever is sent.
func FuzzStep(f *testing.F) {
	f.Add(byte(0), []byte("\x00anna\x00x"), []byte{})
	f.Add(byte(1), []byte("n,,n=anna,r=a"), []byte("c=biws,r=a,p="+strings.Repeat("A", 43)+"="))
	f.Add(byte(2), []byte("y,a=anna,n=anna,r=a,x=y"), []byte("c=eSxhPWFubmEs,r=a,x=y,p="+strings.Repeat("A", 86)+"=="))
	password := fmt.Sprintf("%064d", 7)
	s := load(f, "anna: {password: '"+password+"'}")
	f.Fuzz(func(t *testing.T, mechanism byte, first, second []byte) {
		if bytes.Contains(first, []byte(password)) {
			t.Skip()
		}
		session := s.Begin([]Mechanism{Plain, ScramSHA256, ScramSHA512}[mechanism%3])
		for _, token := range [][]byte{first, second, second} {
			if _, user, err := session.Step(t.Context(), token); user != "" || err != nil && strings.Contains(err.Error(), password) {
				t.Fatalf("%q let in by %q, %v", user, token, err)
			}
		}
	})
}

// TestLoginWaitsNoLongerThanItsContext: with many logins at once some wait for longer
// than anybody waits for them.
func TestLoginWaitsNoLongerThanItsContext(t *testing.T) {
	s := load(t, someUsers)
	for range cap(s.deriving) {
		s.deriving <- struct{}{}
	}
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, user, err := s.Begin(Plain).Step(ctx, []byte("\x00anna\x00a,=secret")); !errors.Is(err, gone) || user != "" {
		t.Errorf("got %q, %v, want %v", user, err, gone)
	}
	for range cap(s.deriving) {
		<-s.deriving
	}
	if _, user, err := s.Begin(Plain).Step(t.Context(), []byte("\x00anna\x00a,=secret")); err != nil || user != "anna" {
		t.Errorf("got %q, %v, want anna", user, err)
	}
}
