package wire

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frontChecksum is the checksum of a batch's header alone.
func frontChecksum(batch []byte) uint32 {
	return crc32.Checksum(batch[batchAttributesPos:batchHeaderSize], castagnoli)
}

// batchChecksum is the checksum of a batch's bytes.
func batchChecksum(batch []byte) uint32 {
	return crc32.Checksum(batch[batchAttributesPos:], castagnoli)
}

// A CRC is linear: those of two messages of one length differ by what their
// difference alone would leave in the register. So when a few bytes change at the
// front of many, the new checksum follows from the old one: by what the change makes
// of the checksum of those few, and then as many zero bytes as come behind. That is a
// multiplication by x to the power of 8 for each byte, modulo the polynomial.

// changedChecksum is the checksum of a message whose first bytes have changed, with
// rest more bytes behind them that have not; checksum was that of the whole message,
// before and after are those of its first bytes alone.
func changedChecksum(checksum, before, after uint32, rest int) uint32 {
	return checksum ^ crcTimesZeros(before^after, rest)
}

// crcPoly is Castagnoli's polynomial, its bits reversed like those of all
// registers here: x⁰ is the highest.
const crcPoly = crc32.Castagnoli

// crcZeros[i][n] is x to the power of 8·n·256ⁱ: n·256ⁱ bytes of zeros. Sizes of
// batches have four digits to base 256.
var crcZeros = func() (zeros [4][256]uint32) {
	one, step := uint32(1)<<31, uint32(1)<<(31-8) // x⁰ and x⁸
	for i := range zeros {
		power := one
		for n := range zeros[i] {
			zeros[i][n] = power
			power = crcMultiply(power, step)
		}
		step = power
	}
	return zeros
}()

// crcTimesZeros is what n bytes of zeros make of a register.
func crcTimesZeros(register uint32, n int) uint32 {
	for i := 0; n > 0; i++ {
		if digit := n & 0xff; digit != 0 {
			register = crcMultiply(register, crcZeros[i][digit])
		}
		n >>= 8
	}
	return register
}

// crcMultiply multiplies two polynomials modulo crcPoly.
func crcMultiply(a, b uint32) uint32 {
	var product uint32
	for range 32 {
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crcPoly&-(b&1)
	}
	return product
}
