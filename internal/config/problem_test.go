package config

import (
	"strings"
	"testing"
)

// What people get to read of a mistake.
func TestProblemsSayWhatIsMeant(t *testing.T) {
	const k = "bootstrap: k:9092\n"
	for _, c := range []struct{ name, src, want string }{
		{"a misspelt key", k + "rule: []", `unknown key "rule": did you mean rules?`},
		{"a misspelt inner key", k + "limits: {max_helt: 1MiB}", `unknown key "max_helt": did you mean max_held?`},
		{"a key that is like none", k + "wombat: 1", `unknown key "wombat"` + "\n"},
		{"topics in a list", k + "rules: [{topics: [a, b], mode: off}]", "topics_regexp: 'a|b'"},
		{"a tab", k + "limits:\n\tmax_held: 1MiB", "f.yaml:3:1: a tab: YAML is indented by spaces\n>  3 | →max_held: 1MiB"},
		{"two listeners on a port", k + "listeners:\n- {name: a, listen: ':7'}\n- {name: b, listen: ':7'}", "f.yaml:4:21: listeners[1].listen: port 7 is one that listener a uses"},
		{"a size that does not fit", k + "limits: {max_frame: 2GiB}", "2GiB is too much: it must be less than 2GiB"},
		{"a size that is too small", k + "limits: {max_frame: 1B}", "1B is too little: 1KiB at least"},
	} {
		if _, err := Parse("f.yaml", []byte(c.src)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant %q in it", c.name, err, c.want)
		}
	}
}

// Secrets at the wrong place are not shown, wherever the mistake is.
func TestExcerptsHideSecrets(t *testing.T) {
	const hush = "let-me-in"
	for _, src := range []string{
		"bootstrap: k:1\nupstream:\n  sasl:\n    mechanism: PLAIN\n    user: u\n    password: " + hush,
		"bootstrap: k:1\nupstream: {sasl: {password_file: /p, Password: '" + hush + ", " + hush + "'}}",
		"bootstrap: k:1\nlistn: x\napi-token: " + hush,
		"bootstrap: k:1\nclient_secret: |\n  " + hush + "\n  " + hush + "\nlistn: x",
		"bootstrap: k:1\nusers:\n  password:\n    - " + hush + "\nlistn: x",
		"bootstrap: k:1\nlimits:\n\tmax_held: 1MiB # token: " + hush,
	} {
		_, err := Parse("f.yaml", []byte(src))
		if err == nil || strings.Contains(err.Error(), hush) {
			t.Errorf("got %v, want an error without the secret, in\n%s", err, src)
		}
	}
	_, err := Parse("f.yaml", []byte("bootstrap: k:1\nupstream: {sasl: {password_file: /p}}\n"))
	if err == nil || !strings.Contains(err.Error(), "password_file: /p") {
		t.Errorf("got %v, want the place of the password to be shown", err)
	}
}

// An excerpt shows each line as it is.
func TestExcerptsEndWithALine(t *testing.T) {
	_, err := Parse("f.yaml", []byte("bootstrap: k\nlisten: 127.0.0.1:1\nlimits:\n  max_held: 1MiB\n  idle_views: 1\n"))
	if err == nil || strings.HasSuffix(strings.TrimSpace(err.Error()), "|") {
		t.Errorf("got %v", err)
	}
}

// Who is told a host that cannot reach the listener is noted.
func TestNoteOnLoopback(t *testing.T) {
	for src, want := range map[string]bool{
		"listen: 127.0.0.1:9092\nadvertised_host: proxy.example.com": true,
		"listen: 127.0.0.1:9092\nadvertised_host: localhost":         false,
		"listen: 127.0.0.1:9092":                                     false,
		"listen: 0.0.0.0:9092\nadvertised_host: proxy.example.com":   false,
	} {
		settings, err := Parse("f.yaml", []byte("bootstrap: k:1\ndefault_mode: require\n"+src))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(settings.Notes, "\n"), "listen is on loopback, and clients are told proxy.example.com"); got != want {
			t.Errorf("%s: got notes %q, want one on loopback: %v", src, settings.Notes, want)
		}
	}
}

// Limits that were set are told from those that were not.
func TestLimitsThatWereSet(t *testing.T) {
	settings, err := Parse("f.yaml", []byte("bootstrap: k:1\nlimits: {max_frame: 1MiB}"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := settings.Effective().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "(default ") != 1 || !strings.Contains(b.String(), "1MiB (default 100MiB)") {
		t.Errorf("got\n%s\nwant max_frame alone to be told from its default", b.String())
	}
}
