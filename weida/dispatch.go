package weida

import (
	"github.com/weir-agent/weir/weida/transport"
	"github.com/weir-agent/weir/weida/wire"
)

// routeKind is what is registered at a path.
type routeKind uint8

const (
	routeNone      routeKind = iota
	routePuller              // takes one-way transfers
	routeReplier             // takes exchanges
	routeAcceptor            // takes both; a queue is one
	routePublisher           // takes neither
)

// decision is what is to be done with a stream.
type decision struct {
	accept bool
	// stop is the code with which the sending half of the peer is stopped if it is not accepted.
	stop uint64
	// answer is the ERROR on the reply half of an exchange that is not accepted; 0 resets the reply half with stop.
	answer wire.ErrorCode
}

// dispatch is the whole of the dispatch and refusal tables (weida-protocol §9.4, weida-supplement §1.13): what is done with a stream that the peer began, by
// what is registered at its path and by its kind. A refusal never ends the link.
func dispatch(kind routeKind, half wire.Half, draining bool) decision {
	exchange := half == wire.Initiating
	switch {
	case draining:
		return decision{stop: transport.CodeShutdown}
	case kind == routeNone:
		return refuse(exchange, transport.CodeUnknownEndpoint, wire.CodeUnknownEndpoint)
	case kind == routeAcceptor,
		kind == routeReplier && exchange,
		kind == routePuller && !exchange:
		return decision{accept: true}
	}
	return refuse(exchange, transport.CodeUnsupported, wire.CodeUnsupported)
}

// refuse says it with the stop code, and on an exchange with an ERROR, too.
func refuse(exchange bool, stop uint64, answer wire.ErrorCode) decision {
	if !exchange {
		return decision{stop: stop}
	}
	return decision{stop: stop, answer: answer}
}
