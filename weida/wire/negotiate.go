package wire

import (
	"fmt"
	"slices"
)

// Agreed is what two HELLOs come to.
type Agreed struct {
	// Version is the greatest version that both speak.
	Version uint64
	// SendMaxHeaderBytes bounds the headers that this side may send.
	SendMaxHeaderBytes uint64
	// Guarantees is the weaker of both offers on each dimension, and reaches what both require.
	Guarantees Guarantees
}

// NegotiateError says why two HELLOs do not go together. A link is closed with NEGOTIATION_FAILED for it.
type NegotiateError struct {
	// Reason is one of the reasons below.
	Reason NegotiateReason
	// Dimension names the guarantee at fault, where one is.
	Dimension string
}

// NegotiateReason is in which step negotiation failed.
type NegotiateReason uint8

// The steps that can fail, in their order.
const (
	// NoCommonVersion: no version is spoken by both.
	NoCommonVersion NegotiateReason = iota + 1
	// CapabilityRequired: the peer requires a capability; there are none.
	CapabilityRequired
	// OffersDiffer: the offers differ on a dimension whose values have no order.
	OffersDiffer
	// NotReached: what both offer does not reach what one of them requires.
	NotReached
)

// Name returns the reason as the conformance vectors write it.
func (r NegotiateReason) Name() string {
	names := [...]string{"", "NoCommonVersion", "CapabilityRequired", "OffersDiffer", "NotReached"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("NegotiateReason(%d)", uint8(r))
}

// Error says in words what failed.
func (e *NegotiateError) Error() string {
	switch e.Reason {
	case NoCommonVersion:
		return "negotiate: no common version"
	case CapabilityRequired:
		return "negotiate: the peer requires a capability that is not supported"
	case OffersDiffer:
		return "negotiate: the offers differ in " + e.Dimension
	case NotReached:
		return "negotiate: the guarantees do not reach what is required in " + e.Dimension
	}
	return "negotiate: " + e.Reason.Name()
}

// Negotiate computes what two HELLOs agree on; both sides come to the same guarantees from the same two frames (§2.3). The error is a *NegotiateError.
func Negotiate(ours, theirs *Hello) (Agreed, error) {
	version, found := uint64(0), false
	for _, v := range ours.Versions {
		if slices.Contains(theirs.Versions, v) && (!found || v > version) {
			version, found = v, true
		}
	}
	if !found {
		return Agreed{}, &NegotiateError{Reason: NoCommonVersion}
	}
	if len(theirs.RequiredCapabilities) > 0 {
		return Agreed{}, &NegotiateError{Reason: CapabilityRequired}
	}
	g, differ := weaker(ours.Offered, theirs.Offered)
	if differ != "" {
		return Agreed{}, &NegotiateError{Reason: OffersDiffer, Dimension: differ}
	}
	for _, required := range []Guarantees{theirs.Required, ours.Required} {
		if lacks := g.lacks(required); lacks != "" {
			return Agreed{}, &NegotiateError{Reason: NotReached, Dimension: lacks}
		}
	}
	return Agreed{Version: version, SendMaxHeaderBytes: theirs.MaxHeaderBytes, Guarantees: g}, nil
}

// weaker returns the weaker of two offers on each dimension, or the dimension without an order on which they differ.
func weaker(a, b Guarantees) (g Guarantees, differ string) {
	g = Guarantees{
		Delivery:        min(a.Delivery, b.Delivery),
		Acknowledgement: min(a.Acknowledgement, b.Acknowledgement),
		Ordering:        min(a.Ordering, b.Ordering),
		Deduplication:   min(a.Deduplication, b.Deduplication),
		Backpressure:    a.Backpressure,
		ProducerNaming:  a.ProducerNaming,
		ControlIsolated: a.ControlIsolated && b.ControlIsolated,
	}
	// An axis stays where the level that it qualifies does.
	if g.Acknowledgement >= AckStored {
		if a.Durability != b.Durability {
			return Guarantees{}, "durability"
		}
		g.Durability = a.Durability
	}
	if g.Acknowledgement >= AckReplicated {
		if a.Replicas != b.Replicas {
			return Guarantees{}, "replicas"
		}
		g.Replicas = a.Replicas
	}
	if g.Deduplication == DedupBounded {
		g.DedupWindowMillis = window(a, b)
	}
	switch {
	case a.Backpressure != b.Backpressure:
		return Guarantees{}, "backpressure"
	case a.ProducerNaming != b.ProducerNaming:
		return Guarantees{}, "producer naming"
	}
	return g, ""
}

// window returns the shorter window of two sets of which at least one is bounded; a durable one has no end.
func window(a, b Guarantees) uint64 {
	if a.Deduplication != DedupBounded {
		return b.DedupWindowMillis
	}
	if b.Deduplication != DedupBounded {
		return a.DedupWindowMillis
	}
	return min(a.DedupWindowMillis, b.DedupWindowMillis)
}
