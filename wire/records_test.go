package wire

import "testing"

// TestShortVarints: of all bytes that may stand before others, what is read by the short
// way is what is read by the long one, and is all that has no shorter encoding.
func TestShortVarints(t *testing.T) {
	for n := range 1 << 16 {
		b := []byte{byte(n), byte(n >> 8), 1}
		for size := range len(b) + 1 {
			u, got := shortVarint(b[:size], 0)
			v, next, canonical := readVarint(b[:size], 0)
			if short := canonical && next <= 2; short != (got != 0) {
				t.Fatalf("% x: short %d, long %d, canonical %t", b[:size], got, next, canonical)
			}
			if got != 0 && (got != next || unzigzag(u) != v) {
				t.Fatalf("% x: short %d in %d bytes, long %d in %d", b[:size], unzigzag(u), got, v, next)
			}
		}
	}
	for _, at := range []int{-1, 3, 4} {
		if _, got := shortVarint([]byte{1, 1, 1}, at); got != 0 {
			t.Errorf("at %d of 3 bytes: %d bytes read", at, got)
		}
	}
}
