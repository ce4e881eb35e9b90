package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"go.uber.org/goleak"
)

// sampleTexts are contents of many sizes, compressible and not.
func sampleTexts() map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	mixed := bytes.Clone(noise[:200_000])
	for i := 0; i < len(mixed); i += 1000 {
		copy(mixed[i:], bytes.Repeat([]byte("text "), 150))
	}
	return map[string][]byte{
		"empty": {}, "a byte": {7}, "short": []byte("short"), "zeros": make([]byte, 500_000),
		"noise": noise, "mixed": mixed, "a block": make([]byte, 64<<10), "and a byte": make([]byte, 64<<10+1),
	}
}

// encodings are the ways in which clients write a codec.
func encodings(tb testing.TB, codec int8, text []byte) map[string][]byte {
	out := map[string][]byte{"plain": compress(tb, codec, text)}
	lz4With := func(name string, options ...lz4.Option) {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		if err := w.Apply(options...); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			tb.Fatal(err)
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
		out[name] = b.Bytes()
	}
	switch codec {
	case CodecSnappy:
		out["xerial 32 KiB"] = xerial(text, 32<<10)
		out["xerial 100 bytes"] = xerial(text, 100)
	case CodecLZ4:
		lz4With("64 KiB blocks, checksums", lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true))
		lz4With("size", lz4.BlockSizeOption(lz4.Block256Kb), lz4.SizeOption(uint64(len(text))), lz4.ChecksumOption(false))
		out["linked blocks"] = linkedLZ4(tb, text)
	case CodecZstd:
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			tb.Fatal(err)
		}
		out["declared size"] = e.EncodeAll(text, nil)
		half := len(text) / 2
		out["two frames"] = e.EncodeAll(text[half:], e.EncodeAll(text[:half], nil))
	}
	if len(text) == 0 {
		delete(out, "two frames") // no frame at all for nothing
		if codec == CodecZstd {
			delete(out, "declared size")
		}
	}
	return out
}

// linkedLZ4 writes a frame whose blocks may refer to earlier ones. The
// library has no writer for it; stored and self-contained blocks are valid in
// such frames, and one hand-made block does refer back.
func linkedLZ4(tb testing.TB, text []byte) []byte {
	tb.Helper()
	out := []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0}
	for rest := text; len(rest) > 0; {
		if at := len(text) - len(rest); at >= 18 && len(rest) >= 23 && bytes.Equal(rest[:18], text[at-18:at]) {
			// A match of 18 bytes at distance 18, then 5 literals.
			out = append(out, 9, 0, 0, 0, 0x0e, 18, 0, 0x50)
			out = append(out, rest[18:23]...)
			rest = rest[23:]
			continue
		}
		n := min(len(rest), 40_000)
		out = binary.LittleEndian.AppendUint32(out, uint32(n)|1<<31)
		out = append(out, rest[:n]...)
		rest = rest[n:]
	}
	return append(out, 0, 0, 0, 0)
}

func TestDecompress(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for codec, codecName := range codecNames {
		var dst []byte
		for textName, text := range sampleTexts() {
			for encoding, src := range encodings(t, codec, text) {
				name := fmt.Sprintf("%s/%s/%s", codecName, encoding, textName)
				for _, max := range []int{len(text), len(text) + 1, 64 << 20} {
					for _, into := range [][]byte{nil, dst, make([]byte, 3, 100)} {
						got, err := Decompress(into, codec, src, max)
						if err != nil || !bytes.Equal(got, text) {
							t.Fatalf("%s, max %d: got %d bytes, %v; want %d", name, max, len(got), err, len(text))
						}
						dst = got
					}
				}
				for _, max := range []int{len(text) - 1, len(text) / 2, 0, -1} {
					if max >= len(text) || len(text) == 0 {
						continue
					}
					if _, err := Decompress(dst, codec, src, max); !errors.Is(err, ErrTooLarge) {
						t.Fatalf("%s, max %d of %d: got %v, want %v", name, max, len(text), err, ErrTooLarge)
					}
				}
			}
		}
	}
}

func TestDecompressDamaged(t *testing.T) {
	text := sampleTexts()["mixed"][:5000]
	for codec, codecName := range codecNames {
		if codec == CodecNone {
			continue
		}
		for encoding, src := range encodings(t, codec, text) {
			for n := range len(src) {
				got, err := Decompress(nil, codec, src[:n], 1<<20)
				// A cut between blocks or frames is a shorter, valid content.
				if err == nil && !bytes.HasPrefix(text, got) {
					t.Fatalf("%s/%s cut at %d: other content", codecName, encoding, n)
				}
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%s/%s cut at %d: got %v, want %v", codecName, encoding, n, err, ErrCorrupt)
				}
			}
			if codec == CodecSnappy || codec == CodecZstd && encoding == "two frames" {
				continue
			}
			if _, err := Decompress(nil, codec, append(bytes.Clone(src), 1, 2, 3), 1<<20); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s/%s with bytes behind: got %v, want %v", codecName, encoding, err, ErrCorrupt)
			}
		}
	}
}

