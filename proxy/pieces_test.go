package proxy

import (
	"bytes"
	"errors"
	"net"
	"testing"
)

// countedConn is no connection that the standard library knows, as one of TLS is not.
type countedConn struct {
	net.Conn
	writes []int // their lengths
	all    bytes.Buffer
	left   int // writes until one fails; negative: none does
}

var errNoMoreWrites = errors.New("no more writes")

func (c *countedConn) Write(b []byte) (int, error) {
	if c.left == 0 {
		return 0, errNoMoreWrites
	}
	c.left--
	c.writes = append(c.writes, len(b))
	return c.all.Write(b)
}

// Where the kernel cannot gather, small pieces are joined and large ones go as they are.
func TestPiecesAreWrittenInFewWrites(t *testing.T) {
	few := [][]byte{noise(10)}
	var small, mixed [][]byte
	for i := range 1000 {
		small = append(small, noise(100+i%7))
	}
	mixed = [][]byte{noise(100), noise(joinBytes), noise(1), {}, noise(joinBytes - 1), noise(1), noise(5 * joinBytes), noise(9)}
	for name, test := range map[string]struct {
		pieces [][]byte
		most   int // writes
	}{
		"one": {few, 1}, "small": {small, 1 + 106*1000/joinBytes}, "mixed": {mixed, 6}, "empty": {[][]byte{{}, {}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := bytes.Join(test.pieces, nil)
			c := &countedConn{left: -1}
			if err := writePieces(c, c, append([][]byte(nil), test.pieces...)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(c.all.Bytes(), want) {
				t.Errorf("got %d bytes, or others, want %d", c.all.Len(), len(want))
			}
			if got := len(c.writes); got > test.most {
				t.Errorf("got writes of %v bytes, want %d writes at most", c.writes, test.most)
			}
			for fails := range len(c.writes) {
				c := &countedConn{left: fails}
				if err := writePieces(c, c, append([][]byte(nil), test.pieces...)); !errors.Is(err, errNoMoreWrites) {
					t.Errorf("write %d fails: got %v", fails, err)
				}
				if got := c.all.Bytes(); !bytes.Equal(got, want[:len(got)]) {
					t.Errorf("write %d fails: what was written before is not the beginning", fails)
				}
			}
		})
	}
}

// A connection of TCP takes all pieces as they lie.
func TestPiecesOfATCPConnection(t *testing.T) {
	a, b := tcpPair(t)
	pieces := [][]byte{noise(3), noise(joinBytes), noise(70)}
	want := bytes.Join(pieces, nil)
	if err := writePieces(a, fast(a), pieces); err != nil {
		t.Fatal(err)
	}
	_ = a.CloseWrite()
	var got bytes.Buffer
	if _, err := got.ReadFrom(b); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes, want %d: %v", got.Len(), len(want), err)
	}
}
