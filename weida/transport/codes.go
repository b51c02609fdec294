package transport

import "strconv"

// The codes that end streams and links (weida-protocol §7, weida-supplement §1.10). The first free code is 10.
const (
	CodeNoError           uint64 = 0 // an orderly close
	CodeInternal          uint64 = 1 // a local failure that the peer can do nothing about
	CodeProtocolViolation uint64 = 2 // any condition of §3.2
	CodeCanceled          uint64 = 3 // a transfer was abandoned by either side
	CodeNegotiationFailed uint64 = 4 // negotiation failed, or the peer's HELLO did not come in time
	CodeLimitExceeded     uint64 = 5 // a local limit was reached
	CodeShutdown          uint64 = 6 // the runtime shuts down or drains
	CodeRejected          uint64 = 7 // the receiver declines the payload
	CodeUnknownEndpoint   uint64 = 8 // nothing is registered at the path
	CodeUnsupported       uint64 = 9 // the path does not serve this kind of stream
)

// CodeName returns the name of a code as the specification writes it, or the number of any other.
func CodeName(code uint64) string {
	names := [...]string{
		"NO_ERROR", "INTERNAL", "PROTOCOL_VIOLATION", "CANCELED", "NEGOTIATION_FAILED",
		"LIMIT_EXCEEDED", "SHUTDOWN", "REJECTED", "UNKNOWN_ENDPOINT", "UNSUPPORTED",
	}
	if code < uint64(len(names)) {
		return names[code]
	}
	return strconv.FormatUint(code, 10)
}
