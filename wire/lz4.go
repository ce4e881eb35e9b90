package wire

import (
	"encoding/binary"

	"github.com/pierrec/lz4/v4"
)

// The lz4 frame format, version 1 (lz4_Frame_format.md of the lz4 project).
// We walk frames ourselves and leave blocks to the library: blocks then
// decompress straight into the caller's bounded buffer, where the library's
// frame reader takes up to 8 MiB of buffers on the word of a header.
const (
	lz4Magic        = 0x184D2204
	lz4DescriptorAt = 4 // flags, block size, optional fields, checksum
	lz4Window       = 64 << 10

	lz4FlagDictionary      = 0x01
	lz4FlagContentChecksum = 0x04
	lz4FlagContentSize     = 0x08
	lz4FlagBlockChecksum   = 0x10
	lz4FlagReserved        = 0x02
	lz4Version             = 0x40
	lz4VersionMask         = 0xc0

	lz4BlockStored = 1 << 31
	// lz4MaxRatio: no byte of a block stands for more than 255.
	lz4MaxRatio = 255
)

// unlz4 appends the content of exactly one frame. Brokers read no more than
// the first frame, so bytes after it are an error, not content.
func unlz4(dst, src []byte, max int) ([]byte, error) {
	if len(src) < lz4DescriptorAt+3 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return dst, ErrCorrupt
	}
	flags, descriptor := src[lz4DescriptorAt], src[lz4DescriptorAt+1]
	if flags&lz4VersionMask != lz4Version || flags&(lz4FlagReserved|lz4FlagDictionary) != 0 {
		return dst, ErrCorrupt
	}
	index := int(descriptor >> 4 & 7)
	if descriptor&0x8f != 0 || index < 4 {
		return dst, ErrCorrupt
	}
	blockMax := 1 << (8 + 2*index) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	at := lz4DescriptorAt + 3
	if flags&lz4FlagContentSize != 0 {
		at += 8
	}
	start := len(dst)
	for {
		if len(src)-at < 4 {
			return dst, ErrCorrupt
		}
		word := binary.LittleEndian.Uint32(src[at:])
		at += 4
		if word == 0 {
			break
		}
		size := int(word &^ lz4BlockStored)
		if size > blockMax || size > len(src)-at {
			return dst, ErrCorrupt
		}
		var err error
		if dst, err = unlz4Block(dst, start, src[at:at+size], word&lz4BlockStored != 0, blockMax, max); err != nil {
			return dst, err
		}
		at += size
		if flags&lz4FlagBlockChecksum != 0 {
			at += 4
		}
		if at > len(src) {
			return dst, ErrCorrupt
		}
	}
	if flags&lz4FlagContentChecksum != 0 {
		at += 4
	}
	if at != len(src) {
		return dst, ErrCorrupt
	}
	if flags&lz4FlagContentSize != 0 &&
		binary.LittleEndian.Uint64(src[lz4DescriptorAt+2:]) != uint64(len(dst)-start) {
		return dst, ErrCorrupt
	}
	return dst, nil
}

// unlz4Block appends one block; the frame's content begins at start. A block
// that is damaged and would exceed what is left of max counts as too large.
func unlz4Block(dst []byte, start int, block []byte, stored bool, blockMax, max int) ([]byte, error) {
	left := max - len(dst)
	if stored {
		if len(block) > left {
			return dst, ErrTooLarge
		}
		return append(grow(dst, len(block), max), block...), nil
	}
	room := min(blockMax, lz4MaxRatio*len(block))
	bounded := room > left
	if bounded {
		room = left
	}
	dst = grow(dst, room, max)
	at := len(dst)
	// Blocks may refer to the 64 KiB before them. Brokers want independent
	// blocks, and for those the window is simply not used.
	window := dst[start:]
	if len(window) > lz4Window {
		window = window[len(window)-lz4Window:]
	}
	n, err := lz4.UncompressBlockWithDict(block, dst[at:at+room], window)
	switch {
	case err != nil && bounded:
		return dst, ErrTooLarge
	case err != nil:
		return dst, corrupt(err)
	}
	return dst[:at+n], nil
}
