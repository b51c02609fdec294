// Package transport holds the contract between weida and what carries it: a
// link is one connection to a peer, with streams of two kinds in both
// directions. QUIC is one link (quictransport); sockets and in-process
// channels are others. Everything above it (frames, negotiation, patterns) is
// written once and runs over any link.
//
// A link carries bytes and codes and knows nothing of frames. The codes that
// end streams and links are those of weida-protocol-v0 §7.
//
// # Outcomes
//
// What a call over a link comes to is one of these errors, and a caller tells them
// apart with errors.AsType or errors.Is:
//
//   - *StopError: the peer has stopped reading the stream (STOP_SENDING).
//   - *ResetError: the peer has abandoned what it was writing (RESET_STREAM). A read
//     never ends in io.EOF unless the peer finished the stream.
//   - *CloseError: the link has ended, and why.
//   - ErrFinished, ErrAbandoned: this side had ended its half before.
//   - ErrIndeterminate: the link ended after the stream was finished and before
//     the peer's transport had confirmed all of it.
package transport

import (
	"context"
	"io"
	"net"
	"time"
)

// Link is one connection to one peer. Its methods may be called by several
// goroutines at once.
//
// A link that has ended fails every call with its *CloseError; nothing waits for
// a link that is gone. When a call on it or on one of its streams has failed so, Done
// is closed already.
type Link interface {
	// OpenUni opens a one-way stream to the peer. It waits while the peer's stream
	// budget is used up, until ctx ends. The peer learns of the stream with its
	// first byte or its end.
	OpenUni(ctx context.Context) (SendStream, error)
	// OpenBi opens an exchange: a stream with two independent halves. It waits as OpenUni does.
	OpenBi(ctx context.Context) (SendStream, ReceiveStream, error)
	// AcceptUni returns the next one-way stream that the peer opened.
	AcceptUni(ctx context.Context) (ReceiveStream, error)
	// AcceptBi returns the next exchange that the peer opened. Over a transport
	// whose streams have no kind, every stream arrives here.
	AcceptBi(ctx context.Context) (SendStream, ReceiveStream, error)
	// Close ends the link and every stream on it with a code of §7 and a short
	// text that the peer may show. It does not wait for the peer. Only the first end of a
	// link counts: a later Close changes nothing.
	Close(code uint64, text string)
	// Done is closed when the link has ended, by either side or by failure.
	Done() <-chan struct{}
	// Err returns nil before Done is closed, and the same *CloseError ever after.
	Err() error
	// Info says who is at the other end. It does not change over the life of a link.
	Info() Info
}

// Controlled is a link that has a stream for the HELLOs from its making (weida-protocol §2.1), and so none of either kind is opened for them.
type Controlled interface {
	// Control returns the stream's two halves. To close the first ends what this side says; to close the second drops what comes.
	Control() (io.WriteCloser, io.ReadCloser)
}

// Kindless is the sending half of a stream of the peer where streams have no kind: what the stream is, the path in its header tells.
type Kindless interface {
	// OneWay says that the stream is one-way, so that this half is over without a byte.
	OneWay()
}

// Parked is a link over which the accepting side opens streams on connections that the dialling side has parked for it (weida-protocol §2.1).
type Parked interface {
	// OpenParked opens a one-way stream as OpenUni does, but waits at most patience for a place and a connection; then it fails with ErrNoParked.
	OpenParked(ctx context.Context, patience time.Duration) (SendStream, error)
	// MaxParked is how many connections the dialling side keeps parked. Where it is 0, the accepting side can open nothing.
	MaxParked() int
}

// Busy is a link with goroutines of its own, for whoever owns it to wait for.
type Busy interface {
	// WaitTasks waits until the link has ended and its goroutines with it.
	WaitTasks()
}

// Retiring is a sending half whose receipt says nothing about the peer, as it is within a machine.
type Retiring interface {
	// Retired returns a channel that is closed when both sides are done with the stream, or the link has ended.
	Retired() <-chan struct{}
}

// Info is what is known of a link from its making.
type Info struct {
	// Peer is who the other side proved to be, in the handshake or to the kernel.
	Peer Identity
	// Local and Remote are the addresses of the two ends, nil where the transport has none.
	Local, Remote net.Addr
	// Dialled reports whether this side made the link.
	Dialled bool
}

// SendStream is the writing half of a stream. One goroutine writes at a time;
// Reset, Done and Err may be called beside it.
type SendStream interface {
	// Write sends p, waiting for the peer's window where it must. p belongs to the
	// caller again when Write returns. The errors are *StopError, *CloseError, ErrFinished and ErrAbandoned.
	io.Writer
	// CloseWrite finishes the stream: the peer reads io.EOF behind the last byte.
	// It does not wait. It fails as Write does; a finished stream stays finished.
	CloseWrite() error
	// Reset abandons the stream with a code of §7, finished or not: what was not
	// delivered may never be, and the peer reads a *ResetError if it has not read the
	// end yet. A stream that was stopped or reset stays as it is.
	Reset(code uint64)
	// Done is closed when there is no more to write: the stream was finished or
	// reset, the peer stopped it, or the link ended.
	Done() <-chan struct{}
	// Err returns why the peer takes no more of this stream: a *StopError as soon as the
	// refusal is here, also on a stream that was finished before, a *CloseError if the
	// link ended before the end was written, ErrAbandoned after Reset, otherwise nil.
	Err() error
	// Receipt asks for a receipt. It must be asked for before the first Write: later it
	// fails with ErrNoReceipt, as it does on a link that was told to keep none.
	// Asked again, it returns the same receipt.
	Receipt() (*Receipt, error)
}

// ReceiveStream is the reading half of a stream. One goroutine reads at a time; Stop may be called beside it.
type ReceiveStream interface {
	// Read returns io.EOF if and only if the peer finished the stream and all of it was
	// read. Otherwise it fails with *ResetError, *CloseError, or ErrAbandoned after Stop.
	io.Reader
	// Stop tells the peer that no more will be read, with a code of §7, and drops what
	// was not read. On a stream that was read to its end it does nothing. A stream
	// that is neither read to its end nor stopped keeps its place in the stream budget.
	Stop(code uint64)
}

// Listener accepts links. Its methods may be called by several goroutines at once.
type Listener interface {
	// Accept returns the next link whose handshake has succeeded. It fails with
	// ErrListenerClosed after Close.
	Accept(ctx context.Context) (Link, error)
	// Addr is the address that peers dial.
	Addr() net.Addr
	// Close accepts no more; links that were accepted live on. It is idempotent.
	Close() error
	// Wait waits until every accepted link has ended, and frees the address. When ctx ends
	// first, the rest is cut off without a word to the peer, and Wait returns ctx's error. Close comes before it.
	Wait(ctx context.Context) error
}
