// Package weir is the Go client of the weir daemon, which keeps records safe on
// the local disk until they are delivered.
//
// Client sends one frame at a time and returns its answer. Producer takes records
// from many goroutines, sends them in batches with several in flight, reconnects
// by itself, and reports what became of each record.
//
// Delivery is at least once. A record whose state is Unknown may or may not be
// stored: send it again, and expect that it may arrive twice. A connection is used
// no more after an error or a timeout, since what it would carry next could be
// taken for the answer to something else.
package weir

import (
	"errors"
	"fmt"

	"github.com/weir-agent/weir/ingest/frame"
	"github.com/weir-agent/weir/wab/record"
)

// Durability says how safe a record has to be before it is acked.
type Durability = record.Durability

// Coordinate is where a record landed; Coordinate.ID is the key that the sink
// gets with it.
type Coordinate = record.Coordinate

// Reason is why a daemon refused something.
type Reason = frame.Reason

const (
	// Durable records are acked once they are on stable storage.
	Durable = record.Durable
	// Buffered records are acked once their write reached the operating system:
	// they survive the death of the daemon, not of the machine.
	Buffered = record.Buffered
)

// State is what is known of a record.
type State int

const (
	// Unknown: it may be stored or not. Send it again.
	Unknown State = iota
	// Acked: it is as safe as it was asked to be.
	Acked
	// Refused: it is not stored, and sending it again will not help.
	Refused
)

// String returns the state in a word.
func (s State) String() string {
	switch s {
	case Acked:
		return "acked"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// Outcome is what became of one record.
type Outcome struct {
	State State
	// Err says why it is not Acked. For a refusal it is a *NackError or one of
	// ErrEmpty and ErrTooLarge.
	Err error
}

var (
	// ErrEmpty: a record has at least one byte.
	ErrEmpty = errors.New("weir: the record is empty")
	// ErrTooLarge: a record or a batch is above its cap.
	ErrTooLarge = errors.New("weir: too large")
	// ErrClosed: the client or producer is closed.
	ErrClosed = errors.New("weir: closed")
	// errNotDurable is the outcome of a clear bit in the answer to a batch.
	errNotDurable = errors.New("weir: the daemon could not store the record now")
	// errReply: the daemon sent what does not answer the request.
	errReply = errors.New("weir: the reply does not fit the request")
)

// NackError is the daemon's refusal of a frame.
type NackError struct {
	Reason Reason
	// Version is the daemon's wire version with VersionMismatch, else zero.
	Version uint8
}

// Error says the reason in the words of the protocol.
func (e *NackError) Error() string {
	if e.Reason == frame.VersionMismatch {
		return fmt.Sprintf("weir: the daemon speaks wire protocol v%d, this client v%d: upgrade the older one", e.Version, frame.Version)
	}
	return fmt.Sprintf("weir: the daemon refused the frame: %v", e.Reason)
}

// StateOf tells what an error of a push means for its records: nil is Acked; a
// refusal is Refused, unless it is the transient InternalError; all else is Unknown.
func StateOf(err error) State {
	var nack *NackError
	switch {
	case err == nil:
		return Acked
	case errors.As(err, &nack) && nack.Reason.Known() && !nack.Reason.Transient(),
		errors.Is(err, ErrEmpty), errors.Is(err, ErrTooLarge):
		return Refused
	}
	return Unknown
}
