package proxy

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Listener is where clients come in, and what they are told of where brokers are.
type Listener struct {
	// Name stands for it in logs and metrics; default: Listen.
	Name string
	// Listen is the host:port that clients bootstrap from. Port 0 picks one.
	Listen string
	// AdvertisedHost is the host name told to clients for every broker;
	// default: the host of Listen, or 127.0.0.1 if that is unspecified. With
	// ServerNames it is not used.
	AdvertisedHost string
	// BrokerPorts is where brokers are served. The zero value means: the
	// ports after Listen's (Listen+1+n for node id n), up to where another
	// listener's begin, or, with Listen port 0, any free port for each broker.
	BrokerPorts PortRange
	// NodePorts overrides BrokerPorts for single node ids.
	NodePorts map[int32]int
	// ServerNames, if not nil, has all brokers served on Listen, told apart by
	// the name that TLS clients ask for (SNI); it needs TLS. BrokerPorts and
	// NodePorts are empty then.
	ServerNames *ServerNames
	// TLS, if not nil, is what clients are spoken to with. Its callbacks are called
	// by several goroutines. It is not copied, and must not change.
	TLS *tls.Config
	// Login, if not nil, has clients log in at the proxy. It must not change.
	Login *LocalLogin
	// Access bounds what may be asked here; the zero value: nothing.
	Access Access
	// ProxyProtocol, if not nil, has every connection begin with a header that says
	// whom it comes from.
	ProxyProtocol *ProxyProtocol
}

// ServerNames is how brokers are told apart by the server name of TLS (RFC 6066,
// section 3): the one with node id n is broker-n.Domain.
type ServerNames struct {
	// Domain is what brokers' names end in, without a leading dot.
	Domain string
	// Bootstrap is the name that clients bootstrap from; default: Domain. A client
	// that asks for no name is taken to bootstrap too.
	Bootstrap string
	// Port is the port told to clients; default: that of Listen.
	Port int
}

// brokerPrefix begins the name of a broker's.
const brokerPrefix = "broker-"

// host is the name of a broker.
func (s *ServerNames) host(node int32) string {
	return brokerPrefix + strconv.Itoa(int(node)) + "." + s.Domain
}

// node says whom a client that asks for a server name wants: a broker, or any
// (unknownNode) to bootstrap from. False: nobody has that name.
func (s *ServerNames) node(serverName string) (int32, bool) {
	name := strings.ToLower(strings.TrimSuffix(serverName, "."))
	if name == "" || name == s.Bootstrap {
		return unknownNode, true
	}
	return s.broker(name)
}

// broker gives the node id of a broker's name, in lower case.
func (s *ServerNames) broker(name string) (int32, bool) {
	label, domain, _ := strings.Cut(name, ".")
	digits, isBroker := strings.CutPrefix(label, brokerPrefix)
	if !isBroker || domain != s.Domain {
		return unknownNode, false
	}
	id, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || id < 0 || strconv.FormatInt(id, 10) != digits {
		return unknownNode, false
	}
	return int32(id), true
}

// AllListeners are the one that Listen and the fields with it describe, if Listen
// is given, and Listeners.
func (c *Config) AllListeners() []Listener {
	if c.Listen == "" {
		return slices.Clone(c.Listeners)
	}
	return append([]Listener{{
		Name: c.Listen, Listen: c.Listen, AdvertisedHost: c.AdvertisedHost, BrokerPorts: c.BrokerPorts, NodePorts: c.NodePorts,
	}}, c.Listeners...)
}

// listenerField names a field of the i-th of AllListeners.
func (c *Config) listenerField(i int, field string) string {
	if c.Listen != "" {
		if i == 0 {
			return field
		}
		i--
	}
	return fmt.Sprintf("Listeners[%d].%s", i, field)
}