func TestUnlz4RefusesOtherFrames(t *testing.T) {
	good := compress(t, CodecLZ4, []byte("some text to compress, some text to compress"))
	edit := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	cases := map[string][]byte{
		"magic of legacy frames":   edit(0, 0x02),
		"skippable frame":          append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, good...),
		"version 2":                edit(4, 0x80),
		"reserved bit":             edit(4, good[4]|2),
		"dictionary":               edit(4, good[4]|1),
		"block size 0":             edit(5, 0),
		"reserved bits of size":    edit(5, good[5]|0x80),
		"block larger than it may": append(bytes.Clone(good[:7]), 0xff, 0xff, 0xff, 0x7f),
		"a second frame":           append(bytes.Clone(good), good...),
	}
	for name, src := range cases {
		if _, err := Decompress(nil, CodecLZ4, src, 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", name, err, ErrCorrupt)
		}
	}
}

// bombs are inputs of at most some 50 MB that decompress to 1 GiB of zeros.
func bombs(t *testing.T) map[string]struct {
	codec int8
	src   []byte
} {
	t.Helper()
	const target = 1 << 30
	type bomb = struct {
		codec int8
		src   []byte
	}
	var member bytes.Buffer
	gz := gzip.NewWriter(&member)
	if _, err := gz.Write(make([]byte, target/64)); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}

	// zstd: blocks of four bytes that each repeat one byte 128 Ki times.
	rle := func(last int) []byte {
		word := 128<<10<<3 | 1<<1 | last
		return []byte{byte(word), byte(word >> 8), byte(word >> 16), 0}
	}
	blocks := append(bytes.Repeat(rle(0), target>>17-1), rle(1)...)
	undeclared := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38}, blocks...)
	declared := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x38, 0, 0, 0, 0x40}, blocks...)
	liar := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x38, 0, 0, 1, 0}, blocks...)
	wide := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8}, blocks...)

	block := make([]byte, 1<<20)
	n, err := lz4.CompressBlock(make([]byte, 4<<20), block, nil)
	if err != nil {
		t.Fatal(err)
	}
	lz4Block := append(binary.LittleEndian.AppendUint32(nil, uint32(n)), block[:n]...)
	lz4Frame := append([]byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73}, bytes.Repeat(lz4Block, target/(4<<20))...)
	lz4Frame = append(lz4Frame, 0, 0, 0, 0)

	// Raw snappy: one zero, then copies of 64 bytes at distance one.
	raw := binary.AppendUvarint(nil, target)
	raw = append(raw, 0, 0)
	raw = append(raw, bytes.Repeat([]byte{63<<2 | 2, 1, 0}, (target-1)/64)...)
	raw = append(raw, 62<<2|2, 1, 0)
	if n, err := snappy.DecodedLen(raw); n != target || err != nil {
		t.Fatal(n, err)
	}
	return map[string]bomb{
		"gzip":                           {CodecGzip, bytes.Repeat(member.Bytes(), 64)},
		"zstd":                           {CodecZstd, undeclared},
		"zstd, size declared":            {CodecZstd, declared},
		"zstd, window too large":         {CodecZstd, wide},
		"zstd, size declared too small":  {CodecZstd, liar},
		"lz4":                            {CodecLZ4, lz4Frame},
		"snappy":                         {CodecSnappy, raw},
		"snappy, size without the bytes": {CodecSnappy, raw[:40]},
		"snappy, xerial":                 {CodecSnappy, append(xerial(nil, 1), bytes.Repeat(xerial(make([]byte, 32<<10), 32<<10)[16:], 1000)...)},
	}
}

func TestDecompressBombs(t *testing.T) {
	const max = 1 << 20
	for name, bomb := range bombs(t) {
		t.Run(name, func(t *testing.T) {
			// Pools warm up outside of what is measured.
			if _, err := Decompress(nil, bomb.codec, compress(t, bomb.codec, []byte("warm")), max); err != nil {
				t.Fatal(err)
			}
			want := ErrTooLarge
			if name == "zstd, size declared too small" {
				want = ErrCorrupt
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decompress(nil, bomb.codec, bomb.src, max)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 6*max {
				t.Errorf("allocated %d bytes in all for a bound of %d", got, max)
			}
		})
	}
}
