package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Compression codecs, as BatchHeader.Codec tells them.
const (
	CodecNone   int8 = 0
	CodecGzip   int8 = 1
	CodecSnappy int8 = 2
	CodecLZ4    int8 = 3
	CodecZstd   int8 = 4
)

// zstdMaxWindow is the window above which the reference decoder, and so a
// broker, refuses a frame unless told otherwise.
const zstdMaxWindow = 128 << 20

// zstdMaxBlock is the most that one block of zstd decompresses to; a block
// takes at least three bytes.
const zstdMaxBlock = 128 << 10

// zstdRoom is the room in which the decoder certainly finds place for one
// block: what its fast copies write past the end included.
const zstdRoom = zstdMaxBlock + 64

// Decompress decompresses src into dst, whose content is overwritten and
// whose capacity is used, and returns the result: dst's memory or, where that
// did not suffice, new memory. dst must not overlap src. The result is never
// longer than max bytes: past it Decompress stops with ErrTooLarge, and what
// it allocates meanwhile stays within a small multiple of max plus a block of
// 128 KiB, whatever sizes src declares. All other errors wrap ErrCorrupt.
// With an error, the slice returned is empty but good for reuse.
//
// Checksums inside lz4 frames are not verified: the batch's own covers the
// bytes. Safe for concurrent use.
func Decompress(dst []byte, codec int8, src []byte, max int) ([]byte, error) {
	if max < 0 {
		max = 0
	}
	dst = dst[:0]
	var err error
	switch codec {
	case CodecNone:
		if len(src) > max {
			err = ErrTooLarge
		} else {
			dst = append(dst, src...)
		}
	case CodecGzip:
		dst, err = gunzip(dst, src, max)
	case CodecSnappy:
		dst, err = unsnappy(dst, src, max)
	case CodecLZ4:
		dst, err = unlz4(dst, src, max)
	case CodecZstd:
		dst, err = unzstd(dst, src, max)
	default:
		err = ErrCorrupt
	}
	if err != nil {
		return dst[:0], fmt.Errorf("decompress codec %d: %w", codec, err)
	}
	return dst, nil
}

// grow returns b with room for n more bytes at least and max bytes in all at
// most; the caller has checked that n fits. Growth is geometric.
func grow(b []byte, n, max int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	size := min(len(b)+len(b)/2+n, max)
	bigger := make([]byte, len(b), size)
	copy(bigger, b)
	return bigger
}

// corrupt marks a decoder's own error as ErrCorrupt.
func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

type gzipDecoder struct {
	src bytes.Reader
	gzip.Reader
	probe [1]byte // not on the stack: it would escape
}

var gzipDecoders = sync.Pool{New: func() any { return new(gzipDecoder) }}

func gunzip(dst, src []byte, max int) ([]byte, error) {
	d := gzipDecoders.Get().(*gzipDecoder)
	defer func() {
		d.src.Reset(nil)
		gzipDecoders.Put(d)
	}()
	d.src.Reset(src)
	if err := d.Reset(&d.src); err != nil {
		return dst, corrupt(err)
	}
	dst = grow(dst, min(4*len(src), max), max)
	for {
		if len(dst) == cap(dst) && len(dst) < max {
			dst = grow(dst, min(max-len(dst), 512), max)
		}
		free := dst[len(dst):min(cap(dst), max)]
		if len(free) == 0 {
			free = d.probe[:] // full to the limit: is there more?
		}
		n, err := d.Read(free)
		if n > max-len(dst) {
			return dst, ErrTooLarge
		}
		dst = dst[:len(dst)+n]
		switch {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, corrupt(err)
		}
	}
}

// xerialMagic starts the framing of snappy-java, which Java clients write:
// two int32 versions follow it, then blocks, each after its int32 size. As a
// raw snappy block it would be invalid (a copy before any literal).
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderSize = 16

func unsnappy(dst, src []byte, max int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return unsnappyBlock(dst, src, max)
	}
	if len(src) < xerialHeaderSize {
		return dst, ErrCorrupt
	}
	src = src[xerialHeaderSize:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, ErrCorrupt
		}
		size := int64(binary.BigEndian.Uint32(src))
		src = src[4:]
		if size > int64(len(src)) {
			return dst, ErrCorrupt
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:size], max); err != nil {
			return dst, err
		}
		src = src[size:]
	}
	return dst, nil
}

// unsnappyBlock appends one raw block.
func unsnappyBlock(dst, src []byte, max int) ([]byte, error) {
	size, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, corrupt(err)
	}
	if size > max-len(dst) {
		return dst, ErrTooLarge
	}
	// Nothing in snappy expands beyond a 64 byte copy from 3 bytes, so a
	// larger size is a lie that need not be allocated.
	if size/22 > len(src) {
		return dst, ErrCorrupt
	}
	at := len(dst)
	dst = grow(dst, size, max)
	block, err := snappy.Decode(dst[at:at+size:at+size], src)
	if err != nil {
		return dst, corrupt(err)
	}
	return dst[:at+len(block)], nil
}

// zstdDecoders hold no goroutines: with a concurrency of one and no stream,
// the decoder works in its caller's.
var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdMaxWindow),
		zstd.WithDecodeAllCapLimit(true),
	)
	if err != nil {
		panic(err) // only for options out of their range
	}
	return d
}}

func unzstd(dst, src []byte, max int) ([]byte, error) {
	// Blocks may be long where nothing is known of the content's size.
	hint := min(4*len(src)+zstdRoom, max)
	var header zstd.Header
	if header.Decode(src) == nil {
		if header.HasFCS && header.FrameContentSize > uint64(max) ||
			header.WindowSize > zstdMaxWindow ||
			header.SingleSegment && header.FrameContentSize > zstdMaxWindow {
			return dst, ErrTooLarge
		}
		if header.HasFCS {
			// The size is believed as far as blocks can hold it.
			hint = min(int(header.FrameContentSize), (len(src)/3)*zstdMaxBlock)
		}
	}
	dst = grow(dst, hint, max)
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	for {
		out, err := d.DecodeAll(src, dst[:0])
		switch {
		case len(out) > max:
			return dst, ErrTooLarge
		case err == nil:
			return out, nil
		case errors.Is(err, zstd.ErrDecoderSizeExceeded) && cap(dst) >= max+zstdRoom:
			return dst, ErrTooLarge
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded) && cap(dst)-len(out) >= zstdRoom:
			return dst, corrupt(err)
		}
		// The next block did not fit, or may not have: the decoder does not
		// always tell that from damage. We start over with twice the room,
		// in the end with so much that only damage can be the reason; all
		// rounds together cost twice the last.
		dst = make([]byte, 0, min(2*cap(dst)+zstdRoom, max+zstdRoom))
	}
}
