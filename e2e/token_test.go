package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

// tokensTaken has the brokers of a secured cluster take tokens too, by the handlers
// that Kafka has without any setting: who a token is of, and until when, they take from
// it as it stands, unsigned.
func tokensTaken(properties map[string]string) map[string]string {
	properties["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
	properties["listener.name.clients.oauthbearer.sasl.jaas.config"] = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
	return properties
}

// token makes one of a user's that ends at a time (RFC 7519, section 6).
func token(t *testing.T, user string, end time.Time) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"sub": user, "iat": end.Add(-2 * time.Hour).Unix(), "exp": float64(end.UnixMilli()) / 1000})
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// tokenFile is a file that something renews as a whole, as token services do.
type tokenFile struct {
	path string
	held []string // all tokens so far
}

func (f *tokenFile) renew(t *testing.T, token string) {
	t.Helper()
	next := f.path + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(token+"\n"), 0o600), os.Rename(next, f.path)); err != nil {
		t.Fatal(err)
	}
	f.held = append(f.held, token)
}

// logsInByToken: the proxy shows brokers what its file holds, for itself and for its
// clients, and what the file holds by then before a login ends. Beside that a client
// shows brokers tokens of its own through another proxy. lasts is for how long brokers
// let somebody in.
func logsInByToken(t *testing.T, s *secured, lasts time.Duration) {
	const shown, passed = "token-shown", "token-passed"
	for _, topic := range []string{shown, passed} {
		s.topic(t, topic, 1)
	}
	s.allow(t, "proxy", on{shown, append([]kadm.ACLOperation{kadm.OpWrite}, viewRights...)}, on{passed, viewRights})
	s.allow(t, "writer", on{passed, []kadm.ACLOperation{kadm.OpWrite}})
	hour := time.Now().Add(time.Hour)
	file := &tokenFile{path: filepath.Join(t.TempDir(), "token")}
	file.renew(t, token(t, "proxy", hour))
	p := newProxyProcess(t)
	p.brokers = securedBrokers
	p.start(t, program, "--bootstrap", s.Bootstrap(), "--listen", p.bootstrap, "--broker-ports", p.brokerPorts(), "--require", shown,
		"--sasl-mechanism", "OAUTHBEARER", "--sasl-token-file", file.path, "--sasl-for-clients")
	t.Cleanup(func() {
		for _, token := range file.held {
			if p.output.contains(token) {
				t.Error("the proxy's log holds a token")
			}
		}
	})
	passing := s.proxyAs(t, "proxy", "PLAIN", "--require", passed)
	bearer := func(user string, end time.Time) kgo.Opt {
		return kgo.SASL(oauth.Auth{Token: token(t, user, end)}.AsMechanism())
	}

	// One login by a token that ends; the file has its successor right after.
	end := time.Now().Add(2 * lasts)
	ending := token(t, "proxy", end)
	file.renew(t, ending)
	var ended disconnects
	watched := []kgo.Opt{kgo.WithHooks(&ended), kgo.RecordRetries(0)}
	clients := map[string]*kgo.Client{
		shown:  openClient(t, append(watched, kgo.SeedBrokers(p.bootstrap))...),
		passed: openClient(t, append(watched, kgo.SeedBrokers(passing.bootstrap), bearer("writer", hour))...),
	}
	next := 0
	appendOne := func(topic string) {
		t.Helper()
		if err := appendBy(t.Context(), clients[topic], topic, fmt.Sprint(next), "x"); err != nil {
			t.Fatalf("%s, at %d: %v", topic, next, err)
		}
	}
	appendOne(shown)
	file.renew(t, token(t, "proxy", hour))
	appendOne(passed)
	for next = 1; time.Now().Before(end.Add(lasts / 4)); next++ {
		appendOne(shown)
		appendOne(passed)
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d connections ended", n)
	}
	for topic, client := range clients {
		if err := appendBy(t.Context(), client, topic, "0", "late"); !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Errorf("%s, below the end: got %v, want OFFSET_OUT_OF_RANGE", topic, err)
		}
	}

	// What has ended, or is somebody else's.
	file.renew(t, ending)
	late, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer late.close()
	if _, err := late.metadata(shown); err == nil {
		t.Error("a client was served after the proxy's token had ended")
	}
	awaitLogged(t, p, "brokers do not let the proxy in")
	awaitLogged(t, p, `log in by OAUTHBEARER: refused with error code 58: {\"status\":\"invalid_token\"}: the token has expired, or is not for these brokers`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := openClient(t, kgo.SeedBrokers(passing.bootstrap), bearer("writer", end)).Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("an expired token: got %v, want SASL_AUTHENTICATION_FAILED", err)
	}
	stranger := openClient(t, kgo.SeedBrokers(passing.bootstrap), bearer("stranger", hour))
	if err := appendBy(ctx, stranger, passed, fmt.Sprint(next), "x"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("the token of one who may not write: got %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}
}
