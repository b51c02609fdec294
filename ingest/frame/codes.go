package frame

import (
	"fmt"

	"github.com/weir-agent/weir/wab/record"
)

// Type is the message type of a frame: byte 5 of the header.
type Type uint8

// The message types of weir wire v1 ("Message types"). 0x0A to 0xFF are unassigned.
const (
	Push                Type = 0x01
	Ack                 Type = 0x02
	Nack                Type = 0x03
	HealthCheck         Type = 0x04
	HealthCheckResponse Type = 0x05
	PushTracked         Type = 0x06
	AckTracked          Type = 0x07
	PushBatch           Type = 0x08
	AckBatch            Type = 0x09
)

// String returns the name that the specification uses, or the number of an
// unassigned type.
func (t Type) String() string {
	switch t {
	case Push:
		return "Push"
	case Ack:
		return "Ack"
	case Nack:
		return "Nack"
	case HealthCheck:
		return "HealthCheck"
	case HealthCheckResponse:
		return "HealthCheckResponse"
	case PushTracked:
		return "PushTracked"
	case AckTracked:
		return "AckTracked"
	case PushBatch:
		return "PushBatch"
	case AckBatch:
		return "AckBatch"
	}
	return fmt.Sprintf("Type(%#02x)", uint8(t))
}

// Known reports whether the type is assigned.
func (t Type) Known() bool { return t >= Push && t <= AckBatch }

// Request reports whether a client may send the type.
func (t Type) Request() bool {
	return t == Push || t == HealthCheck || t == PushTracked || t == PushBatch
}

// Reply returns the type that answers a request with success, or zero if t is
// no request.
func (t Type) Reply() Type {
	switch t {
	case Push:
		return Ack
	case HealthCheck:
		return HealthCheckResponse
	case PushTracked:
		return AckTracked
	case PushBatch:
		return AckBatch
	}
	return 0
}

// Reason is the first payload byte of a Nack.
type Reason uint8

// The reasons of weir wire v1 ("Nack payload format"). 0x0A is permanently
// unassigned; so is, in v1, every byte above 0x0B.
const (
	BadMagic         Reason = 0x01
	VersionMismatch  Reason = 0x02
	BadHeaderCrc     Reason = 0x03
	PayloadTooLarge  Reason = 0x04
	BadPayloadCrc    Reason = 0x05
	InternalError    Reason = 0x06
	EmptyPayload     Reason = 0x07
	UnknownMessage   Reason = 0x08
	ReservedFlagsSet Reason = 0x09
	BadBatchFraming  Reason = 0x0B
)

// String returns the name that the specification uses, or the number of an
// unassigned reason.
func (r Reason) String() string {
	switch r {
	case BadMagic:
		return "BadMagic"
	case VersionMismatch:
		return "VersionMismatch"
	case BadHeaderCrc:
		return "BadHeaderCrc"
	case PayloadTooLarge:
		return "PayloadTooLarge"
	case BadPayloadCrc:
		return "BadPayloadCrc"
	case InternalError:
		return "InternalError"
	case EmptyPayload:
		return "EmptyPayload"
	case UnknownMessage:
		return "UnknownMessage"
	case ReservedFlagsSet:
		return "ReservedFlagsSet"
	case BadBatchFraming:
		return "BadBatchFraming"
	}
	return fmt.Sprintf("UnknownNack(%#02x)", uint8(r))
}

// Known reports whether the reason is assigned.
func (r Reason) Known() bool {
	return r >= BadMagic && r <= ReservedFlagsSet || r == BadBatchFraming
}

// Transient reports whether the same push may succeed later, on the same
// connection. InternalError is the only such reason.
func (r Reason) Transient() bool { return r == InternalError }

// retiredDurability is the byte of the tier that was folded into Durable. It is
// accepted and never written.
const retiredDurability = 0x02

// ParseDurability reads a durability byte. The retired 0x02 means Durable.
func ParseDurability(b byte) (record.Durability, bool) {
	switch b {
	case byte(record.Durable), retiredDurability:
		return record.Durable, true
	case byte(record.Buffered):
		return record.Buffered, true
	}
	return 0, false
}

// Verdict says why bytes are no frame, batch body, ack-batch body or coordinate
// of weir wire v1. It is an error, and it is the name that the conformance
// vectors use.
type Verdict uint8

