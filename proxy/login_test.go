package proxy_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
)

const secret = "open-sesame"

func credentials(mechanism proxy.Mechanism) proxy.Credentials {
	if mechanism == proxy.OAuthBearer {
		return proxy.Credentials{Mechanism: mechanism, Password: func() (string, error) { return secret, nil }}
	}
	return proxy.Credentials{Mechanism: mechanism, User: "proxy", Password: func() (string, error) { return secret, nil }}
}

// TestProxyLogsIn finds brokers that talk to nobody else, and shows that they
// would not have talked to it without.
func TestProxyLogsIn(t *testing.T) {
	for _, mechanism := range proxy.PasswordMechanisms() {
		t.Run(string(mechanism), func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(string(mechanism), "proxy", secret))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			p := start(t, proxy.Config{Bootstrap: cluster.ListenAddrs(), Credentials: credentials(mechanism)})
			if got := len(p.BrokerAddrs()); got != 1 {
				t.Errorf("got %d brokers, want 1", got)
			}
			if p.log.count(secret) > 0 {
				t.Error("the password is in the log")
			}
			without := startUnready(t, proxy.Config{Bootstrap: cluster.ListenAddrs()})
			without.awaitLog("expect a login (SASL)")
		})
	}
}

// TestLoginRefused is told in words, with the secret in none of them.
func TestLoginRefused(t *testing.T) {
	handshake, authenticate := kmsg.NewPtrSASLHandshakeResponse(), kmsg.NewPtrSASLAuthenticateResponse()
	for _, c := range []struct {
		name      string
		mechanism proxy.Mechanism
		// change makes the answers of a broker that lets the proxy in others.
		change func()
		want   string
	}{
		{"wrong password", proxy.Plain, func() {
			authenticate.ErrorCode, authenticate.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Invalid username or password")
		}, "Invalid username or password"},
		{"a token that has ended", proxy.OAuthBearer, func() {
			authenticate.ErrorCode, authenticate.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr(`{"status":"invalid_token"}`)
		}, "the token has expired, or is not for these brokers"},
		{"another mechanism", proxy.Plain, func() {
			handshake.ErrorCode, handshake.SupportedMechanisms = kerr.UnsupportedSaslMechanism.Code, []string{"GSSAPI", "OAUTHBEARER"}
		}, "the broker does not take PLAIN, only GSSAPI, OAUTHBEARER"},
		{"a port without login", proxy.Plain, func() { handshake.ErrorCode = kerr.IllegalSaslState.Code }, "does not expect a login on this port"},
		{"a broker that does not prove itself", proxy.ScramSHA256, func() { authenticate.SASLAuthBytes = []byte("r=x,s=AA==,i=4096") }, "the broker's proof"},
	} {
		t.Run(c.name, func(t *testing.T) {
			*handshake, *authenticate = kmsg.NewSASLHandshakeResponse(), kmsg.NewSASLAuthenticateResponse()
			c.change()
			server := kafkatest.NewServer(t, func(conn *kafkatest.Conn) {
				for r, ok := conn.Next(); ok; r, ok = conn.Next() {
					switch r.APIKey {
					case int16(kmsg.SASLHandshake):
						conn.Answer(r, handshake)
					case int16(kmsg.SASLAuthenticate):
						conn.Answer(r, authenticate)
					default:
						t.Errorf("got a request with api key %d before the login was done", r.APIKey)
					}
				}
			})
			defer server.Close()
			p := startUnready(t, proxy.Config{Bootstrap: []string{server.Addr()}, Credentials: credentials(c.mechanism)})
			p.awaitLog(c.want)
			if p.log.count(secret) > 0 {
				t.Error("the password is in the log")
			}
			p.stop()
			p.wait()
		})
	}
}

// TestPasswordThatCannotBeRead is the operator's to mend, not a reason to send
// an empty one.
func TestPasswordThatCannotBeRead(t *testing.T) {
	for _, mechanism := range proxy.PasswordMechanisms() {
		server := kafkatest.NewServer(t, func(conn *kafkatest.Conn) {
			for r, ok := conn.Next(); ok; r, ok = conn.Next() {
				if r.APIKey != int16(kmsg.SASLHandshake) {
					t.Errorf("%s: got a request with api key %d without a password", mechanism, r.APIKey)
				}
				conn.Answer(r, kmsg.NewPtrSASLHandshakeResponse())
			}
		})
		cfg := proxy.Config{Bootstrap: []string{server.Addr()}, Credentials: credentials(mechanism)}
		cfg.Credentials.Password = func() (string, error) { return "", errors.New("no such file") }
		p := startUnready(t, cfg)
		p.awaitLog("no such file")
		p.stop()
		p.wait()
	}
}

