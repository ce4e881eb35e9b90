package localusers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// What is wrong with a file is told by its line, and nothing that may be a secret.
func TestFilesThatAreRefused(t *testing.T) {
	const hush = "aHVzaC1odXNo"
	for name, c := range map[string]struct{ content, want string }{
		"no YAML":             {"anna: {password: " + hush, "line 1: is not YAML"},
		"a list":              {"- " + hush, "line 1: a users file has"},
		"one text":            {hush, "line 1: a users file has"},
		"no password":         {"bert: {password: x}\nanna:\n", `line 2: user "anna" has neither`},
		"a text":              {"anna: " + hush, `user "anna" has neither`},
		"an empty password":   {"anna: {password: ''}", `password of user "anna"`},
		"a password in parts": {"anna: {password: [" + hush + "]}", `password of user "anna"`},
		"another key":         {"anna:\n  passwort: " + hush, `line 2: user "anna" has a key`},
		"twice":               {"anna: {password: " + hush + "}\nanna: {password: x}", `line 2: user "anna" is here already, at line 1: remove one of them`},
		"a password twice":    {"anna:\n  password: x\n  password: " + hush, "line 3: this key is here already, at line 2"},
		"both":                {"anna: {password: " + hush + ", SCRAM-SHA-256: {salt: aaaa, iterations: 4096, stored_key: " + key256 + ", server_key: " + key256 + "}}", "one of both"},
		"no key":              {"anna: {SCRAM-SHA-256: {salt: " + hush + ", iterations: 4096, stored_key: " + key256 + "}}", `SCRAM-SHA-256 of user "anna" has not`},
		"a short key":         {"anna: {SCRAM-SHA-512: {salt: aaaa, iterations: 4096, stored_key: " + key256 + ", server_key: " + key256 + "}}", "64 bytes long"},
		"few iterations":      {"anna: {SCRAM-SHA-256: {salt: aaaa, iterations: 4095}}", "iterations are 4096"},
		"no number":           {"anna: {SCRAM-SHA-256: {salt: aaaa, iterations: " + hush + "}}", "iterations are 4096"},
		"several documents":   {"anna: {password: x}\n---\nbert: {password: x}", "several documents"},
	} {
		path := t.TempDir() + "/users.yaml"
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), hush) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, err := Load(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	path := t.TempDir() + "/users.yaml"
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", mostFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, ErrFile) {
		t.Errorf("got %v for a file that is too long", err)
	}
}

var key256 = strings.Repeat("A", 43) + "="

// A file that is read again is taken over whole or not at all.
func TestReload(t *testing.T) {
	s := load(t, "anna: {password: one}\nbert: {password: two}")
	write := func(content string) error {
		t.Helper()
		if err := os.WriteFile(s.Path(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return s.Reload()
	}
	may := func(user, password string) bool {
		t.Helper()
		_, err := run(t, s, ScramSHA256, user, password, "")
		return err == nil
	}
	before, _ := s.verifier(ScramSHA256, "anna")
	if err := write("anna: {password: one}\nbert: {password: three}\ncarla: {password: four}"); err != nil {
		t.Fatal(err)
	}
	if !may("anna", "one") || may("bert", "two") || !may("bert", "three") || !may("carla", "four") {
		t.Error("the new file is not in force")
	}
	if after, _ := s.verifier(ScramSHA256, "anna"); string(after.Salt) != string(before.Salt) {
		t.Error("the verifier of a password that is the same was computed again")
	}
	if err := write("anna: {password: one"); !errors.Is(err, ErrFile) {
		t.Errorf("got %v, want ErrFile", err)
	}
	if !may("bert", "three") {
		t.Error("a file that is wrong has ended the one before")
	}
	if err := write("# nobody\n"); err != nil || s.Len() != 0 || may("anna", "one") {
		t.Errorf("got %v and %d users, want none", err, s.Len())
	}
}