// The verdicts, first those of a whole frame in the order of the checks, then
// those of the bodies.
const (
	// ErrTruncatedFrame and ErrTrailingBytes are verdicts on a buffer that must
	// hold exactly one frame; a reader of a stream never meets them.
	ErrTruncatedFrame Verdict = iota + 1
	ErrBadMagic
	ErrVersionMismatch
	ErrHeaderCrcMismatch
	ErrUnknownMessageType
	ErrUnknownDurability
	ErrReservedFlagsSet
	ErrPayloadTooLarge
	ErrEmptyPayload
	ErrTrailingBytes
	ErrPayloadCrcMismatch

	ErrTruncated
	ErrUnsupportedVersion
	ErrEmptyBatch
	ErrTooManyRecords
	ErrTruncatedRecord
	ErrEmptyRecord
	ErrRecordTooLarge
	ErrLengthMismatch
	ErrPaddingNotZero
	ErrSegmentTooLong
	ErrSegmentNotUtf8

	// ErrUnexpectedReply is a client's verdict: the type does not answer what
	// was sent.
	ErrUnexpectedReply
)

// Name returns the name that the specification and the vectors use.
func (v Verdict) Name() string {
	switch v {
	case ErrTruncatedFrame:
		return "TruncatedFrame"
	case ErrBadMagic:
		return "BadMagic"
	case ErrVersionMismatch:
		return "VersionMismatch"
	case ErrHeaderCrcMismatch:
		return "HeaderCrcMismatch"
	case ErrUnknownMessageType:
		return "UnknownMessageType"
	case ErrUnknownDurability:
		return "UnknownDurability"
	case ErrReservedFlagsSet:
		return "ReservedFlagsSet"
	case ErrPayloadTooLarge:
		return "PayloadTooLarge"
	case ErrEmptyPayload:
		return "EmptyPayload"
	case ErrTrailingBytes:
		return "TrailingBytes"
	case ErrPayloadCrcMismatch:
		return "PayloadCrcMismatch"
	case ErrUnexpectedReply:
		return "UnexpectedReply"
	}
	return v.bodyName()
}

func (v Verdict) bodyName() string {
	switch v {
	case ErrTruncated:
		return "Truncated"
	case ErrUnsupportedVersion:
		return "UnsupportedVersion"
	case ErrEmptyBatch:
		return "EmptyBatch"
	case ErrTooManyRecords:
		return "TooManyRecords"
	case ErrTruncatedRecord:
		return "TruncatedRecord"
	case ErrEmptyRecord:
		return "EmptyRecord"
	case ErrRecordTooLarge:
		return "RecordTooLarge"
	case ErrLengthMismatch:
		return "LengthMismatch"
	case ErrPaddingNotZero:
		return "PaddingNotZero"
	case ErrSegmentTooLong:
		return "SegmentTooLong"
	case ErrSegmentNotUtf8:
		return "SegmentNotUtf8"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Error implements error.
func (v Verdict) Error() string { return "frame: " + v.Name() }

// Reason returns the reason of the Nack that a daemon sends for a request with
// this verdict, and false if there is none: a truncated frame is only waited
// for, trailing bytes are the next frame, and the verdicts on replies are a
// client's.
func (v Verdict) Reason() (Reason, bool) {
	switch v {
	case ErrBadMagic:
		return BadMagic, true
	case ErrVersionMismatch:
		return VersionMismatch, true
	case ErrHeaderCrcMismatch:
		return BadHeaderCrc, true
	case ErrUnknownMessageType, ErrUnknownDurability:
		return UnknownMessage, true
	case ErrReservedFlagsSet:
		return ReservedFlagsSet, true
	case ErrPayloadTooLarge, ErrTooManyRecords, ErrRecordTooLarge:
		return PayloadTooLarge, true
	case ErrEmptyPayload, ErrEmptyRecord:
		return EmptyPayload, true
	case ErrPayloadCrcMismatch:
		return BadPayloadCrc, true
	case ErrTruncated, ErrUnsupportedVersion, ErrEmptyBatch, ErrTruncatedRecord, ErrLengthMismatch:
		return BadBatchFraming, true
	}
	return 0, false
}
