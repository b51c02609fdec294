// Package frame is the codec of weir wire v1: frames, batch bodies, record
// coordinates and reason codes. It appends to slices and parses slices; it does
// no I/O and starts no goroutine.
//
//	Offset  Size  Field
//	 0       4    magic "WEIR"
//	 4       1    version, 1
//	 5       1    message type
//	 6       1    durability
//	 7       1    flags, zero
//	 8       4    payload length n, little-endian, without the CRC
//	12       4    CRC-32 of bytes 0 to 11, little-endian
//	16       n    payload
//	16+n     4    CRC-32 of the payload, little-endian
//
// What a parser returns aliases the buffer that it was given. Every error is a
// Verdict, so comparing with == and errors.Is agree.
package frame

import (
	"encoding/binary"

	"github.com/weir-agent/weir/wab/record"
)

const (
	// Version is WIRE_VERSION. Nothing else is accepted.
	Version = 1
	// HeaderLen is the length of a header in bytes.
	HeaderLen = 16
	// TrailerLen is the length of the payload CRC in bytes.
	TrailerLen = 4
	// Overhead is what a frame adds to its payload, in bytes.
	Overhead = HeaderLen + TrailerLen
	// MaxPayloadBytes is MAX_PAYLOAD_HARD_CAP, 16 MiB.
	MaxPayloadBytes = record.MaxBytes

	magic = "WEIR"
)

// Offsets of the header fields.
const (
	versionAt    = 4
	typeAt       = 5
	durabilityAt = 6
	flagsAt      = 7
	lengthAt     = 8
	headerCrcAt  = 12
)

// Header is a parsed header.
type Header struct {
	// Version is the version byte; it is set with ErrVersionMismatch too, so
	// that a client can name both sides.
	Version    uint8
	Type       Type
	Durability record.Durability
	// PayloadLen is in bytes and at most the cap that the parser was given.
	PayloadLen int
}

// FrameLen returns the length of the whole frame in bytes.
func (h Header) FrameLen() int { return HeaderLen + h.PayloadLen + TrailerLen }

// ParseHeader reads the header at the start of b in the order of "Frame decode
// order", steps 1 to 5: length, magic, version, header CRC, type, durability,
// flags, payload cap. maxPayload is in bytes; above MaxPayloadBytes, or at zero
// or below, it counts as MaxPayloadBytes. It does not look behind the header.
func ParseHeader(b []byte, maxPayload int) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, ErrTruncatedFrame
	}
	b = b[:HeaderLen]
	if string(b[:versionAt]) != magic {
		return Header{}, ErrBadMagic
	}
	h := Header{Version: b[versionAt], Type: Type(b[typeAt])}
	if h.Version != Version {
		return Header{Version: h.Version}, ErrVersionMismatch
	}
	if checksum(b[:headerCrcAt]) != binary.LittleEndian.Uint32(b[headerCrcAt:]) {
		return Header{Version: h.Version}, ErrHeaderCrcMismatch
	}
	if !h.Type.Known() {
		return h, ErrUnknownMessageType
	}
	var ok bool
	if h.Durability, ok = ParseDurability(b[durabilityAt]); !ok {
		return h, ErrUnknownDurability
	}
	if b[flagsAt] != 0 {
		return h, ErrReservedFlagsSet
	}
	n := binary.LittleEndian.Uint32(b[lengthAt:])
	if n > uint32(payloadCap(maxPayload)) {
		return h, ErrPayloadTooLarge
	}
	h.PayloadLen = int(n)
	return h, nil
}

// ParseRequestHeader is ParseHeader for a daemon: after the cap it rejects an
// empty Push or PushTracked (ErrEmptyPayload) and a type that only a daemon
// sends (ErrUnknownMessageType). An empty PushBatch is left to ParseBatch.
func ParseRequestHeader(b []byte, maxPayload int) (Header, error) {
	h, err := ParseHeader(b, maxPayload)
	if err != nil {
		return h, err
	}
	if !h.Type.Request() {
		return h, ErrUnknownMessageType
	}
	if h.PayloadLen == 0 && (h.Type == Push || h.Type == PushTracked) {
		return h, ErrEmptyPayload
	}
	return h, nil
}

