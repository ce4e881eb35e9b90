package proxy

import (
	"crypto/tls"
	"io"
	"net"
)

// patientTLS is a way to a peer in TLS that waits without a buffer: for the first byte,
// after which what came with it is there to be read. Reading by single bytes costs little,
// since TLS has taken in and decrypted a whole record. What TLS itself keeps between
// records is not to be had back.
//
// One goroutine may read and one may write at a time.
type patientTLS struct {
	io.ReadWriter // over conn
	conn          *tls.Conn
	first         [1]byte
}

// ReadWhenReady reads as wire.PatientReader says.
func (p *patientTLS) ReadWhenReady(room func() []byte, park func()) (int, error) {
	park()
	n, err := p.conn.Read(p.first[:])
	if n > 0 {
		room()[0] = p.first[0]
	}
	return n, err
}

// patient gives a way to a peer that waits without a buffer, if there is one; way is
// another to the same peer, over conn.
func patient(conn net.Conn, way io.ReadWriter) io.ReadWriter {
	if secured, ok := conn.(*tls.Conn); ok {
		return &patientTLS{ReadWriter: way, conn: secured}
	}
	return way
}
