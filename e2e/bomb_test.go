package e2e

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// A bomb is a small batch that unpacks to one record with a huge value of
// zeros. The streams are put together by hand from a repeated piece, since
// compressing a gigabyte takes longer than the rest of the tests.
const (
	bombSize  = 1 << 30
	bombPiece = 1 << 20 // size of a repeated piece, unpacked
)

const (
	// bombs of each kind are sent in a row, and bombMemory is how much the
	// proxy may grow by meanwhile: less than one bomb, or than what it unpacks
	// of all before it gives up.
	bombs      = 10
	bombMemory = bombSize / 2
)

// TestBombsLeaveMemoryFlat runs a program without the race detector, which
// needs several times the memory.
func TestBombsLeaveMemoryFlat(t *testing.T) {
	if direct {
		t.Skip("tests the proxy's own defences")
	}
	const topic = "bombs"
	p := startProgram(t, buildProgram(t), "--require", topic)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	leader := leaderAddress(t, p, topic)
	before, err := p.memory()
	if errors.Is(err, errNoMemoryFigures) {
		t.Skip(err)
	}
	for _, bomb := range []struct {
		codec int16
		batch []byte
	}{
		{1, gzipBomb(bombSize)}, {2, snappyBomb(bombSize / 8)}, {3, lz4Bomb(bombSize)}, {4, zstdBomb(bombSize)},
	} {
		for range bombs {
			conn, err := dialRaw(leader)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := conn.produce(topic, 0, sealBatch(bomb.codec, 1, bomb.batch))
			if err != nil && !isClosed(err) || err == nil && answer.ErrorCode == 0 {
				t.Errorf("bomb of codec %d: got code %d, %v; want it refused", bomb.codec, answer.ErrorCode, err)
			}
			conn.close()
		}
	}
	after, err := p.memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resident: %d MiB before, %d MiB after, peak %d MiB", before.now>>20, after.now>>20, after.peak>>20)
	if grown := after.peak - before.now; grown > bombMemory {
		t.Errorf("memory grew by %d MiB, more than %d MiB", grown>>20, bombMemory>>20)
	}
}

// buildProgram builds it as users do.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "offsetproxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/offsetproxy")
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, output)
	}
	return path
}

// bombRecord is what stands before the zeros, and after them a zero for "no
// headers".
func bombRecord(size int) []byte {
	record := []byte{0, 0, 0, 1} // attributes, deltas, null key
	record = binary.AppendVarint(record, int64(size-1))
	return append(binary.AppendVarint(nil, int64(len(record)+size)), record...)
}

// gzipBomb is one gzip member, whose deflate stream repeats a flushed piece.
func gzipBomb(size int) []byte {
	record := bombRecord(size)
	var packed bytes.Buffer
	packed.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}) // RFC 1952, no fields
	packed.Write(deflated(record, false))
	zeros := make([]byte, bombPiece)
	piece := deflated(zeros, false)
	sum := crc32.ChecksumIEEE(record)
	for range size / bombPiece {
		packed.Write(piece)
		sum = crc32.Update(sum, crc32.IEEETable, zeros)
	}
	packed.Write(deflated(nil, true))
	trailer := binary.LittleEndian.AppendUint32(nil, sum)
	packed.Write(binary.LittleEndian.AppendUint32(trailer, uint32(len(record)+size)))
	return packed.Bytes()
}

// deflated gives a part of a stream that ends on a byte, so that parts can be
// strung together.
func deflated(data []byte, last bool) []byte {
	var packed bytes.Buffer
	writer, _ := flate.NewWriter(&packed, flate.BestSpeed) // fails for a bad level only
	_, _ = writer.Write(data)
	if last {
		_ = writer.Close()
	} else {
		_ = writer.Flush()
	}
	return packed.Bytes()
}

// zstdBomb is one frame of blocks that say "repeat this byte" (RFC 8878, 3.1.1).
func zstdBomb(size int) []byte {
	const (
		blockSize       = 128 << 10
		raw, repeat     = 0 << 1, 1 << 1
		lastBlock       = 1
		twoMiBWindow    = 11 << 3
		noContentSizeIn = 0
	)
	header := func(kind, size uint32) []byte {
		return binary.LittleEndian.AppendUint32(nil, size<<3|kind)[:3]
	}
	record := bombRecord(size)
	packed := []byte{0x28, 0xb5, 0x2f, 0xfd, noContentSizeIn, twoMiBWindow}
	packed = append(append(packed, header(raw, uint32(len(record)))...), record...)
	for range size / blockSize {
		packed = append(append(packed, header(repeat, blockSize)...), 0)
	}
	return append(packed, header(raw|lastBlock, 0)...)
}

// lz4Bomb is one frame of independent blocks, none of which tells how much is to
// come (LZ4 Frame Format, "General Structure").
func lz4Bomb(size int) []byte {
	const blockSize = 4 << 20
	var packed bytes.Buffer
	writer := lz4.NewWriter(&packed)
	_ = writer.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false)) // fails for bad options only
	_, _ = writer.Write(bombRecord(size))
	_ = writer.Flush()
	block := make([]byte, lz4.CompressBlockBound(blockSize))
	n, _ := lz4.CompressBlock(make([]byte, blockSize), block, nil) // there is room
	block = append(binary.LittleEndian.AppendUint32(nil, uint32(n)), block[:n]...)
	for range size / blockSize {
		packed.Write(block)
	}
	packed.Write([]byte{0, 0, 0, 0}) // end mark
	return packed.Bytes()
}

// snappyBomb has the Java framing: blocks that each declare their own size only.
func snappyBomb(size int) []byte {
	packed := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	sized := func(data []byte) []byte {
		block := snappy.Encode(nil, data)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(block))), block...)
	}
	packed = append(packed, sized(bombRecord(size))...)
	return append(packed, bytes.Repeat(sized(make([]byte, bombPiece)), size/bombPiece)...)
}

// TestBombsUnpackToARecord makes sure that bombs are refused for their size,
// not for being broken.
func TestBombsUnpackToARecord(t *testing.T) {
	const size = 4 << 20
	want := append(bombRecord(size), make([]byte, size)...)
	unzip, err := gzip.NewReader(bytes.NewReader(gzipBomb(size)))
	if err != nil {
		t.Fatal(err)
	}
	unzstd, err := zstd.NewReader(bytes.NewReader(zstdBomb(size)))
	if err != nil {
		t.Fatal(err)
	}
	defer unzstd.Close()
	for name, unpacked := range map[string]io.Reader{
		"gzip": unzip, "zstd": unzstd, "lz4": lz4.NewReader(bytes.NewReader(lz4Bomb(size))),
		"snappy": bytes.NewReader(unsnappy(t, snappyBomb(size))),
	} {
		if got, err := io.ReadAll(unpacked); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, %v; want the record in %d", name, len(got), err, len(want))
		}
	}
}

// unsnappy unpacks the Java framing: a header of 16 bytes, then blocks.
func unsnappy(t *testing.T, packed []byte) []byte {
	t.Helper()
	var unpacked []byte
	for rest := packed[16:]; len(rest) > 0; {
		size := binary.BigEndian.Uint32(rest)
		block, err := snappy.Decode(nil, rest[4:4+size])
		if err != nil {
			t.Fatal(err)
		}
		unpacked, rest = append(unpacked, block...), rest[4+size:]
	}
	return unpacked
}