func TestIncompleteCredentials(t *testing.T) {
	password := func() (string, error) { return secret, nil }
	for field, c := range map[string]proxy.Credentials{
		"Credentials.Mechanism": {User: "proxy", Password: password},
		"Credentials.User":      {Mechanism: proxy.Plain, Password: password},
		"Credentials.Password":  {Mechanism: proxy.Plain, User: "proxy"},
	} {
		_, err := proxy.New(proxy.Config{Bootstrap: []string{"kafka:9092"}, Listen: "127.0.0.1:0", Credentials: c})
		var bad *proxy.ConfigError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("got %v, want a *ConfigError about %s", err, field)
		}
	}
	for field, c := range map[string]proxy.Credentials{
		"Credentials.Mechanism": {Mechanism: "GSSAPI", User: "proxy", Password: password},
		"Credentials.User":      {Mechanism: proxy.Plain, User: "pro\x00xy", Password: password},
	} {
		_, err := proxy.New(proxy.Config{Bootstrap: []string{"kafka:9092"}, Listen: "127.0.0.1:0", Credentials: c})
		var bad *proxy.ConfigError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("got %v, want a *ConfigError about %s", err, field)
		}
	}
}

// A token that somebody else has issued is read anew for each login.
func TestProxyLogsInByToken(t *testing.T) {
	tokens := make(chan string, 100) // what the broker has seen
	var server *kafkatest.Server
	server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			switch r.APIKey {
			case int16(kmsg.SASLAuthenticate):
				request, err := r.Decode()
				if err != nil {
					t.Error(err)
					return
				}
				tokens <- string(request.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
				c.Answer(r, kmsg.NewPtrSASLAuthenticateResponse())
			case int16(kmsg.Metadata):
				c.Answer(r, kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: server.Port()}))
			default:
				c.Answer(r, kmsg.ResponseForKey(r.APIKey))
			}
		}
	})
	var issued atomic.Int64
	p := start(t, proxy.Config{Bootstrap: []string{server.Addr()}, Credentials: proxy.Credentials{
		Mechanism: proxy.OAuthBearer, ForClients: true,
		Password: func() (string, error) { return fmt.Sprintf("token-%d", issued.Add(1)), nil },
	}})
	if got, want := <-tokens, "n,,\x01auth=Bearer token-1\x01\x01"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	if got := c.NextID(); got != 1 {
		t.Errorf("got an answer to %d", got)
	}
	if got, before := <-tokens, "n,,\x01auth=Bearer token-1\x01\x01"; got == before {
		t.Errorf("got %q again", got)
	}
	if p.log.count("token-") > 0 {
		t.Error("a token is in the log")
	}
}

// Where brokers do not let the proxy in, its clients are cut as by a broker that is
// down, and the log says why.
func TestLoginForClientsRefused(t *testing.T) {
	var refuse atomic.Bool
	var server *kafkatest.Server
	server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			answer := kmsg.ResponseForKey(r.APIKey)
			switch r.APIKey {
			case int16(kmsg.SASLAuthenticate):
				if refuse.Load() {
					answer.(*kmsg.SASLAuthenticateResponse).ErrorCode = kerr.SaslAuthenticationFailed.Code
				}
			case int16(kmsg.Metadata):
				answer = kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: server.Port()})
			}
			c.Answer(r, answer)
		}
	})
	cfg := proxy.Config{Bootstrap: []string{server.Addr()}, Credentials: credentials(proxy.Plain)}
	cfg.Credentials.ForClients = true
	p := start(t, cfg)
	refuse.Store(true)
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, listGroups())
	if rest := c.ExpectClosed(); len(rest) > 0 {
		t.Errorf("got %x", rest)
	}
	p.awaitLog("brokers do not let the proxy in")
	if got := p.metric("offsetproxy.upstream.logins", "refused"); got < 1 {
		t.Errorf("got %d refused logins, want 1", got)
	}
}
