package localusers

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

const (
	fileKey = "'*': {key: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}\n"
	oneUser = "anna: {password: one}\n"
)

// Stores of one file say the same of a name if the file has a key: nobody can tell by
// asking two proxies who exists.
func TestStoresWithAKeySayTheSame(t *testing.T) {
	for _, test := range []struct {
		name, content string
		same          bool
	}{
		{"with a key", fileKey + oneUser, true},
		{"without", oneUser, false},
	} {
		one, other := load(t, test.content), load(t, test.content)
		for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
			for _, user := range []string{"anna", "nobody", "*"} {
				a, known := one.verifier(m, user)
				b, _ := other.verifier(m, user)
				if known != (user == "anna") {
					t.Errorf("%s: %s is known: %t", test.name, user, known)
				}
				if got := bytes.Equal(a.Salt, b.Salt) && a.Iterations == b.Iterations; got != test.same {
					t.Errorf("%s, %s, %s: the same is said: %t", test.name, m, user, got)
				}
			}
		}
	}
}

// Nor does it show when a user comes into being.
func TestSaltStaysWhenAUserIsAdded(t *testing.T) {
	s := load(t, fileKey+oneUser)
	before, _ := s.verifier(ScramSHA256, "bert")
	if err := os.WriteFile(s.Path(), []byte(fileKey+oneUser+"bert: {password: two}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	after, known := s.verifier(ScramSHA256, "bert")
	if !known || !bytes.Equal(before.Salt, after.Salt) || before.Iterations != after.Iterations {
		t.Errorf("known: %t; the salt was %x and is %x", known, before.Salt, after.Salt)
	}
	if got := s.Len(); got != 2 {
		t.Errorf("got %d users, want 2: the key is none", got)
	}
	for user, password := range map[string]string{"anna": "one", "bert": "two"} {
		if _, err := run(t, s, ScramSHA256, user, password, ""); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	if _, err := run(t, s, ScramSHA256, "*", "one", ""); !errors.Is(err, ErrCredentials) {
		t.Errorf("somebody got in as *: %v", err)
	}
}

// What is no key is refused, and not shown. Who is called * may have a password.
func TestKeysThatAreRefused(t *testing.T) {
	for name, content := range map[string]string{
		"short":           "'*': {key: c2hvcnQ=}",
		"no base64":       "'*': {key: hush-hush-hush-hush-hush-hush}",
		"somebody's":      "anna: {key: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}",
		"with a password": "'*': {key: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=, password: x}",
	} {
		path := t.TempDir() + "/users.yaml"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !errors.Is(err, ErrFile) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want ErrFile", name, err)
		}
	}
	if _, err := run(t, load(t, "'*': {password: x}"), ScramSHA256, "*", "x", ""); err != nil {
		t.Errorf("the user *: %v", err)
	}
}
