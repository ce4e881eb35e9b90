package proxy

import (
	"io"
	"net"
)

// joinBytes is how much of small pieces is copied together for one write, where the
// kernel cannot take them as they lie: two records of TLS.
const joinBytes = 32 << 10

// writePieces writes pieces to conn, in order, in few writes. w is how conn is written
// to. The slice of pieces is used up; their bytes are not touched.
func writePieces(conn net.Conn, w io.Writer, pieces [][]byte) error {
	if len(pieces) == 1 {
		_, err := w.Write(pieces[0])
		return err
	}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		all := net.Buffers(pieces)
		_, err := all.WriteTo(conn)
		return err
	}
	var joined []byte
	for _, piece := range pieces {
		if len(joined)+len(piece) > joinBytes {
			if err := writeSome(w, joined); err != nil {
				return err
			}
			joined = joined[:0]
		}
		if len(piece) >= joinBytes {
			if err := writeSome(w, piece); err != nil {
				return err
			}
			continue
		}
		if joined == nil {
			joined = make([]byte, 0, joinBytes)
		}
		joined = append(joined, piece...)
	}
	return writeSome(w, joined)
}

// writeSome writes b, if there is something in it.
func writeSome(w io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := w.Write(b)
	return err
}
