package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encoding is how the value of an expected-offset header is written. "end", in
// ASCII, is the same in all: no offset has three bytes in EncodingInt64, nor
// letters in EncodingDecimal.
type Encoding int

const (
	// EncodingDecimal is ASCII decimal digits, at most 19.
	EncodingDecimal Encoding = iota
	// EncodingInt64 is 8 bytes, big-endian, two's complement: how Kafka's own
	// LongSerializer writes it.
	EncodingInt64
)

// String names the encoding as the configuration does.
func (e Encoding) String() string {
	switch e {
	case EncodingDecimal:
		return "decimal"
	case EncodingInt64:
		return "int64"
	}
	return fmt.Sprintf("Encoding(%d)", int(e))
}

// atEndValue is how a record says that it goes wherever the log ends.
const atEndValue = "end"

// parse reads the value of an expected-offset header.
func (e Encoding) parse(value []byte) (kind Kind, offset int64, fault RecordFault) {
	switch {
	case len(value) == 0:
		return 0, 0, FaultEmpty
	case string(value) == atEndValue:
		return AtEnd, 0, 0
	case e == EncodingInt64:
		offset, fault = parseInt64(value)
	default:
		offset, fault = parseDecimal(value)
	}
	if fault != 0 {
		return 0, 0, fault
	}
	return Conditional, offset, 0
}

// parseInt64 reads 8 bytes. No negative number has a meaning, −1 neither.
func parseInt64(value []byte) (int64, RecordFault) {
	if len(value) != 8 {
		return 0, FaultNotInt64
	}
	n := int64(binary.BigEndian.Uint64(value))
	switch {
	case n < 0:
		return 0, FaultNegative
	case n == math.MaxInt64:
		return 0, FaultTooLarge
	}
	return n, 0
}

// parseDecimal reads digits. Leading zeros are fine up to the 19 digits that the
// largest offset has.
func parseDecimal(value []byte) (int64, RecordFault) {
	if value[0] == '+' || value[0] == '-' {
		return 0, FaultSign
	}
	var n uint64 // 19 digits fit in 64 bits unsigned
	for _, c := range value {
		digit := c - '0'
		if digit > 9 {
			return 0, FaultNotDecimal
		}
		n = n*10 + uint64(digit)
	}
	if len(value) > 19 || n >= math.MaxInt64 {
		return 0, FaultTooLarge
	}
	return int64(n), 0
}
