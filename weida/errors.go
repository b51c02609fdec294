package weida

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// What an operation comes to. The errors of this package wrap one of them; errors.Is tells which, and IsDefinite whether the operation has certainly had no
// effect (weida-supplement §4.1).
var (
	// ErrAlreadyRegistered: the path is taken in this listener.
	ErrAlreadyRegistered = errors.New("path already registered")
	// ErrNotConnected: the endpoint was never connected to anybody.
	ErrNotConnected = errors.New("not connected")
	// ErrConnectionLost: the link ended before the operation was complete. Every such error is a *ConnectionLostError.
	ErrConnectionLost = errors.New("connection lost")
	// ErrNegotiation: the two sides do not agree on version, capabilities or guarantees.
	ErrNegotiation = errors.New("negotiation failed")
	// ErrProtocol: one side broke the protocol.
	ErrProtocol = errors.New("protocol violation")
	// ErrRejected: the receiver declined.
	ErrRejected = errors.New("rejected")
	// ErrUnknownEndpoint: nothing is registered at the path, or the receiver does not say.
	ErrUnknownEndpoint = errors.New("unknown endpoint")
	// ErrUnsupported: the path does not serve this kind of stream.
	ErrUnsupported = errors.New("unsupported")
	// ErrNoReply: the request was taken and no reply will come. It may have had an effect.
	ErrNoReply = errors.New("no reply")
	// ErrPeerInternal: the receiver failed while it served the request.
	ErrPeerInternal = errors.New("peer reported an internal error")
	// ErrCanceled: the other side abandoned the transfer.
	ErrCanceled = errors.New("canceled")
	// ErrIndeterminate: the link ended when the operation may or may not have had its effect.
	ErrIndeterminate = errors.New("outcome unknown")
	// ErrLimitExceeded: a bound was reached, here or at the peer.
	ErrLimitExceeded = errors.New("limit exceeded")
	// ErrTLS: the handshake failed for another reason than that the peer is untrusted, which is an *UntrustedError.
	ErrTLS = errors.New("TLS failure")
	// ErrTransport: the transport failed in another way.
	ErrTransport = errors.New("transport failure")
	// ErrClosed: the runtime, the endpoint or the transfer was closed by this side.
	ErrClosed = errors.New("closed")
	// ErrInvalidFilter: a filter is too long or breaks its grammar.
	ErrInvalidFilter = errors.New("invalid filter")
	// ErrNotSubscribed: there is no subscription with that filter.
	ErrNotSubscribed = errors.New("not subscribed")
	// ErrReplied: the request was answered before.
	ErrReplied = errors.New("request already answered")
)

// Cause is why a link ended.
type Cause = transport.Cause

// The causes of a ConnectionLostError.
const (
	CausePeerClosed    = transport.CausePeerClosed
	CauseLocallyClosed = transport.CauseLocallyClosed
	CauseIdleTimeout   = transport.CauseIdleTimeout
	CauseReset         = transport.CauseReset
	CauseTransport     = transport.CauseTransport
)

// ConnectionLostError says that a link ended, and why. It matches ErrConnectionLost.
type ConnectionLostError struct {
	Cause Cause
	// Err is what the transport says of it.
	Err error
}

// Error names the cause.
func (e *ConnectionLostError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%v: %v", ErrConnectionLost, e.Cause)
	}
	return fmt.Sprintf("%v: %v", ErrConnectionLost, e.Err)
}

// Unwrap returns what the transport says.
func (e *ConnectionLostError) Unwrap() error { return e.Err }

// Is reports whether target is ErrConnectionLost.
func (e *ConnectionLostError) Is(target error) bool { return target == ErrConnectionLost }

// OpError says which operation failed, and on which path or address.
type OpError struct {
	// Op is "connect", "open", "write", "receipt", "reply" and the like.
	Op string
	// Target is a path or an address.
	Target string
	Err    error
}

// Error names the operation, the target and the cause.
func (e *OpError) Error() string { return e.Op + " " + e.Target + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

func opError(op, target string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Target: target, Err: err}
}