// fillInListeners checks all listeners and replaces what is not given.
func (c *Config) fillInListeners() error {
	all := c.AllListeners()
	if len(all) == 0 {
		return badField("Listen", "missing, and there are no Listeners")
	}
	wrong := func(i int, bad *ConfigError) error {
		return &ConfigError{Field: c.listenerField(i, bad.Field), Reason: bad.Reason}
	}
	for i := range all {
		if bad := all[i].fillIn(); bad != nil {
			return wrong(i, bad)
		}
	}
	for i := range all {
		if bad := all[i].apart(all[:i]); bad != nil {
			return wrong(i, bad)
		}
	}
	// What is filled in now keeps clear of all that is given.
	for i := range all {
		if bad := all[i].fillInPorts(all); bad != nil {
			return wrong(i, bad)
		}
	}
	if c.Listen != "" {
		c.AdvertisedHost, c.BrokerPorts = all[0].AdvertisedHost, all[0].BrokerPorts
		all = all[1:]
	}
	if len(all) > 0 {
		c.Listeners = all
	}
	return nil
}

func wrongListener(field, format string, args ...any) *ConfigError {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// fillIn checks what stands for itself.
func (l *Listener) fillIn() *ConfigError {
	host, port, err := splitAddress(l.Listen)
	if err != nil {
		return wrongListener("Listen", "%q is not host:port", l.Listen)
	}
	if l.Name == "" {
		l.Name = l.Listen
	}
	if bad := l.Access.validate(); bad != nil {
		return bad
	}
	if bad := l.fillInProxyProtocol(host); bad != nil {
		return bad
	}
	if l.Login != nil {
		if bad := l.Login.validate(); bad != nil {
			return bad
		}
	}
	if l.ServerNames != nil {
		if l.TLS == nil {
			return wrongListener("ServerNames", "clients name a server in TLS only, and TLS is not given")
		}
		if l.BrokerPorts != (PortRange{}) || len(l.NodePorts) > 0 {
			return wrongListener("ServerNames", "all brokers are on the one port then, and BrokerPorts or NodePorts are given too")
		}
		names := *l.ServerNames
		names.Domain = strings.ToLower(names.Domain)
		if names.Bootstrap == "" {
			names.Bootstrap = names.Domain
		}
		names.Bootstrap = strings.ToLower(names.Bootstrap)
		switch {
		case names.Domain == "" || strings.HasPrefix(names.Domain, "."):
			return wrongListener("ServerNames.Domain", "%q is not a domain", names.Domain)
		case names.Port < 0 || names.Port > maxPort:
			return wrongListener("ServerNames.Port", "%d is not a port", names.Port)
		}
		if node, ok := names.broker(names.Bootstrap); ok {
			return wrongListener("ServerNames.Bootstrap", "%q is the name of broker %d", names.Bootstrap, node)
		}
		l.ServerNames = &names
		return nil
	}
	if l.AdvertisedHost == "" {
		l.AdvertisedHost = host
		if IsUnspecifiedHost(host) {
			l.AdvertisedHost = "127.0.0.1"
		}
	}
	r := l.BrokerPorts
	if r != (PortRange{}) && (r.First < 1 || r.Last > maxPort || r.First > r.Last) {
		return wrongListener("BrokerPorts", "%d-%d is not a range of ports", r.First, r.Last)
	}
	if port != 0 && r.First <= port && port <= r.Last {
		return wrongListener("BrokerPorts", "%d-%d holds the port of Listen", r.First, r.Last)
	}
	used := map[int]int32{}
	for node, p := range l.NodePorts {
		if p < 1 || p > maxPort || p == port {
			return wrongListener("NodePorts", "port %d of node %d cannot be used", p, node)
		}
		if other, taken := used[p]; taken {
			return wrongListener("NodePorts", "nodes %d and %d share port %d", min(node, other), max(node, other), p)
		}
		used[p] = node
	}
	return nil
}

// apart checks that a listener shares no name and no given port with others.
func (l *Listener) apart(others []Listener) *ConfigError {
	for j := range others {
		if others[j].Name == l.Name {
			return wrongListener("Name", "%q is another listener's", l.Name)
		}
		if port := l.clash(&others[j]); port != 0 {
			return wrongListener("Listen", "port %d is one that listener %s uses", port, others[j].Name)
		}
	}
	return nil
}

// fillInPorts gives a listener a range of ports if it has none: what follows its
// own, up to the next that another listener uses.
func (l *Listener) fillInPorts(all []Listener) *ConfigError {
	_, port, _ := splitAddress(l.Listen) // checked by fillIn
	if l.ServerNames != nil || l.BrokerPorts != (PortRange{}) || port == 0 {
		return nil
	}
	end := maxPort
	for j := range all {
		if other := &all[j]; other != l && l.meets(other) {
			for _, first := range other.firstPorts() {
				if first > port {
					end = min(end, first-1)
				}
			}
		}
	}
	if end <= port {
		return wrongListener("BrokerPorts", "missing: another listener uses the ports after %d", port)
	}
	l.BrokerPorts = PortRange{First: port + 1, Last: end}
	return nil
}

// firstPorts are the ports at which what a listener uses begins; 0 is any.
func (l *Listener) firstPorts() []int {
	_, port, _ := splitAddress(l.Listen)
	ports := []int{port, l.BrokerPorts.First}
	for _, p := range l.NodePorts {
		ports = append(ports, p)
	}
	return ports
}

// meets reports whether two listeners share an address, so that their ports have to
// differ.
func (l *Listener) meets(other *Listener) bool {
	mine, _, _ := splitAddress(l.Listen)
	theirs, _, _ := splitAddress(other.Listen)
	return mine == theirs || IsUnspecifiedHost(mine) || IsUnspecifiedHost(theirs)
}

// clash gives a port that two listeners use; 0: there is none.
func (l *Listener) clash(other *Listener) int {
	_, port, _ := splitAddress(l.Listen)
	_, otherPort, _ := splitAddress(other.Listen)
	if !l.meets(other) {
		return 0
	}
	for _, p := range l.NodePorts {
		if other.uses(p, otherPort) {
			return p
		}
	}
	for _, p := range other.NodePorts {
		if l.uses(p, port) {
			return p
		}
	}
	switch a, b := l.BrokerPorts, other.BrokerPorts; {
	case other.uses(port, otherPort):
		return port
	case l.uses(otherPort, port):
		return otherPort
	case a != (PortRange{}) && b != (PortRange{}) && a.First <= b.Last && b.First <= a.Last:
		return max(a.First, b.First)
	}
	return 0
}

// uses reports whether a port is among a listener's; own is that of Listen.
func (l *Listener) uses(port, own int) bool {
	if port == 0 {
		return false
	}
	if port == own || l.BrokerPorts.First <= port && port <= l.BrokerPorts.Last {
		return true
	}
	for _, p := range l.NodePorts {
		if p == port {
			return true
		}
	}
	return false
}

// BrokerPort gives the port on which a node is served; 0 means any. False: on none, so
// that clients do not see it. It means nothing with ServerNames. l is in force.
func (l *Listener) BrokerPort(node int32) (int, bool) {
	if port, ok := l.NodePorts[node]; ok {
		return port, true
	}
	r := l.BrokerPorts
	if r == (PortRange{}) {
		return 0, true
	}
	if int64(r.First)+int64(node) > int64(r.Last) {
		return 0, false
	}
	port := r.First + int(node)
	for _, taken := range l.NodePorts {
		if taken == port {
			return 0, false
		}
	}
	return port, true
}

// Host is the name that clients are told for the broker with a node id.
func (l *Listener) Host(node int32) string {
	if l.ServerNames != nil {
		return l.ServerNames.host(node)
	}
	return l.AdvertisedHost
}

// CertificateHosts are the host names that its certificate has to be good for, so that
// clients which check it get through: what they are told for brokers, of which one
// stands for all, and with ServerNames also what they bootstrap from. The configuration
// has to be in force (see Config.InForce).
func (l *Listener) CertificateHosts() []string {
	if l.ServerNames != nil {
		return []string{l.ServerNames.Bootstrap, l.Host(0)}
	}
	return []string{l.AdvertisedHost}
}
