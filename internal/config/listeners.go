package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Listener is where clients come in; in a file an item of listeners.
type Listener struct {
	// Name is proxy.Listener.Name.
	Name Value `yaml:"name"`
	// Listen is proxy.Listener.Listen.
	Listen Value `yaml:"listen"`
	// AdvertisedHost is proxy.Listener.AdvertisedHost.
	AdvertisedHost Value `yaml:"advertised_host"`
	// BrokerPorts is proxy.Listener.BrokerPorts.
	BrokerPorts Ports `yaml:"broker_ports"`
	// NodePorts is proxy.Listener.NodePorts.
	NodePorts map[int32]Value `yaml:"node_ports"`
	// ServerNames is proxy.Listener.ServerNames.
	ServerNames ServerNames `yaml:"server_names"`
	// TLS is what clients are spoken to with.
	TLS ListenerTLS `yaml:"tls"`
	// SASL has clients log in at the proxy.
	SASL ListenerSASL `yaml:"sasl"`
	// AllowAPIs is proxy.Access.Allow: names, or numbers.
	AllowAPIs Values `yaml:"allow_apis"`
	// DenyAPIs is proxy.Access.Deny: names, or numbers.
	DenyAPIs Values `yaml:"deny_apis"`
	// ReadOnly is proxy.Access.ReadOnly.
	ReadOnly Value `yaml:"read_only"`
	// ProxyProtocol says whether there is a proxy.Listener.ProxyProtocol: off or
	// require.
	ProxyProtocol Value `yaml:"proxy_protocol"`
	// ProxyProtocolFrom is proxy.ProxyProtocol.From: addresses, or networks as in
	// 10.0.0.0/8.
	ProxyProtocolFrom Values `yaml:"proxy_protocol_from"`
}

// ServerNames is how brokers are told apart on one port.
type ServerNames struct {
	// Domain is proxy.ServerNames.Domain.
	Domain Value `yaml:"domain"`
	// Bootstrap is proxy.ServerNames.Bootstrap.
	Bootstrap Value `yaml:"bootstrap"`
	// Port is proxy.ServerNames.Port.
	Port Value `yaml:"port"`
}

// listeners understands the listener that stands at the top of the document, or
// those of its list.
func (r *resolver) listeners() {
	d, p := r.doc, &r.out.Proxy
	top := Listener{Listen: d.Listen, AdvertisedHost: d.AdvertisedHost, BrokerPorts: d.BrokerPorts, NodePorts: d.NodePorts}
	if len(d.Listeners) == 0 {
		l := r.listener(top, "", defaultListen)
		p.Listen, p.AdvertisedHost, p.BrokerPorts, p.NodePorts = l.Listen, l.AdvertisedHost, l.BrokerPorts, l.NodePorts
		return
	}
	p.Listen = ""
	for _, at := range []struct {
		v    Value
		path string
	}{
		{d.Listen, "listen"}, {d.AdvertisedHost, "advertised_host"},
		{first(d.BrokerPorts.Range, d.BrokerPorts.First, d.BrokerPorts.Last), "broker_ports"},
	} {
		if at.v.given {
			r.wrong(at.v, at.path, "there are listeners too: it belongs to one of them")
		}
	}
	for _, node := range slices.Sorted(maps.Keys(d.NodePorts)) {
		r.wrong(d.NodePorts[node], "node_ports", "there are listeners too: it belongs to one of them")
		break
	}
	names := map[string]bool{}
	for i, given := range d.Listeners {
		path := fmt.Sprintf("listeners[%d].", i)
		if !given.Listen.given {
			r.wrong(first(given.Name, given.AdvertisedHost), path+"listen", "missing: the host:port that clients connect to")
		}
		l := r.listener(given, path, "127.0.0.1:0")
		if l.Name = given.Name.text; l.Name == "" {
			l.Name = l.Listen
		}
		switch {
		case names[l.Name] && given.Name.given:
			r.wrong(given.Name, path+"name", "%q is the name of another listener", l.Name)
		case names[l.Name]:
			r.wrong(given.Listen, path+"listen", "%s is where another listener listens", l.Name)
		}
		names[l.Name] = true
		r.serverNames(given.ServerNames, path+"server_names", &l)
		r.listenerTLS(given.TLS, path+"tls", &l)
		r.listenerSASL(given.SASL, path+"sasl", &l)
		l.Access.Allow = r.apis(given.AllowAPIs, path+"allow_apis")
		l.Access.Deny = r.apis(given.DenyAPIs, path+"deny_apis")
		r.yesOrNo(given.ReadOnly, path+"read_only", &l.Access.ReadOnly)
		r.proxyProtocol(given, path, &l)
		p.Listeners = append(p.Listeners, l)
	}
}

// listener understands an address and the ports that go with it. Its names in the
// file begin with path.
func (r *resolver) listener(d Listener, path, missing string) proxy.Listener {
	l := proxy.Listener{Listen: missing}
	r.address(d.Listen, path+"listen", &l.Listen)
	if v := d.AdvertisedHost; v.given {
		if !isHost(v.text) {
			r.wrong(v, path+"advertised_host", "%q is not a host name or an IP address (no port belongs here: it follows from broker_ports)", v.text)
		} else {
			l.AdvertisedHost = v.text
		}
	}
	r.ports(d, path, &l)
	return l
}

