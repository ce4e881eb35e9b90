package proxy

import (
	"bytes"
	"encoding/binary"
)

// Reasons of malformed input, as metrics name them.
const (
	reasonLength   = "length"
	reasonTooLarge = "too_large"
	reasonTLS      = "tls"
	// A client that is not spoken to in TLS, by our certificate, or with its own.
	reasonHandshakeTLS = "tls_handshake"
	reasonServerName   = "server_name"
	// PROXY headers, and who may send them.
	reasonProxyHeader = "proxy_protocol"
	reasonProxyFrom   = "proxy_protocol_from"
	reasonHTTP        = "http"
	reasonHeader      = "header"
	reasonMetadata    = "metadata"
	reasonProduce     = "produce"
	reasonVersion     = "version"
	reasonTruncated   = "truncated"
	reasonHandshake   = "handshake_timeout"
	reasonLogin       = "login"
)

var httpMethods = [][]byte{
	[]byte("GET "), []byte("POST"), []byte("HEAD"), []byte("PUT "), []byte("OPTI"),
	[]byte("DELE"), []byte("PATC"), []byte("CONN"), []byte("HTTP"), []byte("PRI "),
}

// frameSize reads the length of a request from its first 4 bytes, and says
// what they are if they are no length.
func (c *conn) frameSize(b []byte) (int, error) {
	if c.first {
		// TLS records: handshake or alert, then version 3.x.
		if (b[0] == 0x16 || b[0] == 0x15) && b[1] == 3 && b[2] <= 4 {
			return 0, malformed(reasonTLS, "looks like TLS on a plain port")
		}
		for _, method := range httpMethods {
			if bytes.HasPrefix(b, method) {
				return 0, malformed(reasonHTTP, "looks like HTTP on a Kafka port")
			}
		}
	}
	size := int(int32(binary.BigEndian.Uint32(b)))
	switch {
	case size < 0:
		return 0, malformed(reasonLength, "negative frame length %d", size)
	case size == 0:
		return 0, malformed(reasonLength, "frame length is zero")
	case c.guest && size > maxLoginRequest:
		return 0, malformed(reasonTooLarge, "frame of %d bytes from a client that has not logged in, above the limit of %d", size, maxLoginRequest)
	case size > c.p.cfg.MaxFrameBytes:
		c.p.metrics.limit(limitFrame, "remote", c.remote(), "bytes", size)
		return 0, malformed(reasonTooLarge, "frame of %d bytes is above the limit of %d", size, c.p.cfg.MaxFrameBytes)
	}
	return size, nil
}