// ParseReplyHeader is ParseHeader for a client that sent a frame of type sent: a
// type that answers something else is ErrUnexpectedReply, and a length above
// MaxReplyBytes of the reply's type is ErrPayloadTooLarge, so that nothing is
// allocated for either. The durability of a reply is filler and means nothing.
func ParseReplyHeader(b []byte, sent Type) (Header, error) {
	h, err := ParseHeader(b, 0)
	if err != nil {
		return h, err
	}
	if h.Type != Nack && h.Type != sent.Reply() {
		return h, ErrUnexpectedReply
	}
	if h.PayloadLen > MaxReplyBytes(h.Type) {
		return h, ErrPayloadTooLarge
	}
	return h, nil
}

// MaxReplyBytes returns the largest payload, in bytes, of a reply of type t.
func MaxReplyBytes(t Type) int {
	switch t {
	case Nack:
		return 2
	case AckTracked:
		return MaxCoordinateBytes
	case AckBatch:
		return MaxAckBatchBytes
	}
	return 0
}

// ParsePayload returns the payload of the frame that starts at b[0] and has the
// header h, once its CRC was verified; the result aliases b. It fails with
// ErrTruncatedFrame if b ends before the frame, or ErrPayloadCrcMismatch.
func ParsePayload(b []byte, h Header) ([]byte, error) {
	if len(b) < h.FrameLen() {
		return nil, ErrTruncatedFrame
	}
	end := HeaderLen + h.PayloadLen
	payload := b[HeaderLen:end:end]
	if checksum(payload) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, ErrPayloadCrcMismatch
	}
	return payload, nil
}

// Parse reads b, which must hold exactly one frame ("Reference codec: one
// buffer, one frame"). The payload aliases b. maxPayload is that of ParseHeader.
func Parse(b []byte, maxPayload int) (Header, []byte, error) {
	h, err := ParseHeader(b, maxPayload)
	if err != nil {
		return h, nil, err
	}
	if len(b) > h.FrameLen() {
		return h, nil, ErrTrailingBytes
	}
	payload, err := ParsePayload(b, h)
	return h, payload, err
}

func payloadCap(n int) int {
	if n <= 0 || n > MaxPayloadBytes {
		return MaxPayloadBytes
	}
	return n
}

// begin appends a header whose length and CRC finish fills in.
func begin(dst []byte, t Type, d record.Durability) []byte {
	dst = append(dst, magic...)
	return append(dst, Version, byte(t), byte(d), 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// finish completes the frame whose header begin wrote at dst[start:] and whose
// payload is the rest of dst.
func finish(dst []byte, start int) []byte {
	f := dst[start:]
	payload := f[HeaderLen:]
	binary.LittleEndian.PutUint32(f[lengthAt:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(f[headerCrcAt:], checksum(f[:headerCrcAt]))
	return binary.LittleEndian.AppendUint32(dst, checksum(payload))
}

// Append appends a frame of any type. The payload is copied; keeping it within
// MaxPayloadBytes, and right for the type, is up to the caller. d is the tier of
// a request; replies carry Durable.
func Append(dst []byte, t Type, d record.Durability, payload []byte) []byte {
	start := len(dst)
	dst = begin(dst, t, d)
	return finish(append(dst, payload...), start)
}

// The two replies without a payload, whole: they are sent the most.
const (
	ackFrame    = "WEIR\x01\x02\x01\x00\x00\x00\x00\x00\xc9\x47\x4b\x3a\x00\x00\x00\x00"
	healthFrame = "WEIR\x01\x05\x01\x00\x00\x00\x00\x00\x47\x79\xec\xff\x00\x00\x00\x00"
)

// AppendAck appends an Ack frame, 20 bytes.
func AppendAck(dst []byte) []byte { return append(dst, ackFrame...) }

// AppendHealthCheckResponse appends a HealthCheckResponse frame, 20 bytes.
func AppendHealthCheckResponse(dst []byte) []byte { return append(dst, healthFrame...) }

// AppendHealthCheck appends a HealthCheck frame, 20 bytes.
func AppendHealthCheck(dst []byte) []byte {
	return Append(dst, HealthCheck, record.Durable, nil)
}
