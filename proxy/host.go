package proxy

import (
	"net"
	"net/netip"
)

// IsLoopbackHost reports whether only this machine's own programs reach a host, that is
// a name or an IP address.
func IsLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// IsUnspecifiedHost reports whether a host stands for all interfaces of this machine.
func IsUnspecifiedHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// ipOf gives the IP address of a peer, as networks are compared with; false: it is not
// one of TCP.
func ipOf(address net.Addr) (netip.Addr, bool) {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return tcp.AddrPort().Addr().Unmap().WithZone(""), true
}
