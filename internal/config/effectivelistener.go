package config

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// EffectiveListener is one listener of an Effective, in the words of the file.
type EffectiveListener struct {
	// Name stands for it in logs and metrics.
	Name string `json:"name"`
	// Listen is the host:port that clients connect to first.
	Listen string `json:"listen"`
	// AdvertisedHost is the host name that clients are told.
	AdvertisedHost string `json:"advertised_host,omitempty"`
	// BrokerPorts is the range of the brokers' ports as first-last.
	BrokerPorts string `json:"broker_ports,omitempty"`
	// NodePorts are exceptions, port by node id.
	NodePorts map[int32]int `json:"node_ports,omitempty"`
	// ServerNames is how brokers are told apart on one port; nil: by ports.
	ServerNames *EffectiveServerNames `json:"server_names,omitempty"`
	// TLS is what clients are spoken to with; nil: plain.
	TLS *EffectiveTLS `json:"tls,omitempty"`
	// SASL is who logs in at the proxy; nil: nobody.
	SASL *EffectiveLogin `json:"sasl,omitempty"`
	// AllowAPIs are all that may be used, by name; empty: all that DenyAPIs leaves.
	AllowAPIs []string `json:"allow_apis,omitempty"`
	// DenyAPIs may not be used, by name.
	DenyAPIs []string `json:"deny_apis,omitempty"`
	// ReadOnly reports whether nothing may be changed.
	ReadOnly bool `json:"read_only,omitempty"`
	// ProxyProtocolFrom are those who say whom clients come from; empty: clients
	// come themselves.
	ProxyProtocolFrom []string `json:"proxy_protocol_from,omitempty"`
}

// EffectiveServerNames is server_names.
type EffectiveServerNames struct {
	// Domain is what brokers' names end in.
	Domain string `json:"domain"`
	// Bootstrap is the name that clients connect to first.
	Bootstrap string `json:"bootstrap"`
	// Port is what clients are told; 0: that of listen.
	Port int `json:"port,omitempty"`
}

// EffectiveTLS is one side of TLS, by the names of its files.
type EffectiveTLS struct {
	// CertFile is the path of tlsfiles.Files.Cert.
	CertFile string `json:"cert_file,omitempty"`
	// KeyFile is the path of tlsfiles.Files.Key.
	KeyFile string `json:"key_file,omitempty"`
	// CAFile is the path of tlsfiles.Files.CA.
	CAFile string `json:"ca_file,omitempty"`
	// ClientAuth is none, want or require; empty for brokers.
	ClientAuth string `json:"client_auth,omitempty"`
	// ServerName is what brokers are asked for; empty: the host that is dialled.
	ServerName string `json:"server_name,omitempty"`
	// MinVersion is 1.2 or 1.3.
	MinVersion string `json:"min_version"`
}

var clientAuthNames = map[tls.ClientAuthType]string{
	tls.NoClientCert: "none", tls.VerifyClientCertIfGiven: "want", tls.RequireAndVerifyClientCert: "require",
}

func effectiveTLS(f tlsfiles.Files) *EffectiveTLS {
	e := &EffectiveTLS{CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA, ServerName: f.ServerName}
	for name, version := range tlsVersions {
		if version == f.MinVersion {
			e.MinVersion = name
		}
	}
	return e
}

func (s *Settings) effectiveListener(l proxy.Listener) EffectiveListener {
	e := EffectiveListener{
		Name: l.Name, Listen: l.Listen, AdvertisedHost: l.AdvertisedHost, BrokerPorts: portRange(l.BrokerPorts), NodePorts: l.NodePorts,
		AllowAPIs: apiNames(l.Access.Allow), DenyAPIs: apiNames(l.Access.Deny), ReadOnly: l.Access.ReadOnly,
	}
	if l.ProxyProtocol != nil {
		for _, of := range l.ProxyProtocol.From {
			e.ProxyProtocolFrom = append(e.ProxyProtocolFrom, of.String())
		}
	}
	if n := l.ServerNames; n != nil {
		e.ServerNames = &EffectiveServerNames{Domain: n.Domain, Bootstrap: n.Bootstrap, Port: n.Port}
	}
	e.SASL = s.effectiveLogin(l)
	if files, secured := s.ListenerTLS[l.Name]; secured {
		e.TLS = effectiveTLS(files)
		e.TLS.ClientAuth = clientAuthNames[files.ClientAuth]
	}
	return e
}

// write tells a listener to a person.
func (e EffectiveListener) write(line func(name, format string, args ...any)) {
	switch n := e.ServerNames; {
	case n != nil:
		port := n.Port
		if port == 0 {
			port = portOf(e.Listen)
		}
		told := strconv.Itoa(port)
		if port == 0 {
			told = "the port that is free"
		}
		line("clients connect to", "%s as %s, and are told broker-<node id>.%s:%s", e.Listen, n.Bootstrap, n.Domain, told)
	default:
		line("clients connect to", "%s, and are told the host %s", e.Listen, e.AdvertisedHost)
		if first, _, given := strings.Cut(e.BrokerPorts, "-"); given {
			line("broker ports", "%s: node id n on %s+n", e.BrokerPorts, first)
		} else {
			line("broker ports", "any free port for each broker")
		}
		for _, node := range slices.Sorted(maps.Keys(e.NodePorts)) {
			line("", "node id %d on %d", node, e.NodePorts[node])
		}
	}
	e.SASL.write(line)
	if e.ReadOnly {
		line("", "read-only: who appends or changes anything is refused")
	}
	if len(e.AllowAPIs) > 0 {
		line("", "only %s may be used", strings.Join(e.AllowAPIs, ", "))
	}
	if len(e.DenyAPIs) > 0 {
		line("", "%s may not be used", strings.Join(e.DenyAPIs, ", "))
	}
	if len(e.ProxyProtocolFrom) > 0 {
		line("", "only from %s, which say in a PROXY header whom clients come from", strings.Join(e.ProxyProtocolFrom, ", "))
	}
	if e.TLS != nil {
		clients := "are not asked who they are"
		if e.TLS.ClientAuth != "none" {
			clients = fmt.Sprintf("show certificates (%s) of the authorities in %s", e.TLS.ClientAuth, e.TLS.CAFile)
		}
		line("", "in TLS %s or later by %s; clients %s", e.TLS.MinVersion, e.TLS.CertFile, clients)
	}
}

func portRange(r proxy.PortRange) string {
	if r == (proxy.PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
