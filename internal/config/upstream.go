package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Upstream is how the proxy gets to the brokers on connections of its own.
type Upstream struct {
	// SASL is proxy.Config.Credentials.
	SASL SASL `yaml:"sasl"`
	// TLS is what brokers are spoken to with.
	TLS UpstreamTLS `yaml:"tls"`
}

// SASL is how the proxy logs in. Its password stands elsewhere.
type SASL struct {
	// Mechanism is proxy.Credentials.Mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	// or OAUTHBEARER.
	Mechanism Value `yaml:"mechanism"`
	// User is proxy.Credentials.User.
	User Value `yaml:"user"`
	// PasswordFile names a file that holds the password.
	PasswordFile Value `yaml:"password_file"`
	// PasswordEnv names an environment variable that holds it.
	PasswordEnv Value `yaml:"password_env"`
	// TokenFile names a file that holds the token of OAUTHBEARER, which is read for
	// each login.
	TokenFile Value `yaml:"token_file"`
	// ForClients is proxy.Credentials.ForClients: true or false.
	ForClients Value `yaml:"for_clients"`
}

// Secret is where a password stands: one of both is set, or none.
type Secret struct {
	// File is a path; the file's content without a newline at its end counts.
	File string
	// Env is the name of an environment variable.
	Env string
}

var (
	// ErrNoSecret is wrapped by errors about a password that is not there.
	ErrNoSecret = errors.New("no password or token")
	// errLongSecret says that the file is not a password.
	errLongSecret = fmt.Errorf("more than %d bytes", maxSecret)
)

// maxSecret bounds a password, in bytes.
const maxSecret = 64 * kib

// Read gives the password as it is now. Its errors say where it was looked for.
func (s Secret) Read() (string, error) {
	if s.Env != "" {
		password, set := os.LookupEnv(s.Env)
		if !set || password == "" {
			return "", fmt.Errorf("%w: environment variable %s is not set", ErrNoSecret, s.Env)
		}
		return password, nil
	}
	password, err := readSecret(s.File)
	if err != nil {
		return "", fmt.Errorf("%w: file %s: %w", ErrNoSecret, s.File, err)
	}
	return password, nil
}

func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		var failed *os.PathError
		if errors.As(err, &failed) {
			err = failed.Err // the path is named by the caller
		}
		return "", err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case len(content) > maxSecret:
		return "", errLongSecret
	case password == "":
		return "", errors.New("is empty")
	}
	return password, nil
}

// String names the place.
func (s Secret) String() string {
	switch {
	case s.Env != "":
		return "environment variable " + s.Env
	case s.File != "":
		return "file " + s.File
	}
	return "nowhere"
}

// upstream understands how the proxy logs in.
func (r *resolver) upstream() {
	s, out := r.doc.Upstream.SASL, &r.out.Proxy.Credentials
	place := first(s.Mechanism, s.User, s.PasswordFile, s.PasswordEnv, s.TokenFile, s.ForClients)
	if !place.given {
		return
	}
	names := mechanismNames(proxy.Mechanisms())
	switch {
	case s.Mechanism.text == "":
		r.wrong(place, "upstream.sasl.mechanism", "missing: one of %s", strings.Join(names, ", "))
	case !slices.Contains(names, s.Mechanism.text):
		r.wrong(s.Mechanism, "upstream.sasl.mechanism", "%q is not a mechanism; %s are", s.Mechanism.text, strings.Join(names, ", "))
	}
	*out = proxy.Credentials{Mechanism: proxy.Mechanism(s.Mechanism.text), User: s.User.text}
	if out.Mechanism == proxy.OAuthBearer {
		r.out.Password = r.token(place)
	} else {
		r.out.Password = r.password(place)
	}
	out.Password = r.out.Password.Read
	r.yesOrNo(s.ForClients, "upstream.sasl.for_clients", &out.ForClients)
}

// token says where the token of OAUTHBEARER stands.
func (r *resolver) token(place Value) Secret {
	s := r.doc.Upstream.SASL
	for _, other := range []struct {
		v    Value
		path string
	}{{s.User, "user"}, {s.PasswordFile, "password_file"}, {s.PasswordEnv, "password_env"}} {
		if other.v.given {
			r.wrong(other.v, "upstream.sasl."+other.path, "belongs to the other mechanisms: the token of OAUTHBEARER says who the proxy is")
		}
	}
	if s.TokenFile.text == "" {
		r.wrong(place, "upstream.sasl.token_file", "missing: the file that holds the token (a JWT)")
	}
	return Secret{File: s.TokenFile.text}
}

// password says where the password stands, and checks whose it is.
func (r *resolver) password(place Value) Secret {
	s := r.doc.Upstream.SASL
	given := func(v Value) bool { return v.given && v.text != "" }
	if !given(s.User) {
		r.wrong(place, "upstream.sasl.user", "missing: the user to log in as")
	} else if strings.ContainsRune(s.User.text, 0) {
		r.wrong(s.User, "upstream.sasl.user", "holds a NUL")
	}
	if s.TokenFile.given {
		r.wrong(s.TokenFile, "upstream.sasl.token_file", "belongs to the mechanism OAUTHBEARER")
	}
	switch {
	case given(s.PasswordFile) && given(s.PasswordEnv):
		r.wrong(s.PasswordEnv, "upstream.sasl.password_env", "password_file is given too: the password is in one place")
	case !given(s.PasswordFile) && !given(s.PasswordEnv):
		r.wrong(place, "upstream.sasl.password_file", "missing: the file that holds the password, or password_env, the environment variable that does")
	}
	return Secret{File: s.PasswordFile.text, Env: s.PasswordEnv.text}
}
