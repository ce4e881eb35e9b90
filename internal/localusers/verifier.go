package localusers

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"fmt"
	"hash"
)

// Mechanism is a SASL mechanism by the name that clients give it.
type Mechanism string

const (
	// Plain is RFC 4616.
	Plain Mechanism = "PLAIN"
	// ScramSHA256 is RFC 7677.
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	// ScramSHA512 is the same with SHA-512.
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// hash gives the hash of a SCRAM mechanism; nil: it has none.
func (m Mechanism) hash() func() hash.Hash {
	switch m {
	case ScramSHA256:
		return sha256.New
	case ScramSHA512:
		return sha512.New
	}
	return nil
}

const (
	// LeastIterations is what a verifier must have at least, as Kafka demands.
	LeastIterations = 4096
	// MostIterations bounds what a login by PLAIN may cost.
	MostIterations = 1 << 20
	// saltBytes is the length of the salts that are made here.
	saltBytes = 24
	// mostSalt bounds a salt, in bytes.
	mostSalt = 1 << 10
)

// Verifier is what proves that somebody knows a password, without being one (RFC
// 5802, section 3). Whoever has it can still guess passwords, so it is a secret.
type Verifier struct {
	// Salt and Iterations are told to clients.
	Salt       []byte
	Iterations int
	// StoredKey and ServerKey are as long as the mechanism's hash.
	StoredKey, ServerKey []byte
}

// NewVerifier makes the verifier of a password, with a salt of its own.
func NewVerifier(m Mechanism, password string, iterations int) (Verifier, error) {
	if m.hash() == nil {
		return Verifier{}, fmt.Errorf("%w: %q", ErrMechanism, m)
	}
	if iterations < LeastIterations || iterations > MostIterations {
		return Verifier{}, fmt.Errorf("%w: %d", ErrIterations, iterations)
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	return derive(m, password, salt, iterations), nil
}

// derive computes a verifier; iterations and m are good.
func derive(m Mechanism, password string, salt []byte, iterations int) Verifier {
	h := m.hash()
	salted, err := pbkdf2.Key(h, password, salt, iterations, h().Size())
	if err != nil {
		panic(fmt.Sprintf("localusers: derive a key: %v", err)) // the length is the hash's
	}
	clientKey := sign(h, salted, "Client Key")
	return Verifier{Salt: salt, Iterations: iterations, StoredKey: digest(h, clientKey), ServerKey: sign(h, salted, "Server Key")}
}

// is compares in constant time whether a password is that of the verifier.
func (v Verifier) is(m Mechanism, password string) bool {
	return subtle.ConstantTimeCompare(derive(m, password, v.Salt, v.Iterations).StoredKey, v.StoredKey) == 1
}

func sign(h func() hash.Hash, key []byte, text string) []byte {
	mac := hmac.New(h, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func digest(h func() hash.Hash, of []byte) []byte {
	sum := h()
	sum.Write(of)
	return sum.Sum(nil)
}
