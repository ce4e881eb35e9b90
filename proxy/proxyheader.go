package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/pires/go-proxyproto"
)

// ProxyProtocol has clients come through others that say, in a header before all else,
// whom they come from (the PROXY protocol of HAProxy, version 1 or 2).
type ProxyProtocol struct {
	// From are the networks of those whose header is believed; everybody else is
	// closed. Default, if Listen is on a loopback address: this machine.
	From []netip.Prefix
}

// thisMachine are the addresses that nobody else has.
var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// fillInProxyProtocol checks whose header is believed.
func (l *Listener) fillInProxyProtocol(host string) *ConfigError {
	if l.ProxyProtocol == nil || len(l.ProxyProtocol.From) > 0 {
		return nil
	}
	if !IsLoopbackHost(host) {
		return wrongListener("ProxyProtocol.From", "missing: others than this machine reach %s, and whoever is believed can be anybody", l.Listen)
	}
	l.ProxyProtocol = &ProxyProtocol{From: slices.Clone(thisMachine)}
	return nil
}

// believes reports whether a header from an address counts.
func (p *ProxyProtocol) believes(address net.Addr) bool {
	ip, ok := ipOf(address)
	return ok && slices.ContainsFunc(p.From, func(of netip.Prefix) bool { return of.Contains(ip) })
}

// introduce learns from the header whom the client comes from. What follows the header
// is not read, so that the socket is read as any other from then on.
func (c *conn) introduce() error {
	if !c.entrance.ProxyProtocol.believes(c.client.RemoteAddr()) {
		return malformed(reasonProxyFrom, "whoever connects here has to be one of proxy_protocol_from, and this one is not")
	}
	from, err := readProxyHeader(c.client)
	var bad *malformedError
	switch {
	case err == nil:
	case c.stopping.Load():
		return c.stopReason()
	case errors.As(err, &bad):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return malformed(reasonHandshake, "no PROXY header in time")
	default:
		return errClientClosed // as one that looks whether the port is open
	}
	c.from = from
	address, free := c.p.addresses.enter(c.remoteAddr())
	if c.address = address; !free {
		c.p.tooManyOf(c.remoteAddr())
		return errAddressFull
	}
	return nil
}

const (
	// proxyV1Longest is the longest header of version 1, with its end of line.
	proxyV1Longest = 107
	// proxyV2Fixed is how long one of version 2 is without its addresses and what
	// else it says, of which proxyV2Longest bytes are taken at most.
	proxyV2Fixed   = 16
	proxyV2Longest = 4 << 10
)

// readProxyHeader reads a header and nothing behind it, and gives whom it names; nil:
// nobody but who sent it. Errors: *malformedError, or the reader's.
func readProxyHeader(r io.Reader) (net.Addr, error) {
	header := make([]byte, len(proxyproto.SIGV2), proxyV1Longest)
	if _, err := io.ReadFull(r, header); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, malformed(reasonProxyHeader, "closed within the PROXY header")
		}
		return nil, err
	}
	var err error
	switch {
	case bytes.Equal(header, proxyproto.SIGV2):
		header, err = restOfV2(r, header)
	case bytes.HasPrefix(header, proxyproto.SIGV1):
		header, err = restOfV1(r, header)
	default:
		return nil, malformed(reasonProxyHeader, "no PROXY header comes first: have the load balancer send it, or set proxy_protocol to off")
	}
	if err != nil {
		return nil, err
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(header), len(header)))
	if err != nil {
		return nil, malformed(reasonProxyHeader, "PROXY header cannot be understood: %v", err)
	}
	if h.Command.IsLocal() || h.TransportProtocol.IsUnspec() {
		return nil, nil
	}
	from, _, ok := h.TCPAddrs()
	if !ok {
		return nil, malformed(reasonProxyHeader, "PROXY header is of something else than TCP")
	}
	return from, nil
}

// restOfV1 reads a line to its end.
func restOfV1(r io.Reader, header []byte) ([]byte, error) {
	for len(header) < proxyV1Longest {
		n := len(header)
		header = header[:n+1]
		if _, err := io.ReadFull(r, header[n:]); err != nil {
			return nil, err
		}
		if header[n] == '\n' {
			return header, nil
		}
	}
	return nil, malformed(reasonProxyHeader, "PROXY header does not end within %d bytes", proxyV1Longest)
}

// restOfV2 reads as much as the header says.
func restOfV2(r io.Reader, header []byte) ([]byte, error) {
	header = header[:proxyV2Fixed]
	if _, err := io.ReadFull(r, header[len(proxyproto.SIGV2):]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(header[proxyV2Fixed-2:]))
	if size > proxyV2Longest {
		return nil, malformed(reasonProxyHeader, "PROXY header of %d bytes; at most %d", size, proxyV2Longest)
	}
	header = append(header, make([]byte, size)...)
	if _, err := io.ReadFull(r, header[proxyV2Fixed:]); err != nil {
		return nil, err
	}
	return header, nil
}
