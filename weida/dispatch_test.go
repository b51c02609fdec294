package weida

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// TestDispatch is the dispatch and refusal tables of weida-supplement §1.13.
func TestDispatch(t *testing.T) {
	accept := decision{accept: true}
	unknown := decision{stop: transport.CodeUnknownEndpoint}
	unsupported := decision{stop: transport.CodeUnsupported}
	shutdown := decision{stop: transport.CodeShutdown}
	unknownBi := decision{stop: transport.CodeUnknownEndpoint, answer: wire.CodeUnknownEndpoint}
	unsupportedBi := decision{stop: transport.CodeUnsupported, answer: wire.CodeUnsupported}
	tests := []struct {
		name    string
		kind    routeKind
		uni, bi decision
	}{
		{"nothing", routeNone, unknown, unknownBi},
		{"puller", routePuller, accept, unsupportedBi},
		{"replier", routeReplier, unsupported, accept},
		{"acceptor", routeAcceptor, accept, accept},
		{"publisher", routePublisher, unsupported, unsupportedBi},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := dispatch(tt.kind, wire.Uni, false); got != tt.uni {
				t.Errorf("one way: got %+v, want %+v", got, tt.uni)
			}
			if got := dispatch(tt.kind, wire.Initiating, false); got != tt.bi {
				t.Errorf("exchange: got %+v, want %+v", got, tt.bi)
			}
			for _, half := range []wire.Half{wire.Uni, wire.Initiating} {
				if got := dispatch(tt.kind, half, true); got != shutdown {
					t.Errorf("draining: got %+v, want %+v", got, shutdown)
				}
			}
		})
	}
}

// TestOutcomes is the table of weida-supplement §1.11, with §1.5 and §4.1.
func TestOutcomes(t *testing.T) {
	closed := func(cause transport.Cause, code uint64) error { return &transport.CloseError{Cause: cause, Code: code} }
	stop := func(code uint64) error { return &transport.StopError{Code: code} }
	untrusted := &UntrustedError{}
	tests := []struct {
		name     string
		in, want error
		definite bool
	}{
		{"stop REJECTED", stop(7), ErrRejected, true},
		{"stop CANCELED", stop(3), ErrCanceled, true},
		{"stop UNKNOWN_ENDPOINT", stop(8), ErrUnknownEndpoint, true},
		{"stop UNSUPPORTED", stop(9), ErrUnsupported, true},
		{"stop LIMIT_EXCEEDED", stop(5), ErrLimitExceeded, true},
		{"stop SHUTDOWN", stop(6), ErrRejected, true},
		{"stop NO_ERROR", stop(0), ErrTransport, false},
		{"stop INTERNAL", stop(1), ErrTransport, false},
		{"stop unassigned", stop(10), ErrTransport, false},
		{"reset", &transport.ResetError{Code: 99}, ErrCanceled, true},
		{"peer closed NEGOTIATION_FAILED", closed(transport.CausePeerClosed, 4), ErrNegotiation, false},
		{"peer closed PROTOCOL_VIOLATION", closed(transport.CausePeerClosed, 2), ErrProtocol, false},
		{"peer closed LIMIT_EXCEEDED", closed(transport.CausePeerClosed, 5), ErrLimitExceeded, true},
		{"peer closed SHUTDOWN", closed(transport.CausePeerClosed, 6), &ConnectionLostError{Cause: CausePeerClosed}, true},
		{"peer closed NO_ERROR", closed(transport.CausePeerClosed, 0), &ConnectionLostError{Cause: CausePeerClosed}, true},
		{"peer closed unassigned", closed(transport.CausePeerClosed, 77), &ConnectionLostError{Cause: CausePeerClosed}, true},
		{"TLS alert", closed(transport.CauseTLS, 42), ErrTLS, false},
		{"closed here", closed(transport.CauseLocallyClosed, 2), &ConnectionLostError{Cause: CauseLocallyClosed}, true},
		{"idle", closed(transport.CauseIdleTimeout, 0), &ConnectionLostError{Cause: CauseIdleTimeout}, true},
		{"stateless reset", closed(transport.CauseReset, 0), &ConnectionLostError{Cause: CauseReset}, true},
		{"transport error", closed(transport.CauseTransport, 0), ErrTransport, false},
		{"refused by our verifier", &transport.CloseError{Cause: transport.CauseTLS, Err: fmt.Errorf("tls: %w", untrusted)}, untrusted, true},
		{"receipt unknown", transport.ErrIndeterminate, ErrIndeterminate, false},
		{"finished", transport.ErrFinished, ErrClosed, false},
		{"ERROR UNKNOWN_ENDPOINT", errorOutcome(1), ErrUnknownEndpoint, true},
		{"ERROR REJECTED", errorOutcome(2), ErrRejected, true},
		{"ERROR UNSUPPORTED", errorOutcome(3), ErrUnsupported, true},
		{"ERROR INTERNAL", errorOutcome(4), ErrPeerInternal, false},
		{"ERROR NO_REPLY", errorOutcome(5), ErrNoReply, false},
		{"ERROR unspecified", errorOutcome(6), ErrTransport, false},
		{"never connected", ErrNotConnected, ErrNotConnected, true},
		{"unknown outcome of a lost link", fmt.Errorf("%w: %w", ErrIndeterminate, &ConnectionLostError{Cause: CauseIdleTimeout}), ErrIndeterminate, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := outcomeOf(tt.in)
			if lost, ok := errors.AsType[*ConnectionLostError](tt.want); ok {
				e, ok := errors.AsType[*ConnectionLostError](got)
				if !ok || e.Cause != lost.Cause || !errors.Is(got, ErrConnectionLost) {
					t.Errorf("got %v, want %v", got, lost)
				}
			} else {
				wantErr(t, got, tt.want)
			}
			if IsDefinite(got) != tt.definite {
				t.Errorf("%v is definite: %v, want %v", got, !tt.definite, tt.definite)
			}
			if wrapped := opError("op", "target", got); IsDefinite(wrapped) != tt.definite {
				t.Errorf("wrapped, %v is definite: %v", wrapped, !tt.definite)
			}
		})
	}
}

// What a slot remembers of a loss is a cause, whatever the operation in flight was told.
func TestLossCause(t *testing.T) {
	tests := []struct {
		in   transport.CloseError
		want Cause
	}{
		{transport.CloseError{Cause: transport.CausePeerClosed, Code: 4}, CausePeerClosed},
		{transport.CloseError{Cause: transport.CausePeerClosed, Code: 2}, CausePeerClosed},
		{transport.CloseError{Cause: transport.CausePeerClosed, Code: 5}, CausePeerClosed},
		{transport.CloseError{Cause: transport.CauseTransport}, CauseTransport},
		{transport.CloseError{Cause: transport.CauseTLS}, CauseTransport},
		{transport.CloseError{Cause: transport.CauseIdleTimeout}, CauseIdleTimeout},
	}
	for _, tt := range tests {
		if got := lossCause(&tt.in).Cause; got != tt.want {
			t.Errorf("%v: got %v, want %v", &tt.in, got, tt.want)
		}
	}
}
