package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestPasswordIsReadEachTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	settings, err := Parse("f.yaml", []byte("bootstrap: k:1\nupstream: {sasl: {mechanism: SCRAM-SHA-512, user: p, password_file: "+file+"}}"))
	if err != nil {
		t.Fatal(err)
	}
	c := settings.Proxy.Credentials
	if c.Mechanism != proxy.ScramSHA512 || c.User != "p" {
		t.Errorf("got %s as %q", c.Mechanism, c.User)
	}
	for _, tc := range []struct {
		content, want string
	}{
		{"one", "one"}, {"two\n", "two"}, {"three\r\n", "three"}, {" four \n\n", " four \n"},
	} {
		if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Password(); err != nil || got != tc.want {
			t.Errorf("content %q: got %q, %v, want %q", tc.content, got, err, tc.want)
		}
	}
	for _, content := range []string{"", "\n", strings.Repeat("x", maxSecret+1)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Password(); !errors.Is(err, ErrNoSecret) || got != "" {
			t.Errorf("%d bytes: got %q, %v, want ErrNoSecret", len(content), got, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Password(); !errors.Is(err, ErrNoSecret) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: got %v", err)
	}
}

func TestPasswordFromTheEnvironment(t *testing.T) {
	s := Secret{Env: "PASSWORD_OF_THE_TEST"}
	if _, err := s.Read(); !errors.Is(err, ErrNoSecret) {
		t.Errorf("not set: got %v, want ErrNoSecret", err)
	}
	t.Setenv(s.Env, "word")
	if got, err := s.Read(); err != nil || got != "word" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What is in force is shown to people and programs, the password never.
func TestPasswordIsNotShown(t *testing.T) {
	t.Setenv("PASSWORD_OF_THE_TEST", "hush-hush")
	settings, err := Parse("f.yaml", []byte("bootstrap: k:1\nupstream: {sasl: {mechanism: PLAIN, user: p, password_env: PASSWORD_OF_THE_TEST}}"))
	if err != nil {
		t.Fatal(err)
	}
	effective := settings.Effective()
	var text strings.Builder
	if _, err := effective.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	program, err := json.Marshal(effective)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{text.String(), string(program)} {
		if strings.Contains(shown, "hush") || !strings.Contains(shown, "PASSWORD_OF_THE_TEST") || !strings.Contains(shown, "PLAIN") {
			t.Errorf("got %s\nwant the login without its password", shown)
		}
	}
}
