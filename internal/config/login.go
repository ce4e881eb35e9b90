package config

import (
	"slices"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// ListenerSASL has clients log in at the proxy; absent: brokers ask them, if anybody
// does.
type ListenerSASL struct {
	// Mechanisms is proxy.LocalLogin.Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.
	Mechanisms Values `yaml:"mechanisms"`
	// UsersFile is Settings.ListenerUsers.
	UsersFile Value `yaml:"users_file"`
	// SessionLifetime is proxy.LocalLogin.Lifetime, a length of time.
	SessionLifetime Value `yaml:"session_lifetime"`
	// AllowPlainWithoutTLS is true or false; default false: with PLAIN a listener that
	// others than this machine can reach must speak TLS.
	AllowPlainWithoutTLS Value `yaml:"allow_plain_without_tls"`
}

// mostLifetime bounds a login at the proxy.
const mostLifetime = 30 * 24 * time.Hour

// listenerSASL understands who logs in at a listener, whose TLS is understood.
func (r *resolver) listenerSASL(d ListenerSASL, path string, l *proxy.Listener) {
	place := first(first(d.Mechanisms...), d.UsersFile, d.SessionLifetime, d.AllowPlainWithoutTLS)
	if !place.given {
		return
	}
	login := &proxy.LocalLogin{Lifetime: r.duration(d.SessionLifetime, path+".session_lifetime", 0, time.Second, mostLifetime)}
	names := mechanismNames(proxy.PasswordMechanisms())
	for _, v := range d.Mechanisms {
		switch m := proxy.Mechanism(v.text); {
		case !slices.Contains(names, v.text):
			r.wrong(v, path+".mechanisms", "%q is not a mechanism by which users log in here; %s are", v.text, strings.Join(names, ", "))
		case slices.Contains(login.Mechanisms, m):
			r.wrong(v, path+".mechanisms", "%s is given twice", v.text)
		default:
			login.Mechanisms = append(login.Mechanisms, m)
		}
	}
	if len(d.Mechanisms) == 0 {
		r.wrong(place, path+".mechanisms", "missing: some of %s", strings.Join(names, ", "))
	}
	if d.UsersFile.text == "" {
		r.wrong(place, path+".users_file", "missing: the file with the users and their passwords or verifiers (see `offsetproxy user`)")
	}
	allowed := false
	r.yesOrNo(d.AllowPlainWithoutTLS, path+".allow_plain_without_tls", &allowed)
	if slices.Contains(login.Mechanisms, proxy.Plain) && l.TLS == nil && !onLoopback(l.Listen) && !allowed {
		r.wrong(first(d.Mechanisms...), path+".mechanisms", "with PLAIN anybody on the way reads the passwords: give the listener tls, leave PLAIN out, "+
			"or set allow_plain_without_tls if whatever is in front of it speaks TLS")
	}
	if len(login.Mechanisms) == 0 {
		return
	}
	if r.out.ListenerUsers == nil {
		r.out.ListenerUsers = map[string]string{}
	}
	r.out.ListenerUsers[l.Name] = d.UsersFile.text
	// Whoever starts the proxy reads the file.
	l.Login = login
}

// whoClientsAre notes where that may not be what is meant.
func (r *resolver) whoClientsAre() {
	p := &r.out.Proxy
	for _, l := range p.AllListeners() {
		files, inTLS := r.out.ListenerTLS[l.Name]
		switch {
		case l.Login != nil && !p.Credentials.ForClients:
			r.note("users log in at listener %s, and upstream.sasl.for_clients is not set: brokers must take connections of anybody there", l.Name)
		case l.Login == nil && p.Credentials.ForClients && !onLoopback(l.Listen) && (!inTLS || files.CA == ""):
			r.note("whoever reaches listener %s acts as the proxy at the brokers: give it sasl with users, or tls with client_ca_file", l.Name)
		}
	}
}

// onLoopback reports whether only this machine can reach an address.
func onLoopback(address string) bool {
	host, _, err := splitAddress(address)
	return err == nil && proxy.IsLoopbackHost(host)
}

func mechanismNames(all []proxy.Mechanism) []string {
	var names []string
	for _, m := range all {
		names = append(names, string(m))
	}
	return names
}

// EffectiveLogin is who logs in at a listener.
type EffectiveLogin struct {
	// Mechanisms may be used.
	Mechanisms []string `json:"mechanisms"`
	// UsersFile has the users.
	UsersFile string `json:"users_file"`
	// SessionLifetime is for how long a login lasts; empty: as long as the connection.
	SessionLifetime string `json:"session_lifetime,omitempty"`
}

func (s *Settings) effectiveLogin(l proxy.Listener) *EffectiveLogin {
	if l.Login == nil {
		return nil
	}
	e := &EffectiveLogin{Mechanisms: mechanismNames(l.Login.Mechanisms), UsersFile: s.ListenerUsers[l.Name]}
	if l.Login.Lifetime > 0 {
		e.SessionLifetime = duration(l.Login.Lifetime)
	}
	return e
}

// write tells it to a person.
func (e *EffectiveLogin) write(line func(name, format string, args ...any)) {
	if e == nil {
		return
	}
	lasts := "as long as the connection"
	if e.SessionLifetime != "" {
		lasts = e.SessionLifetime
	}
	line("", "users of %s log in by %s, for %s", e.UsersFile, strings.Join(e.Mechanisms, ", "), lasts)
}
