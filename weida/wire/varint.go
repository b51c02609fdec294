package wire

import (
	"encoding/binary"
	"math/bits"
)

const (
	// MaxVarint is the greatest number that a variable-length integer can hold (RFC 9000 §16).
	MaxVarint      = 1<<62 - 1
	maxVarintBytes = 8

	varintLengthShift = 6 // the two highest bits of the first byte say how long it is
	varintFirstMask   = 1<<varintLengthShift - 1
)

// varintLog returns the base-2 logarithm of the shortest length that holds v, which is at most MaxVarint.
func varintLog(v uint64) int {
	switch n := bits.Len64(v); {
	case n <= 6:
		return 0
	case n <= 14:
		return 1
	case n <= 30:
		return 2
	}
	return 3
}

// AppendVarint appends v in its shortest form. It fails with ErrRange if v is above MaxVarint, and then appends nothing.
func AppendVarint(b []byte, v uint64) ([]byte, error) {
	if v > MaxVarint {
		return b, ErrRange
	}
	return appendVarint(b, v), nil
}

func appendVarint(b []byte, v uint64) []byte {
	log := varintLog(v)
	var wide [maxVarintBytes]byte
	binary.BigEndian.PutUint64(wide[:], v)
	short := wide[maxVarintBytes-1<<log:]
	short[0] |= byte(log) << varintLengthShift
	return append(b, short...)
}

// ParseVarint reads the integer at the start of b and returns it with its length in bytes. Any of the four lengths is accepted for any value that
// fits. The one error is ErrIncomplete.
func ParseVarint(b []byte) (v uint64, n int, err error) {
	if len(b) == 0 {
		return 0, 0, ErrIncomplete
	}
	n = 1 << (b[0] >> varintLengthShift)
	if len(b) < n {
		return 0, 0, ErrIncomplete
	}
	v = uint64(b[0] & varintFirstMask)
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, n, nil
}
