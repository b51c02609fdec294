package frame

import (
	"encoding/binary"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// MaxAckBatchBytes is the largest AckBatch payload.
	MaxAckBatchBytes = ackBatchPrefixBytes + MaxBatchRecords/8

	ackBatchPrefixBytes = 3
	ackBatchVersion     = 1
)

// Bitmap has a bit for each record of a batch, in order: bit i is byte i/8,
// mask 1<<(i%8). A set bit says that the record is as safe as it was asked to
// be; a clear one says nothing.
type Bitmap []byte

// BitmapLen returns how many bytes the bitmap of n records has.
func BitmapLen(n int) int { return (n + 7) / 8 }

// Get returns bit i, which must be below 8*len(m).
func (m Bitmap) Get(i int) bool { return m[i/8]&(1<<(i%8)) != 0 }

// Set sets bit i, which must be below 8*len(m).
func (m Bitmap) Set(i int) { m[i/8] |= 1 << (i % 8) }

// AppendAckBatch appends an AckBatch frame for n records, 1 to MaxBatchRecords;
// bit i is what ok returns for i. ok must not be nil.
func AppendAckBatch(dst []byte, n int, ok func(i int) bool) []byte {
	start := len(dst)
	dst = begin(dst, AckBatch, record.Durable)
	dst = AppendAckBatchBody(dst, n, ok)
	return finish(dst, start)
}

// AppendAckBatchBody appends the payload of AppendAckBatch: version u8,
// record_count u16 LE, the bitmap.
func AppendAckBatchBody(dst []byte, n int, ok func(i int) bool) []byte {
	dst = append(dst, ackBatchVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	at := len(dst)
	for range BitmapLen(n) {
		dst = append(dst, 0)
	}
	bits := Bitmap(dst[at:])
	for i := range n {
		if ok(i) {
			bits.Set(i)
		}
	}
	return dst
}

// ParseAckBatch checks the payload of an AckBatch that answers a batch of sent
// records, and returns its bitmap, which aliases payload.
func ParseAckBatch(payload []byte, sent int) (Bitmap, error) {
	if len(payload) < ackBatchPrefixBytes {
		return nil, ErrTruncated
	}
	if payload[0] != ackBatchVersion {
		return nil, ErrUnsupportedVersion
	}
	count := int(binary.LittleEndian.Uint16(payload[1:]))
	if count == 0 {
		return nil, ErrEmptyBatch
	}
	bits := Bitmap(payload[ackBatchPrefixBytes:])
	if count != sent || len(bits) != BitmapLen(count) {
		return nil, ErrLengthMismatch
	}
	if used := count % 8; used != 0 && bits[len(bits)-1]>>used != 0 {
		return nil, ErrPaddingNotZero
	}
	return bits, nil
}
