package frame

import "github.com/weir-agent/weir/wab/record"

// NackBody is the payload of a Nack ("Nack payload format").
type NackBody struct {
	// Reason may be an unassigned one; it is to be shown, not guessed at.
	Reason Reason
	// Version is the daemon's WIRE_VERSION with VersionMismatch, else zero.
	Version uint8
}

// AppendNack appends a Nack frame, 21 bytes, or 22 with VersionMismatch, which
// carries this side's version.
func AppendNack(dst []byte, r Reason) []byte {
	start := len(dst)
	dst = append(begin(dst, Nack, record.Durable), byte(r))
	if r == VersionMismatch {
		dst = append(dst, Version)
	}
	return finish(dst, start)
}

// ParseNack reads the payload of a Nack: ErrTruncated if it is empty,
// ErrLengthMismatch if its length is not that of its reason.
func ParseNack(payload []byte) (NackBody, error) {
	if len(payload) == 0 {
		return NackBody{}, ErrTruncated
	}
	n := NackBody{Reason: Reason(payload[0])}
	want := 1
	if n.Reason == VersionMismatch {
		want = 2
	}
	if len(payload) != want {
		return NackBody{}, ErrLengthMismatch
	}
	if want == 2 {
		n.Version = payload[1]
	}
	return n, nil
}
