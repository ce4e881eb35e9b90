package wire

import (
	"bytes"
	"fmt"
	"testing"
)

// TestDigestOfEveryByte: equal bytes have equal digests wherever they are, and each
// byte counts, at sizes that are hashed in each of the ways, and with lone headers of
// several sizes.
func TestDigestOfEveryByte(t *testing.T) {
	for _, size := range []int{1, 16, 127, 128, 129, digestedInPieces, digestedInPieces + 1, 1000, 5000} {
		for _, headers := range []int{0, 1, digestWord, digestWord + 1, digestWord + 20, digestedInPieces + digestWord + 1} {
			if headers < size {
				testDigestOfEveryByte(t, size, headers)
			}
		}
	}
}

// testDigestOfEveryByte takes so many of the bytes for a lone header, if any.
func testDigestOfEveryByte(t *testing.T, size, headers int) {
	t.Helper()
	headersAt := size - max(headers, 1)
	digestOf := func(b []byte) uint64 { return digestOf(b, headersAt) }
	{
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(i * 7)
		}
		if b[headersAt] = 1 << 1; headers == 0 {
			b[headersAt] = 0
		}
		want := digestOf(b)
		moved := append(make([]byte, size%13), b...)[size%13:]
		if got := digestOf(moved); got != want {
			t.Errorf("%d bytes: digest %x, of the same bytes elsewhere %x", size, want, got)
		}
		seen := map[uint64]string{want: "nothing"}
		for i := range b {
			moved[i] ^= 1
			got := digestOf(moved)
			if change, ok := seen[got]; ok {
				t.Errorf("%d bytes: digest with byte %d changed is as with %s changed", size, i, change)
			}
			seen[got] = fmt.Sprint("byte ", i)
			moved[i] ^= 1
		}
		if !bytes.Equal(moved, b) {
			t.Fatal("the bytes were changed")
		}
		if got := digestOf(append(moved, 0)); got == want {
			t.Errorf("%d bytes: a zero byte more has the same digest", size)
		}
	}
}

func TestDigestAllocatesNothing(t *testing.T) {
	for _, size := range []int{100, 70_000} {
		b := make([]byte, size)
		if got := testing.AllocsPerRun(100, func() { b[0] = byte(digestOf(b, 50)) }); got != 0 {
			t.Errorf("%d bytes: %v allocations, want 0", size, got)
		}
	}
}
