package wire

import "fmt"

// Kind is what a frame is (§4).
type Kind uint8

// The frame kinds; 7 is the first free one.
const (
	KindHello       Kind = 0
	KindData        Kind = 1
	KindError       Kind = 2
	KindSubscribe   Kind = 3
	KindUnsubscribe Kind = 4
	KindCredit      Kind = 5
	KindCursor      Kind = 6
)

// String returns the name as the specification writes it.
func (k Kind) String() string {
	names := [...]string{"HELLO", "DATA", "ERROR", "SUBSCRIBE", "UNSUBSCRIBE", "CREDIT", "CURSOR"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Half is where a frame stands: which half of which kind of stream it opens.
type Half uint8

// The halves that a frame can open.
const (
	// Uni is a one-way stream.
	Uni Half = iota
	// Initiating is the half of an exchange that the side writes which opened it.
	Initiating
	// Reply is the other half of an exchange.
	Reply
)

// Allowed reports whether a frame of the kind may open the half (§4.1).
func (k Kind) Allowed(h Half) bool {
	switch h {
	case Uni:
		return k <= KindCursor && k != KindError
	case Initiating:
		return k == KindData
	case Reply:
		return k == KindData || k == KindError
	}
	return false
}

// Preamble is what every half of a stream begins with (§3).
type Preamble struct {
	Kind Kind
	// HeaderBytes is the length of the header that follows, and at most the bound that the parser was given.
	HeaderBytes int
}

// ParsePreamble reads the preamble at the start of b and returns it with its length, at most MaxPreambleBytes. It judges as much as is there: a
// wrong magic byte is told from one byte alone. maxHeaderBytes is the receiver's bound for headers. It fails with ErrIncomplete, ErrBadMagic,
// ErrUnknownKind or ErrHeaderTooLarge.
func ParsePreamble(b []byte, maxHeaderBytes int) (p Preamble, n int, err error) {
	if len(b) > 0 && b[0] != magic {
		return Preamble{}, 0, ErrBadMagic
	}
	if len(b) > 1 && Kind(b[1]) > KindCursor {
		return Preamble{}, 0, ErrUnknownKind
	}
	if len(b) < 3 {
		return Preamble{}, 0, ErrIncomplete
	}
	length, n, err := ParseVarint(b[2:])
	if err != nil {
		return Preamble{}, 0, err
	}
	if maxHeaderBytes < 0 || length > uint64(maxHeaderBytes) {
		return Preamble{}, 0, ErrHeaderTooLarge
	}
	return Preamble{Kind: Kind(b[1]), HeaderBytes: int(length)}, 2 + n, nil
}

// PreambleBytes returns how long the preamble is that begins with b, or as much as must be read before that is known. Whoever reads so
// far and no further reads nothing of the header.
func PreambleBytes(b []byte) int {
	const lengthAt = 2
	if len(b) <= lengthAt {
		return lengthAt + 1
	}
	return lengthAt + 1<<(b[lengthAt]>>varintLengthShift)
}

// beginFrame appends a preamble whose length is not yet known, and returns where the header starts.
func beginFrame(b []byte, k Kind) (out []byte, start int) {
	return append(b, magic, byte(k), 0), len(b) + 3
}

// endFrame fills in the length of the header that starts at start, moving the header where a length of one byte is too short. It fails with
// ErrHeaderTooLarge if the header is longer than maxHeaderBytes.
func endFrame(b []byte, start int, maxHeaderBytes uint64) ([]byte, error) {
	n := len(b) - start
	if uint64(n) > maxHeaderBytes {
		return nil, ErrHeaderTooLarge
	}
	var length [maxVarintBytes]byte
	l := appendVarint(length[:0], uint64(n))
	if more := len(l) - 1; more > 0 {
		b = append(b, l[:more]...) // room, whatever it holds
		copy(b[start+more:], b[start:start+n])
	}
	copy(b[start-1:], l)
	return b, nil
}