func (r *resolver) ports(d Listener, path string, l *proxy.Listener) {
	switch v := d.BrokerPorts.Range; {
	case v.given:
		first, last, err := parseRange(v.text)
		if err != nil {
			r.wrong(v, path+"broker_ports", "%v", err)
		}
		l.BrokerPorts = proxy.PortRange{First: first, Last: last}
	case d.BrokerPorts.First.given || d.BrokerPorts.Last.given:
		first := r.count(d.BrokerPorts.First, path+"broker_ports.first", 0, 1, maxPort)
		last := r.count(d.BrokerPorts.Last, path+"broker_ports.last", 0, 1, maxPort)
		switch {
		case !d.BrokerPorts.First.given:
			r.wrong(d.BrokerPorts.Last, path+"broker_ports.first", "missing")
		case !d.BrokerPorts.Last.given:
			r.wrong(d.BrokerPorts.First, path+"broker_ports.last", "missing")
		case first > last:
			r.wrong(d.BrokerPorts.First, path+"broker_ports", "first %d is above last %d", first, last)
		default:
			l.BrokerPorts = proxy.PortRange{First: first, Last: last}
		}
	}
	listen := portOf(l.Listen)
	ports := l.BrokerPorts
	if listen != 0 && ports.First <= listen && listen <= ports.Last {
		at := d.BrokerPorts.Range
		if !at.given {
			at = d.BrokerPorts.First
		}
		r.wrong(at, path+"broker_ports", "%d-%d contains the port of listen, %d", ports.First, ports.Last, listen)
	}
	r.nodePorts(d.NodePorts, path, l)
}

func (r *resolver) nodePorts(given map[int32]Value, path string, l *proxy.Listener) {
	listen, ports := portOf(l.Listen), l.BrokerPorts
	users := map[int]int32{}
	for _, node := range slices.Sorted(maps.Keys(given)) {
		v := given[node]
		at := fmt.Sprintf("%snode_ports.%d", path, node)
		port := r.count(v, at, 0, 1, maxPort)
		if node < 0 {
			r.wrong(v, at, "node ids are not negative")
			continue
		}
		if port == 0 {
			if !v.given {
				r.wrong(v, at, "has no port")
			}
			continue
		}
		if port == listen {
			r.wrong(v, at, "%d is the port of listen", port)
		}
		if other, taken := users[port]; taken {
			r.wrong(v, at, "%d is the port of node %d", port, other)
		}
		if of := port - ports.First; ports.First <= port && port <= ports.Last && of != int(node) {
			if _, moved := given[int32(of)]; !moved {
				r.wrong(v, at, "%d is the port of node %d by broker_ports", port, of)
			}
		}
		users[port] = node
		if l.NodePorts == nil {
			l.NodePorts = map[int32]int{}
		}
		l.NodePorts[node] = port
	}
}

// serverNames understands how brokers are told apart on one port.
func (r *resolver) serverNames(d ServerNames, path string, l *proxy.Listener) {
	if !d.Domain.given && !d.Bootstrap.given && !d.Port.given {
		return
	}
	names := &proxy.ServerNames{Port: r.count(d.Port, path+".port", 0, 1, maxPort)}
	for _, of := range []struct {
		v    Value
		key  string
		name *string
	}{{d.Domain, "domain", &names.Domain}, {d.Bootstrap, "bootstrap", &names.Bootstrap}} {
		*of.name = of.v.text
		if of.v.given && !isHost(of.v.text) {
			r.wrong(of.v, path+"."+of.key, "%q is not a host name", of.v.text)
		}
	}
	if !d.Domain.given {
		r.wrong(first(d.Bootstrap, d.Port), path+".domain", "missing: what the names of brokers end in, as in kafka.example.com for broker-1.kafka.example.com")
		return
	}
	l.ServerNames = names
}

// refused says in the words of the file what the proxy does not take.
func (r *resolver) refused(err error) {
	var wrong *proxy.ConfigError
	i, field := 0, ""
	if errors.As(err, &wrong) {
		if n, _ := fmt.Sscanf(wrong.Field, "Listeners[%d].%s", &i, &field); n != 2 || i >= len(r.doc.Listeners) {
			wrong = nil
		}
	}
	if wrong == nil {
		r.problems = append(r.problems, Problem{Message: err.Error()})
		return
	}
	d := r.doc.Listeners[i]
	whole := first(d.Listen, d.Name)
	names := d.ServerNames
	of := map[string]struct {
		key string
		v   Value
	}{
		"Name":                  {"name", d.Name},
		"Listen":                {"listen", d.Listen},
		"BrokerPorts":           {"broker_ports", first(d.BrokerPorts.Range, d.BrokerPorts.First)},
		"NodePorts":             {"node_ports", Value{}},
		"ServerNames":           {"server_names", first(names.Domain, names.Bootstrap, names.Port)},
		"ServerNames.Domain":    {"server_names.domain", names.Domain},
		"ServerNames.Port":      {"server_names.port", names.Port},
		"ServerNames.Bootstrap": {"server_names.bootstrap", first(names.Bootstrap, names.Domain)},
		"Access":                {"allow_apis", first(d.AllowAPIs...)},
		"Access.Deny":           {"deny_apis", first(d.DenyAPIs...)},
		"ProxyProtocol.From":    {"proxy_protocol_from", d.ProxyProtocol},
	}[field]
	if of.key == "" {
		of.key = field
	}
	r.wrong(first(of.v, whole), fmt.Sprintf("listeners[%d].%s", i, of.key), "%s", wrong.Reason)
}
