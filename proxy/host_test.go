package proxy

import (
	"net"
	"net/netip"
	"testing"
)

func TestHosts(t *testing.T) {
	for host, want := range map[string]struct{ loopback, unspecified bool }{
		"": {false, true}, "0.0.0.0": {false, true}, "::": {false, true}, "::ffff:0.0.0.0": {false, true},
		"localhost": {true, false}, "127.0.0.1": {true, false}, "127.9.9.9": {true, false}, "::1": {true, false}, "::ffff:127.0.0.1": {true, false},
		"192.0.2.1": {}, "kafka.example.com": {}, "localhost.example.com": {}, "2001:db8::1": {},
	} {
		if got := IsLoopbackHost(host); got != want.loopback {
			t.Errorf("%q is loopback: %t", host, got)
		}
		if got := IsUnspecifiedHost(host); got != want.unspecified {
			t.Errorf("%q is unspecified: %t", host, got)
		}
	}
}

func TestIPOfAPeer(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8::1]:5": "2001:db8::1", "[fe80::1%eth0]:5": "fe80::1",
	} {
		got, ok := ipOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)))
		if !ok || got != netip.MustParseAddr(want) {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}
	if _, ok := ipOf(&net.UnixAddr{}); ok {
		t.Error("a Unix address has an IP address")
	}
}
