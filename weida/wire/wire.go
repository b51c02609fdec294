// Package wire is the codec of weida wire version 0: variable-length integers, stream preambles, the headers of the frame kinds 0 to 6,
// the records of a cursor stream, the filter grammar, guarantee sets and negotiation. It appends to slices and parses slices; it does no I/O and
// starts no goroutine.
//
// Every half of a stream begins with
//
//	Offset  Size  Field
//	 0       1    magic 0x57
//	 1       1    frame kind, 0 to 6
//	 2      1-8   header length n, a QUIC variable-length integer
//	 …       n    header: exactly one definite-length CBOR map with ascending unsigned keys
//
// and, for DATA, goes on with opaque payload up to its end.
//
// # Why the CBOR is written by hand
//
// A header is judged by rules that a general decoder does not have: keys strictly ascending, a cap of its own for each key that is checked before
// anything is copied, unknown keys skipped without recursion to a depth of 8, and tags, indefinite lengths, half floats and
// simple values refused inside what is skipped, too (weida-protocol §5, weida-supplement §3). And it is read and written once for every
// message, so it may cost one allocation at most. Tests hold this codec to fxamacker/cbor as an independent reader.
//
// # Errors
//
// Every error of a parser is a Verdict, so comparing with == and errors.Is agree. ErrIncomplete says that more bytes are needed; every other
// Verdict is a violation of §3.2, for which a link is closed with PROTOCOL_VIOLATION.
package wire

// Version is the wire version that this package speaks, and the only one.
const Version = 0

const (
	magic = 0x57
	// MaxPreambleBytes is the longest preamble: magic, kind and a length of eight bytes.
	MaxPreambleBytes = 2 + maxVarintBytes
	// MinFrameBytes is the shortest frame, preamble and empty map.
	MinFrameBytes = 4
	// DefaultMaxHeaderBytes is how long a header may be unless a peer was told otherwise (weida-supplement §1.14).
	DefaultMaxHeaderBytes = 16384
)

// Caps of fields (weida-supplement §1.3 to §1.9), in bytes or items.
const (
	MaxEndpointBytes    = 512
	MaxContentTypeBytes = 256
	MaxTraceparentBytes = 128
	MaxTracestateBytes  = 512
	MaxTopicBytes       = 256
	MaxFilterBytes      = 256
	MaxMessageBytes     = 1024
	ProducerBytes       = 32
	MaxListItems        = 64
	MaxReportLevels     = 16
	// MaxExtensions is how many extensions of a DATA header are kept and written; it is this implementation's own bound. What a header has beyond it
	// is skipped, as unknown keys are.
	MaxExtensions = 16
	// FirstExtension is the lowest key of an extension; the keys below are the specification's (§5).
	FirstExtension = 64

	maxSkipDepth = 8
)

// Opt is a value that may be absent. Its zero value is absent.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some returns a value that is there.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// Get returns the value, and whether it is there.
func (o Opt[T]) Get() (T, bool) { return o.Value, o.Set }
