package transport

import (
	"errors"
	"fmt"
	"strings"
)

// The states that this side brought about, and what cannot be known.
var (
	// ErrFinished is returned by a write to a stream that CloseWrite has finished.
	ErrFinished = errors.New("transport: stream is finished")
	// ErrAbandoned is returned by a write after Reset and by a read after Stop.
	ErrAbandoned = errors.New("transport: stream was abandoned by this side")
	// ErrIndeterminate is a receipt's outcome when the link ended after the stream was
	// finished and before the peer's transport had confirmed all of it: the
	// peer may have all of it or not.
	ErrIndeterminate = errors.New("transport: link ended before the receipt")
	// ErrNoReceipt is returned where no receipt can be had: the link was told to keep
	// none, or it was asked for after the first write.
	ErrNoReceipt = errors.New("transport: no receipt")
	// ErrNoParked is returned where a stream needs a connection that the peer has parked, and there was none.
	ErrNoParked = errors.New("transport: the peer has parked no connection")
	// ErrReceiptEvicted is a receipt's outcome when nobody waited for it and its place was needed.
	ErrReceiptEvicted = errors.New("transport: receipt evicted")
	// ErrListenerClosed is returned by Accept after Close.
	ErrListenerClosed = errors.New("transport: listener closed")
)

// StopError says that the peer has stopped reading a stream.
type StopError struct {
	// Code is one of §7, or anything else that the peer chose to send.
	Code uint64
}

func (e *StopError) Error() string {
	return fmt.Sprintf("transport: peer stopped the stream: %s", CodeName(e.Code))
}

// ResetError says that the peer has abandoned a stream before its end.
type ResetError struct {
	// Code is one of §7, or anything else that the peer chose to send.
	Code uint64
}

func (e *ResetError) Error() string {
	return fmt.Sprintf("transport: peer reset the stream: %s", CodeName(e.Code))
}

// Cause is why a link ended (weida-supplement §1.11).
type Cause uint8

const (
	// CausePeerClosed: the peer closed the link; Code and Text are what it said.
	CausePeerClosed Cause = iota + 1
	// CauseLocallyClosed: this side closed the link with Code and Text.
	CauseLocallyClosed
	// CauseIdleTimeout: nothing was heard of the peer for the idle timeout.
	CauseIdleTimeout
	// CauseReset: the peer knows nothing of this link any more (a stateless reset).
	CauseReset
	// CauseTLS: the handshake failed, on either side; Code is the TLS alert.
	CauseTLS
	// CauseTransport: any other failure of the transport itself.
	CauseTransport
)

// String returns the cause in words, as logs show it.
func (c Cause) String() string {
	switch c {
	case CausePeerClosed:
		return "closed by the peer"
	case CauseLocallyClosed:
		return "closed by this side"
	case CauseIdleTimeout:
		return "idle timeout"
	case CauseReset:
		return "stateless reset"
	case CauseTLS:
		return "TLS failure"
	case CauseTransport:
		return "transport failure"
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// CloseError says why a link ended, or why a dial did not make one.
type CloseError struct {
	Cause Cause
	// Code is the application code of §7 for CausePeerClosed and CauseLocallyClosed, the TLS alert
	// for CauseTLS, and otherwise 0.
	Code uint64
	// Remote reports whether the peer ended the link rather than this side.
	Remote bool
	// Text is what the closing side said, of at most MaxCloseText bytes and without control characters.
	Text string
	// Err is the error that the transport gave, for errors.Is and errors.As, and may be nil.
	// A refusal by this side's verifier is found in it.
	Err error
}

// Error returns the cause, the code and the text.
func (e *CloseError) Error() string {
	var b strings.Builder
	b.WriteString("transport: link ended: ")
	b.WriteString(e.Cause.String())
	switch e.Cause {
	case CausePeerClosed, CauseLocallyClosed:
		b.WriteString(" with " + CodeName(e.Code))
	case CauseTLS:
		fmt.Fprintf(&b, " (alert %d)", e.Code)
	case CauseIdleTimeout, CauseReset, CauseTransport:
	}
	if e.Text != "" {
		b.WriteString(": ")
		b.WriteString(e.Text)
	}
	return b.String()
}

// Unwrap returns the error that the transport gave.
func (e *CloseError) Unwrap() error { return e.Err }

// MaxCloseText bounds the text of a close, in bytes, both as sent and as kept.
const MaxCloseText = 256

// CloseText returns s as a close may carry it: valid UTF-8 of at most MaxCloseText bytes, with every control
// character replaced by a space, because it comes from the peer and goes into logs.
func CloseText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), MaxCloseText)], ""))
	return s
}