// IsDefinite reports whether err says that the operation had no effect at the other side, so that it may be tried again
// without being done twice. It is false for whatever leaves that open, ErrIndeterminate and ErrNoReply above all.
func IsDefinite(err error) bool {
	if errors.Is(err, ErrIndeterminate) || errors.Is(err, ErrNoReply) {
		return false
	}
	for _, definite := range []error{
		ErrConnectionLost, ErrRejected, ErrUnknownEndpoint, ErrUnsupported, ErrCanceled, ErrNotConnected, ErrLimitExceeded,
	} {
		if errors.Is(err, definite) {
			return true
		}
	}
	_, untrusted := errors.AsType[*UntrustedError](err)
	return untrusted
}

// stopOutcome is what a STOP_SENDING means (weida-supplement §1.11).
func stopOutcome(code uint64) error {
	switch code {
	case transport.CodeRejected, transport.CodeShutdown:
		return ErrRejected
	case transport.CodeCanceled:
		return ErrCanceled
	case transport.CodeUnknownEndpoint:
		return ErrUnknownEndpoint
	case transport.CodeUnsupported:
		return ErrUnsupported
	case transport.CodeLimitExceeded:
		return ErrLimitExceeded
	}
	return ErrTransport
}

// errorOutcome is what an ERROR frame means to the requester (weida-supplement §1.5).
func errorOutcome(code wire.ErrorCode) error {
	switch code {
	case wire.CodeUnknownEndpoint:
		return ErrUnknownEndpoint
	case wire.CodeRejected:
		return ErrRejected
	case wire.CodeUnsupported:
		return ErrUnsupported
	case wire.CodeInternal:
		return ErrPeerInternal
	case wire.CodeNoReply:
		return ErrNoReply
	}
	return ErrTransport
}

// closeOutcome is what the end of a link means to an operation on it (weida-supplement §1.11).
func closeOutcome(e *transport.CloseError) error {
	if untrusted, ok := errors.AsType[*UntrustedError](e); ok {
		return untrusted
	}
	switch e.Cause {
	case transport.CauseTLS:
		return fmt.Errorf("%w: %w", ErrTLS, e)
	case transport.CauseTransport:
		return fmt.Errorf("%w: %w", ErrTransport, e)
	case transport.CausePeerClosed:
		switch e.Code {
		case transport.CodeNegotiationFailed:
			return fmt.Errorf("%w: peer closed the connection: %w", ErrNegotiation, e)
		case transport.CodeProtocolViolation:
			return fmt.Errorf("%w: peer closed the connection: %w", ErrProtocol, e)
		case transport.CodeLimitExceeded:
			return fmt.Errorf("%w: peer closed the connection: %w", ErrLimitExceeded, e)
		}
	}
	return &ConnectionLostError{Cause: e.Cause, Err: e}
}

// lossCause is why a slot lost its link, which every later operation is told (weida-supplement §1.11, §5).
func lossCause(err error) *ConnectionLostError {
	e, ok := errors.AsType[*transport.CloseError](err)
	if !ok {
		return &ConnectionLostError{Cause: transport.CauseTransport, Err: err}
	}
	cause := e.Cause
	if cause == transport.CauseTLS {
		cause = transport.CauseTransport
	}
	return &ConnectionLostError{Cause: cause, Err: e}
}

// outcomeOf turns an error of package transport into one of this package. An error that is none of its own stays as it is.
func outcomeOf(err error) error {
	if e, ok := errors.AsType[*transport.StopError](err); ok {
		return fmt.Errorf("%w: %w", stopOutcome(e.Code), e)
	}
	if e, ok := errors.AsType[*transport.ResetError](err); ok {
		return fmt.Errorf("%w: %w", ErrCanceled, e)
	}
	if e, ok := errors.AsType[*transport.CloseError](err); ok {
		return closeOutcome(e)
	}
	switch {
	case errors.Is(err, transport.ErrIndeterminate):
		return ErrIndeterminate
	case errors.Is(err, transport.ErrFinished), errors.Is(err, transport.ErrAbandoned):
		return ErrClosed
	}
	return err
}

// ended returns ctx's cause where a transfer was abandoned because ctx ended, and otherwise the outcome of err.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, transport.ErrAbandoned) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return outcomeOf(err)
}
