package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
)

// v2Header is a header of version 2 with something more than addresses.
func v2Header(t testing.TB, from, to string) []byte {
	t.Helper()
	address := func(s string) *net.TCPAddr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	h := proxyproto.HeaderProxyFromAddrs(2, address(from), address(to))
	if err := h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("kafka.example")}}); err != nil {
		t.Fatal(err)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// local is what a load balancer sends in its own name.
const local = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"

func TestProxyHeaders(t *testing.T) {
	for _, test := range []struct{ name, header, from string }{
		{"v1", "PROXY TCP4 192.0.2.7 192.0.2.1 4711 9092\r\n", "192.0.2.7:4711"},
		{"v1 of IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 4711 9092\r\n", "[2001:db8::7]:4711"},
		{"v1 of nobody", "PROXY UNKNOWN\r\n", ""},
		{"v1 of nobody, with more", "PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", ""},
		{"v2", string(v2Header(t, "192.0.2.7:4711", "192.0.2.1:9092")), "192.0.2.7:4711"},
		{"v2 of IPv6", string(v2Header(t, "[2001:db8::7]:4711", "[2001:db8::1]:9092")), "[2001:db8::7]:4711"},
		{"v2 of its sender", local, ""},
	} {
		const follows = "\x00\x00\x00\x10 a request"
		r := bytes.NewBufferString(test.header + follows)
		from, err := readProxyHeader(r)
		got := ""
		if from != nil {
			got = from.String()
		}
		if got != test.from || err != nil {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.from)
		}
		if r.String() != follows {
			t.Errorf("%s: %q is left, want %q", test.name, r, follows)
		}
	}
}

func TestProxyHeadersThatAreNone(t *testing.T) {
	var bad *malformedError
	for name, header := range map[string]string{
		"a request":         "\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04test",
		"TLS":               "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03abcd",
		"endless v1":        "PROXY TCP4 " + string(bytes.Repeat([]byte("1"), 200)),
		"v1 without CR":     "PROXY TCP4 192.0.2.7 192.0.2.1 4711 9092\n",
		"v1 of UDP":         "PROXY UDP4 192.0.2.7 192.0.2.1 4711 9092\r\n",
		"v1 with no number": "PROXY TCP4 192.0.2.7 192.0.2.1 x 9092\r\n",
		"v2 too long":       local[:14] + "\xff\xff" + string(make([]byte, 1<<16)),
		"v2 too short":      local[:12] + "\x21\x11\x00\x04abcd",
		"v2 of UDP":         local[:12] + "\x21\x12\x00\x0c" + string(make([]byte, 12)),
		"v2 of no version":  local[:12] + "\x31\x11\x00\x0c" + string(make([]byte, 12)),
		"cut":               "PROXY",
	} {
		if from, err := readProxyHeader(bytes.NewBufferString(header)); !errors.As(err, &bad) {
			t.Errorf("%s: got %v, %v, want an error for the log", name, from, err)
		}
	}
	if _, err := readProxyHeader(bytes.NewBufferString("")); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: got %v, want io.EOF", err)
	}
}

func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.7 192.0.2.1 4711 9092\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte(local))
	f.Add(v2Header(f, "192.0.2.7:4711", "192.0.2.1:9092"))
	f.Add(v2Header(f, "[2001:db8::7]:4711", "[2001:db8::1]:9092"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		from, err := readProxyHeader(r)
		read := len(b) - r.Len()
		if read > proxyV2Fixed+proxyV2Longest {
			t.Fatalf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		// What was read is a header by itself, and one byte less is none.
		again, err := readProxyHeader(bytes.NewReader(b[:read]))
		if err != nil || (again == nil) != (from == nil) || from != nil && again.String() != from.String() {
			t.Errorf("got %v, and %v, %v of the same header alone", from, again, err)
		}
		if _, err := readProxyHeader(bytes.NewReader(b[:read-1])); err == nil {
			t.Error("it is a header without its last byte too")
		}
	})
}

func TestWhatCountsAsOneMachine(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1":            "192.0.2.7/32",
		"[::ffff:192.0.2.7]:2":   "192.0.2.7/32",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":      "fe80::/64",
	} {
		if got := machine(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))); got.String() != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	if got := machine(&net.UnixAddr{Name: "/s", Net: "unix"}); got.IsValid() {
		t.Errorf("a Unix socket: got %s", got)
	}
	counts := newAddressCounts(1)
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.7:1"))
	of, free := counts.enter(at)
	if _, again := counts.enter(at); !free || again {
		t.Errorf("the first is free: %v, and the second: %v", free, again)
	}
	counts.leave(of)
	if len(counts.open) > 0 {
		t.Error("an address without connections is remembered")
	}
}
