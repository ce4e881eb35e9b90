package main

import (
	"net"

	"github.com/offsetproxy/offsetproxy/internal/appender"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// clientFlags are how a command that is a client of Kafka speaks TLS and logs in.
// They are named as those with which serve and doctor do so.
type clientFlags struct {
	TLS              bool    `name:"tls" help:"Speak TLS; so do the next flags." group:"client"`
	TLSCAFile        *string `name:"tls-ca-file" help:"PEM file of the authorities that are trusted; default: the system's." placeholder:"FILE" group:"client"`
	TLSCertFile      *string `name:"tls-cert-file" help:"PEM file of the certificate to show." placeholder:"FILE" group:"client"`
	TLSKeyFile       *string `name:"tls-key-file" help:"PEM file of its private key." placeholder:"FILE" group:"client"`
	TLSServerName    *string `name:"tls-server-name" help:"Name that certificates must have; default: the host that is dialled." placeholder:"HOST" group:"client"`
	TLSMinVersion    *string `name:"tls-min-version" help:"Least version of TLS, 1.2 or 1.3; default 1.2." placeholder:"VERSION" group:"client"`
	SASLMechanism    *string `name:"sasl-mechanism" help:"How to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER." placeholder:"NAME" group:"client"`
	SASLUser         *string `name:"sasl-user" help:"The user to log in as." placeholder:"USER" group:"client"`
	SASLPasswordFile *string `name:"sasl-password-file" help:"File with that user's password." placeholder:"FILE" group:"client"`
	SASLPasswordEnv  *string `name:"sasl-password-env" help:"Environment variable with that user's password." placeholder:"NAME" group:"client"`
	SASLTokenFile    *string `name:"sasl-token-file" help:"File with the token of OAUTHBEARER." placeholder:"FILE" group:"client"`
}

// clientWay is how connections of a command are opened.
type clientWay struct {
	// dial opens them, in TLS if that is wanted.
	dial  appender.Dial
	login proxy.Credentials
}

// way understands the flags. What they name must be there.
func (f *clientFlags) way() (*clientWay, error) {
	same := settingFlags{
		Bootstrap: []string{"any:1"}, TLS: f.TLS, TLSCAFile: f.TLSCAFile, TLSCertFile: f.TLSCertFile, TLSKeyFile: f.TLSKeyFile,
		TLSServerName: f.TLSServerName, TLSMinVersion: f.TLSMinVersion, SASLMechanism: f.SASLMechanism, SASLUser: f.SASLUser,
		SASLPasswordFile: f.SASLPasswordFile, SASLPasswordEnv: f.SASLPasswordEnv, SASLTokenFile: f.SASLTokenFile,
	}
	settings, err := resolveFlags(same.document(logFlags{}))
	if err != nil {
		return nil, err
	}
	w := &clientWay{dial: new(net.Dialer).DialContext, login: settings.Proxy.Credentials}
	if settings.UpstreamTLS != nil {
		store, err := tlsfiles.Load(*settings.UpstreamTLS)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		w.dial = (&tlsfiles.Dialer{Store: store, OfFlags: true}).DialContext
	}
	if w.login.Mechanism != proxy.NoLogin {
		if _, err := settings.Password.Read(); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	return w, nil
}

// loggedIn opens connections that have logged in, if that is wanted.
func (w *clientWay) loggedIn() appender.Dial {
	if login := w.login.SASL(); login != nil {
		return appender.LoggedIn(w.dial, login, clientID)
	}
	return w.dial
}

// credentials are those for a proxy, which logs in with them for its clients too.
func (w *clientWay) credentials() proxy.Credentials {
	c := w.login
	c.ForClients = c.Mechanism != proxy.NoLogin
	return c
}
