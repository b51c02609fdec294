package frame

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// MaxSegmentBytes is MAX_SEGMENT_NAME_LEN.
	MaxSegmentBytes = 255
	// MaxCoordinateBytes is the largest AckTracked payload.
	MaxCoordinateBytes = coordinateFixedBytes + MaxSegmentBytes

	coordinateFixedBytes = 43
	coordinateVersion    = 1
	coordinateIDAt       = 9
	coordinateLenAt      = 41
)

// AppendAckTracked appends an AckTracked frame. c.Segment has at most
// MaxSegmentBytes bytes of UTF-8; that is up to the caller.
func AppendAckTracked(dst []byte, c record.Coordinate) []byte {
	start := len(dst)
	dst = AppendCoordinate(begin(dst, AckTracked, record.Durable), c)
	return finish(dst, start)
}

// AppendCoordinate appends the payload of an AckTracked ("AckTracked payload"):
// version u8, index u64 LE, record id, length of the segment u16 LE, segment.
func AppendCoordinate(dst []byte, c record.Coordinate) []byte {
	dst = append(dst, coordinateVersion)
	dst = binary.LittleEndian.AppendUint64(dst, c.Index)
	dst = append(dst, c.ID[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(c.Segment)))
	return append(dst, c.Segment...)
}

// ParseCoordinate reads a payload that must be exactly one coordinate. The
// segment is copied. An empty segment is legal here; a daemon never sends one.
func ParseCoordinate(payload []byte) (record.Coordinate, error) {
	if len(payload) < coordinateFixedBytes {
		return record.Coordinate{}, ErrTruncated
	}
	if payload[0] != coordinateVersion {
		return record.Coordinate{}, ErrUnsupportedVersion
	}
	n := int(binary.LittleEndian.Uint16(payload[coordinateLenAt:]))
	if n > MaxSegmentBytes {
		return record.Coordinate{}, ErrSegmentTooLong
	}
	segment := payload[coordinateFixedBytes:]
	if len(segment) != n {
		return record.Coordinate{}, ErrLengthMismatch
	}
	if !utf8.Valid(segment) {
		return record.Coordinate{}, ErrSegmentNotUtf8
	}
	return record.Coordinate{
		Segment: string(segment),
		Index:   binary.LittleEndian.Uint64(payload[1:]),
		ID:      record.ID(payload[coordinateIDAt:coordinateLenAt]),
	}, nil
}
