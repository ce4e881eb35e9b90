package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
)

// A file with which serve would not start is not called good, and fails if that is
// asked for.
func TestCheckConfigReadsWhatIsNamed(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	file := newConfigFile(t, `bootstrap: k:1
listeners:
- name: gate
  listen: 127.0.0.1:1
  tls: {cert_file: `+in("tls.crt")+`, key_file: `+in("tls.key")+`}
  sasl: {mechanisms: [SCRAM-SHA-256], users_file: `+in("users.yaml")+`}
upstream:
  tls: {ca_file: `+in("ca.crt")+`}
  sasl: {mechanism: PLAIN, user: u, password_file: `+in("password")+`}
`)
	file.write(t, "")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(code int, strict bool, missing ...string) {
		t.Helper()
		args := []string{"check-config", file.name}
		if strict {
			args = append(args, "--strict")
		}
		got := call(t, "", args...)
		first, _, _ := strings.Cut(got.stdout, "\n")
		if good := strings.HasSuffix(first, " is good. In force:"); got.code != code || good != (len(missing) == 0) || got.stderr != "" {
			t.Errorf("got %+v, want code %d", got, code)
		}
		inJSON := call(t, "", append(args, "-o", "json")...)
		var report checkReport
		if err := json.Unmarshal([]byte(inJSON.stdout), &report); err != nil || inJSON.code != code || len(report.WouldNotStart) != len(missing) {
			t.Errorf("in JSON: got %v and %+v, want code %d and %d reasons", err, inJSON, code, len(missing))
		}
		for _, want := range missing {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("got %s, want %q in it", got.stdout, want)
			}
		}
	}
	authority := certtest.NewAuthority(t, "own")
	write("ca.crt", "no certificate\n")
	all := []string{in("password"), in("users.yaml"), "TLS of listener gate: open " + in("tls.crt"), "TLS of upstream: " + in("ca.crt")}
	check(exitOK, false, all...)
	check(exitUsage, true, all...)
	authority.Write(in("tls.crt"), in("tls.key"), time.Hour, "kafka.test")
	authority.WriteCA(in("ca.crt"))
	write("password", "hush\n")
	write("users.yaml", "anna: {password: hush}\n")
	check(exitOK, true)
}

// --version is taken as it is elsewhere.
func TestVersionFlag(t *testing.T) {
	command, flag := call(t, "", "version"), call(t, "", "--version")
	if command.code != exitOK || flag != command {
		t.Errorf("got %+v, want %+v", flag, command)
	}
}
