package config

import (
	"fmt"
	"net/netip"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// proxyProtocol understands whether clients of a listener come through others that
// say whom they come from, and who those may be.
func (r *resolver) proxyProtocol(d Listener, path string, l *proxy.Listener) {
	switch v := d.ProxyProtocol; v.text {
	case "require":
		l.ProxyProtocol = &proxy.ProxyProtocol{}
	case "off":
	default:
		if v.given {
			r.wrong(v, path+"proxy_protocol", "%q is neither off nor require", v.text)
		}
	}
	for i, v := range d.ProxyProtocolFrom {
		at := fmt.Sprintf("%sproxy_protocol_from[%d]", path, i)
		of, ok := network(v.text)
		switch {
		case !ok:
			r.wrong(v, at, "%q is neither an IP address nor a network as in 10.0.0.0/8", v.text)
		case l.ProxyProtocol == nil:
			r.wrong(v, at, "no header is expected of anybody, as proxy_protocol is off")
			return
		default:
			l.ProxyProtocol.From = append(l.ProxyProtocol.From, of)
		}
	}
	if host, _, err := splitAddress(l.Listen); err == nil && l.ProxyProtocol != nil && len(d.ProxyProtocolFrom) == 0 && !proxy.IsLoopbackHost(host) {
		r.wrong(d.ProxyProtocol, path+"proxy_protocol_from", "missing: the addresses of the load balancers whose headers are believed; whoever else connects is closed")
	}
}

// network gives what an address or a network stands for.
func network(s string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(s); err == nil {
		ip = ip.Unmap().WithZone("")
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	of, err := netip.ParsePrefix(s)
	return of.Masked(), err == nil
}
