package weida

import (
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// Level is a completion level of a report or a confirm. Applications give those from wire.FirstApplicationLevel on a meaning of their own.
type Level = wire.Level

// The levels that weida defines.
const (
	LevelTransportReceipt = wire.LevelTransportReceipt
	LevelAccepted         = wire.LevelAccepted
	LevelStored           = wire.LevelStored
	LevelReplicated       = wire.LevelReplicated
	LevelProcessed        = wire.LevelProcessed
	FirstApplicationLevel = wire.FirstApplicationLevel
)

// Opt is a value that may be absent; its zero value is.
type Opt[T any] = wire.Opt[T]

// Some returns a value that is there.
func Some[T any](v T) Opt[T] { return wire.Some(v) }

// Extension is a byte string that goes with a transfer under a key of 64 or more.
type Extension = wire.Extension

// PeerIdentity is who a peer proved to be. It comes from the handshake or the kernel and never from what the peer says.
type PeerIdentity = transport.Identity

// Meta is what a sender says with a transfer. The zero value says nothing.
type Meta struct {
	// ContentType is an opaque label of at most 256 bytes.
	ContentType string
	// ContentLen is how long the payload will be, in bytes, for the receiver's information; 0 says nothing.
	ContentLen uint64
	// Topic is opaque, at most 256 bytes.
	Topic string
	// Trace is the trace context to pass on.
	Trace Trace
	// Report orders a report on this transfer, to be read from OutgoingTransfer.Cursors.
	Report ReportOrder
	// Achieved is the level reached for the message that is answered. It belongs on replies.
	Achieved Opt[Level]
	// DeliveryAttempt is for queues alone: how often they have handed the message out, this time included. It is written from 2 on.
	DeliveryAttempt uint64
	// Extensions are at most 16, ascending by key.
	Extensions []Extension

	sequence Opt[uint64]
}

// ReportOrder is which levels a sender wants reported. No levels order no report.
type ReportOrder struct {
	// Levels are at most 16, strictly ascending.
	Levels []Level
	// FinalOnly wants one record for each level, when there is no more to come.
	FinalOnly bool
}

// IncomingMeta is what is known of a transfer from its header and its link.
type IncomingMeta struct {
	// Endpoint is the path addressed; it is empty on a reply.
	Endpoint    string
	ContentType string
	// ContentLen is what the sender expects the payload to be. It may be wrong, and nothing may be reserved because of it.
	ContentLen Opt[uint64]
	Topic      Opt[string]
	// Trace is the zero value where the sender gave none, or none that is well formed.
	Trace Trace
	// Peer is who is at the other end of the link.
	Peer PeerIdentity
	// Sequence counts the sender's transfers where ordering was negotiated.
	Sequence Opt[uint64]
	// Gap says which numbers before this transfer's were missed, where ordering was negotiated.
	Gap Gap
	// Producer names the producer where it is not Peer. It is a claim.
	Producer Opt[Fingerprint]
	// Achieved is the level that the peer has reached for the message that this reply answers.
	Achieved Opt[Level]
	// Report is what the sender wants reported.
	Report ReportOrder
	// DeliveryAttempt is how often a queue has handed this message out, 1 for the first time. More than 1 means that it may be a repeat.
	DeliveryAttempt uint64
	Extensions      []Extension
	// Guarantees is what the link agreed on.
	Guarantees Guarantees
}

// Extension returns the value of an extension key, and whether it is there.
func (m *IncomingMeta) Extension(key uint64) (string, bool) {
	for _, e := range m.Extensions {
		if e.Key == key {
			return e.Value, true
		}
	}
	return "", false
}

func some[T comparable](v T) wire.Opt[T] {
	var zero T
	return wire.Opt[T]{Value: v, Set: v != zero}
}

// header returns the header of a transfer to path, or of a reply if path is empty.
func (m *Meta) header(path string, reportID uint64) wire.Data {
	d := wire.Data{
		Endpoint: some(path), ContentLen: some(m.ContentLen), ContentType: some(m.ContentType), Topic: some(m.Topic),
		Achieved: m.Achieved, Extensions: m.Extensions, DeliveryAttempt: m.DeliveryAttempt, Sequence: m.sequence,
	}
	if !m.Trace.IsZero() {
		d.Traceparent, d.Tracestate = wire.Some(m.Trace.Traceparent()), some(m.Trace.State)
	}
	if reportID != 0 {
		d.Report = wire.Some(wire.Report{ID: reportID, Levels: m.Report.Levels, FinalOnly: m.Report.FinalOnly})
	}
	return d
}

// incomingMeta returns what a header says on a link.
func incomingMeta(c *conn, d *wire.Data) IncomingMeta {
	m := IncomingMeta{
		Endpoint: d.Endpoint.Value, ContentType: d.ContentType.Value, ContentLen: d.ContentLen, Topic: d.Topic, Peer: c.link.Info().Peer,
		Sequence: d.Sequence, Producer: Opt[Fingerprint]{Value: d.Producer.Value, Set: d.Producer.Set}, Achieved: d.Achieved, DeliveryAttempt: max(1, d.DeliveryAttempt), Extensions: d.Extensions,
		Report: ReportOrder{d.Report.Value.Levels, d.Report.Value.FinalOnly}, Guarantees: c.agreed.Guarantees,
	}
	if c.agreed.Guarantees.Ordering == wire.OrderNone {
		m.Sequence = Opt[uint64]{} // whoever has not negotiated it ignores it (§6.2)
	}
	if d.Traceparent.Set {
		if t, err := ParseTraceparent(d.Traceparent.Value); err == nil {
			m.Trace = t
			m.Trace.State = d.Tracestate.Value
		}
	}
	return m
}
