package wire

import "fmt"

// Keys of an ERROR header (weida-supplement §1.5).
const (
	errorCode = iota
	errorMessage
)

// ErrorCode is why an exchange gets no reply. Other numbers than the ones below are unspecified: they fail the exchange and nothing else.
type ErrorCode uint64

// The codes of ERROR frames.
const (
	CodeUnknownEndpoint ErrorCode = 1
	CodeRejected        ErrorCode = 2
	CodeUnsupported     ErrorCode = 3
	CodeInternal        ErrorCode = 4
	CodeNoReply         ErrorCode = 5
)

// String returns the name as the specification writes it, or the number.
func (c ErrorCode) String() string {
	names := [...]string{"", "UNKNOWN_ENDPOINT", "REJECTED", "UNSUPPORTED", "INTERNAL", "NO_REPLY"}
	if c > 0 && c < ErrorCode(len(names)) {
		return names[c]
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Error is the header of an ERROR frame.
type Error struct {
	Code ErrorCode
	// Message is text for people, at most MaxMessageBytes bytes.
	Message Opt[string]
}

// AppendError appends a whole ERROR frame. maxHeaderBytes is what the peer allows.
func AppendError(b []byte, e Error, maxHeaderBytes uint64) ([]byte, error) {
	b, start := beginFrame(b, KindError)
	w := beginMap(b)
	w.uint(errorCode, uint64(e.Code))
	w.optText(errorMessage, e.Message, MaxMessageBytes)
	b, err := w.end()
	if err != nil {
		return nil, err
	}
	return endFrame(b, start, maxHeaderBytes)
}

// ParseError reads a header that a preamble announced as ERROR.
func ParseError(header []byte) (Error, error) {
	var e Error
	r := reader{header}
	m, err := r.pairs(ErrNotAMap)
	if err != nil {
		return Error{}, err
	}
	coded := false
	for {
		key, ok, err := m.next()
		if err != nil {
			return Error{}, err
		}
		if !ok {
			break
		}
		switch key {
		case errorCode:
			var v uint64
			v, err = r.uint()
			e.Code, coded = ErrorCode(v), true
		case errorMessage:
			var s []byte
			s, err = r.str(majorText, MaxMessageBytes)
			e.Message = Some(string(s))
		default:
			err = r.skip()
		}
		if err != nil {
			return Error{}, err
		}
	}
	if !coded {
		return Error{}, ErrMissingKey
	}
	return e, r.end()
}
