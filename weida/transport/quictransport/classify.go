package quictransport

import (
	"errors"
	"io"

	quic "github.com/quic-go/quic-go"

	"github.com/weir-agent/weir/weida/transport"
)

// The TLS alerts are the transport error codes from here on, up to 255 more (RFC 9001 §4.8).
const firstCryptoError = 0x100

// closeError turns why a connection ended, as quic-go says it, into a *transport.CloseError.
func closeError(err error) *transport.CloseError {
	c := &transport.CloseError{Cause: transport.CauseTransport, Err: err}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok {
		c.Cause, c.Remote = transport.CauseLocallyClosed, e.Remote
		if e.Remote {
			c.Cause = transport.CausePeerClosed
		}
		c.Code, c.Text = uint64(e.ErrorCode), transport.CloseText(e.ErrorMessage)
		return c
	}
	if e, ok := errors.AsType[*quic.TransportError](err); ok {
		c.Remote, c.Text = e.Remote, transport.CloseText(e.Error())
		if e.ErrorCode.IsCryptoError() {
			c.Cause, c.Code = transport.CauseTLS, uint64(e.ErrorCode)-firstCryptoError
		}
		return c
	}
	_, idle := errors.AsType[*quic.IdleTimeoutError](err)
	_, handshake := errors.AsType[*quic.HandshakeTimeoutError](err)
	_, reset := errors.AsType[*quic.StatelessResetError](err)
	switch {
	case idle || handshake:
		c.Cause = transport.CauseIdleTimeout
	case reset:
		c.Cause, c.Remote = transport.CauseReset, true
	case err != nil:
		c.Text = transport.CloseText(err.Error())
	}
	return c
}

// writeError turns an error of quic-go's write side into one of package transport.
func (l *link) writeError(err error) error {
	if errors.Is(err, quic.ErrStreamClosed) {
		return transport.ErrFinished
	}
	if e, ok := errors.AsType[*quic.StreamError](err); ok {
		if e.Remote {
			return &transport.StopError{Code: uint64(e.ErrorCode)}
		}
		return transport.ErrAbandoned
	}
	return l.lost(err)
}

// readError turns an error of quic-go's read side into one of package transport. io.EOF stays io.EOF.
func (l *link) readError(err error) error {
	if err == io.EOF { //nolint:errorlint // io.EOF itself, as io.Reader has it
		return err
	}
	if e, ok := errors.AsType[*quic.StreamError](err); ok {
		if e.Remote {
			return &transport.ResetError{Code: uint64(e.ErrorCode)}
		}
		return transport.ErrAbandoned
	}
	return l.lost(err)
}
