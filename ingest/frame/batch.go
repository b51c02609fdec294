package frame

import (
	"encoding/binary"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// MaxBatchRecords is MAX_BATCH_RECORDS_HARD_CAP. A daemon may take fewer.
	MaxBatchRecords = 2048
	// BatchPrefixBytes is the length of a batch body before its first record.
	BatchPrefixBytes = 3
	// BatchRecordOverheadBytes is what a record costs in a batch body beside its
	// own bytes.
	BatchRecordOverheadBytes = 4

	batchVersion = 1
)

// AppendPushBatch appends a PushBatch frame whose body holds payloads in order.
// They are copied. Keeping to 1..MaxBatchRecords records of 1 byte or more and
// to MaxPayloadBytes for the body is up to the caller.
func AppendPushBatch(dst []byte, d record.Durability, payloads ...[]byte) []byte {
	start := len(dst)
	dst = AppendBatch(begin(dst, PushBatch, d), payloads...)
	return finish(dst, start)
}

// AppendBatch appends a batch body ("PushBatch body"): version u8, record_count
// u16 LE, then for each record its length as u32 LE and its bytes.
func AppendBatch(dst []byte, payloads ...[]byte) []byte {
	dst = append(dst, batchVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(payloads)))
	for _, p := range payloads {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p)))
		dst = append(dst, p...)
	}
	return dst
}

// ParseBatch checks a whole batch body in the normative order and appends its
// records to dst; they alias body. On an error dst is returned as it was.
// maxRecords above MaxBatchRecords and maxRecord (bytes of one record) above
// MaxPayloadBytes, and either at zero or below, count as those caps.
//
// Nothing is sized by the declared count: dst grows with the entries found.
func ParseBatch(dst [][]byte, body []byte, maxRecords, maxRecord int) ([][]byte, error) {
	if len(body) < BatchPrefixBytes {
		return dst, ErrTruncated
	}
	if body[0] != batchVersion {
		return dst, ErrUnsupportedVersion
	}
	count := int(binary.LittleEndian.Uint16(body[1:]))
	if count == 0 {
		return dst, ErrEmptyBatch
	}
	if maxRecords <= 0 || maxRecords > MaxBatchRecords {
		maxRecords = MaxBatchRecords
	}
	if count > maxRecords {
		return dst, ErrTooManyRecords
	}
	most := uint32(payloadCap(maxRecord))
	rest := body[BatchPrefixBytes:]
	out := dst
	for range count {
		if len(rest) < BatchRecordOverheadBytes {
			return dst, ErrTruncatedRecord
		}
		n := binary.LittleEndian.Uint32(rest)
		rest = rest[BatchRecordOverheadBytes:]
		switch {
		case n == 0:
			return dst, ErrEmptyRecord
		case n > most:
			return dst, ErrRecordTooLarge
		case len(rest) < int(n):
			return dst, ErrTruncatedRecord
		}
		out = append(out, rest[:n:n])
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return dst, ErrLengthMismatch
	}
	return out, nil
}
