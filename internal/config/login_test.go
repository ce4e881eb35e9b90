package config

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestListenerSASL(t *testing.T) {
	settings, err := Parse("f.yaml", []byte(`
bootstrap: k:1
upstream: {sasl: {mechanism: OAUTHBEARER, token_file: /token, for_clients: true}}
listeners:
- {name: gate, listen: 0.0.0.0:9092, advertised_host: h, sasl: {mechanisms: [SCRAM-SHA-512, PLAIN], users_file: /users, session_lifetime: 1h, allow_plain_without_tls: true}}
- {name: open, listen: 0.0.0.0:9192, advertised_host: h}
`))
	if err != nil {
		t.Fatal(err)
	}
	login := settings.Proxy.Listeners[0].Login
	if login == nil || !slices.Equal(login.Mechanisms, []proxy.Mechanism{proxy.ScramSHA512, proxy.Plain}) || login.Lifetime != time.Hour || settings.ListenerUsers["gate"] != "/users" {
		t.Errorf("got %+v and users %v", login, settings.ListenerUsers)
	}
	if c := settings.Proxy.Credentials; c.Mechanism != proxy.OAuthBearer || !c.ForClients || settings.Password.File != "/token" {
		t.Errorf("got %+v", c)
	}
	effective := settings.Effective()
	var text strings.Builder
	if _, err := effective.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"users of /users log in by SCRAM-SHA-512, PLAIN, for 1h", "by OAUTHBEARER, the token from file /token", "for clients too",
		"whoever reaches listener open acts as the proxy",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	shown, err := json.Marshal(effective)
	if err != nil || !strings.Contains(string(shown), `"sasl":{"mechanisms":["SCRAM-SHA-512","PLAIN"],"users_file":"/users","session_lifetime":"1h`) {
		t.Errorf("got %v, %s", err, shown)
	}
	other := settings.Effective()
	other.SASL.ForClients = false
	if got := effective.Differences(other); !slices.Equal(got, []string{"upstream.sasl"}) {
		t.Errorf("got differences %q", got)
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	gate := func(listen, sasl string) string {
		return "bootstrap: k:1\nlisteners: [{name: gate, listen: '" + listen + "', advertised_host: h, sasl: " + sasl + "}]"
	}
	for want, content := range map[string]string{
		"listeners[0].sasl.mechanisms: missing":         gate("127.0.0.1:9092", "{users_file: u}"),
		"listeners[0].sasl.mechanisms: \"GSSAPI\"":      gate("127.0.0.1:9092", "{users_file: u, mechanisms: GSSAPI}"),
		"PLAIN is given twice":                          gate("127.0.0.1:9092", "{users_file: u, mechanisms: [PLAIN, PLAIN]}"),
		"listeners[0].sasl.users_file: missing":         gate("127.0.0.1:9092", "{mechanisms: PLAIN}"),
		"anybody on the way reads the passwords":        gate("0.0.0.0:9092", "{users_file: u, mechanisms: PLAIN}"),
		"listeners[0].sasl.session_lifetime":            gate("127.0.0.1:9092", "{users_file: u, mechanisms: PLAIN, session_lifetime: 1ms}"),
		"upstream.sasl.token_file: missing":             "bootstrap: k:1\nupstream: {sasl: {mechanism: OAUTHBEARER}}",
		"upstream.sasl.user: belongs":                   "bootstrap: k:1\nupstream: {sasl: {mechanism: OAUTHBEARER, token_file: t, user: u}}",
		"upstream.sasl.token_file: belongs":             "bootstrap: k:1\nupstream: {sasl: {mechanism: PLAIN, token_file: t, user: u, password_env: E}}",
		"upstream.sasl.mechanism: missing":              "bootstrap: k:1\nupstream: {sasl: {for_clients: true}}",
		"upstream.sasl.for_clients: \"maybe\" is neith": "bootstrap: k:1\nupstream: {sasl: {mechanism: OAUTHBEARER, token_file: t, for_clients: maybe}}",
	} {
		_, err := Parse("f.yaml", []byte(content))
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, good := range []string{
		gate("127.0.0.1:9092", "{users_file: u, mechanisms: PLAIN}"),
		gate("0.0.0.0:9092", "{users_file: u, mechanisms: SCRAM-SHA-256}"),
	} {
		if _, err := Parse("f.yaml", []byte(good)); err != nil {
			t.Errorf("got %v", err)
		}
	}
}
