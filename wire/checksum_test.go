package wire

import (
	"bytes"
	"hash/crc32"
	"testing"
)

// changed returns what changedChecksum says, and what it should.
func changed(message []byte, after []byte) (got, want uint32) {
	checksum, before := crc32.Checksum(message, castagnoli), crc32.Checksum(message[:len(after)], castagnoli)
	copy(message, after)
	got = changedChecksum(checksum, before, crc32.Checksum(after, castagnoli), len(message)-len(after))
	return got, crc32.Checksum(message, castagnoli)
}

func TestChangedChecksum(t *testing.T) {
	after := bytes.Repeat([]byte{0x5a, 0, 0xff, 7}, 10)
	for _, size := range []int{0, 1, 2, 3, 7, 8, 255, 256, 257, 4095, 65_535, 65_536, 65_537, 1 << 20, 1<<24 - 1, 1 << 24, 1<<24 + 1} {
		message := make([]byte, len(after)+size)
		for i := range message {
			message[i] = byte(i * 31)
		}
		if got, want := changed(message, after); got != want {
			t.Errorf("%d bytes behind the change: got %08x, want %08x", size, got, want)
		}
	}
}

// FuzzChangedChecksum: it is what hash/crc32 computes from all bytes.
func FuzzChangedChecksum(f *testing.F) {
	f.Add([]byte("message"), []byte("sausage"), uint32(0))
	f.Add([]byte("message"), []byte("message"), uint32(1))
	f.Add([]byte("m"), []byte{0}, uint32(1_000_003))
	f.Fuzz(func(t *testing.T, message, after []byte, zeros uint32) {
		after = after[:min(len(after), len(message))]
		message = append(bytes.Clone(message), make([]byte, zeros%(1<<20))...)
		if got, want := changed(message, after); got != want {
			t.Fatalf("got %08x, want %08x", got, want)
		}
	})
}
